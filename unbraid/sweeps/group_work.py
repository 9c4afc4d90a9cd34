"""What the work of any group of members without training steps has in common: done whole, or begun again."""

from abc import ABC, abstractmethod

from unbraid.files import write_json
from unbraid.progress import Watcher
from unbraid.runs import Run
from unbraid.sweeps.grid import Member
from unbraid.worlds import World


class GroupWork(ABC):
    """What is left to do of one group: members that differ in their data and seed only, one after the other."""

    def __init__(self, run: Run, index: int, group: list[Member], world: World, watcher: Watcher) -> None:
        self.index, self.group, self.watcher = index, group, watcher
        self.folder = run.stack(index)
        self.world = world

    def finish(self) -> None:
        if not (self.folder / "scores.json").is_file():
            write_json(self.folder / "members.json", [member.card() for member in self.group])
            self.do_all()
        self.watcher.advance(self.index, len(self.group))

    @abstractmethod
    def do_all(self) -> None:
        """The work of every member, ending with the group's scores.json."""
