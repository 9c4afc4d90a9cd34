"""Every task that a story can set, by its name in a configuration."""

from unbraid.worlds.stories.coreference import Coreference
from unbraid.worlds.stories.counting import Counting
from unbraid.worlds.stories.one_fact import OneFact
from unbraid.worlds.stories.path import Path
from unbraid.worlds.stories.ratio import Ratio
from unbraid.worlds.stories.task import Task
from unbraid.worlds.stories.two_facts import TwoFacts

TASKS: dict[str, type[Task]] = {
    "one_fact": OneFact,
    "two_facts": TwoFacts,
    "counting": Counting,
    "ratio": Ratio,
    "coreference": Coreference,
    "path": Path,
}
