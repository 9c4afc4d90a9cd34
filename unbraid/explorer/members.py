"""Whose page it is: the setting and the replicate an address names, among those a run has something to show of."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from safetensors import safe_open
from starlette.requests import Request

from unbraid.explorer.parameters import given, integer
from unbraid.explorer.site import NothingHere, run_href
from unbraid.results import RunResults

MOST_STACKS = 10_000


@dataclass(frozen=True)
class Member:
    """One trained thing of a run."""

    setting: int
    label: str
    replicate: str
    stack: int
    member: int

    @property
    def query(self) -> str:
        """What names it in an address."""
        return f"stack={self.stack}&member={self.member}"


@dataclass(frozen=True)
class Choice:
    """The members that can be chosen, and the one that is."""

    chosen: Member
    members: list[Member]

    @property
    def settings(self) -> dict[int, str]:
        return {member.setting: member.label for member in self.members}

    @property
    def replicates(self) -> list[str]:
        return [member.replicate for member in self.members if member.setting == self.chosen.setting]


Kept = Callable[[int, int], bool]


def choose(request: Request, results: RunResults, kept: Kept = lambda _stack, _member: True) -> Choice | None:
    """The member an address names, or the first of the best setting; None where no member is `kept`."""
    members = [Member(*row) for row in results.members.itertuples(index=False) if kept(row.stack, row.member)]
    if not members:
        return None
    if given(request, "stack") is not None:
        return Choice(_by_stack(request, members), members)
    best = next((s for s in results.ranked if any(m.setting == s for m in members)), members[0].setting)
    setting = integer(request, "setting", best, 0, max(member.setting for member in members))
    own = [member for member in members if member.setting == setting]
    if not own:
        raise NothingHere(f"setting {setting} has nothing to show here; accepted: {_listed(members)}")
    wanted = given(request, "replicate")
    return Choice(next((member for member in own if member.replicate == wanted), own[0]), members)


def _by_stack(request: Request, members: list[Member]) -> Member:
    stack, place = (integer(request, name, 0, 0, MOST_STACKS) for name in ("stack", "member"))
    for member in members:
        if (member.stack, member.member) == (stack, place):
            return member
    accepted = ", ".join(f"{member.stack}/{member.member}" for member in members[:12])
    raise NothingHere(f"stack {stack} has no member {place} to show here; accepted: {accepted}")


def _listed(members: list[Member]) -> str:
    return ", ".join(map(str, sorted({member.setting for member in members})[:12]))


def of_member(results: RunResults, stack: int, member: int) -> RunResults:
    """The same run as if it had this member alone: its tables have that member's rows, and cost no more."""
    own = RunResults(results.run)
    chosen = results.members[(results.members["stack"] == stack) & (results.members["member"] == member)]
    own.__dict__.update(members=chosen, _read=results.__dict__.setdefault("_read", {}))
    return own


def names_in(path: Path) -> frozenset[str]:
    """The names of the arrays in a file; none where it is missing. Only its head is read."""
    try:
        return _names(path, path.stat().st_mtime_ns)
    except OSError:
        return frozenset()


@lru_cache(maxsize=512)
def _names(path: Path, _stamp: int) -> frozenset[str]:
    with safe_open(path, framework="numpy") as file:
        return frozenset(file.keys())


def has_truth(results: RunResults) -> bool:
    """Whether there are planted concepts to hold the dictionary against."""
    folders = results.run.stacks()[:1]
    return any("best_cosine" in names_in(f / "tables.safetensors") or (f / "features.json").is_file() for f in folders)


def has_features(results: RunResults) -> bool:
    return any("density" in names_in(folder / "tables.safetensors") for folder in results.run.stacks()[:1])


def member_href(results: RunResults, page: str, member: Member) -> str:
    return f"{run_href(results.run.name)}/{page}?{member.query}"
