"""Stories with questions in the manner of bAbI (the head-constraints study), one file a task."""

from unbraid.worlds.stories.batch import MinimalPairs, StoryBatch
from unbraid.worlds.stories.world import TASKS, Stories

__all__ = ["TASKS", "MinimalPairs", "Stories", "StoryBatch"]
