"""Stories with questions: the world of seed 000, one file a task."""

from unbraid.worlds.stories.batch import StoryBatch
from unbraid.worlds.stories.stories import Stories
from unbraid.worlds.stories.tasks import TASKS

__all__ = ["TASKS", "Stories", "StoryBatch"]
