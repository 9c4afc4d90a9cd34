"""What Hopfield heads of the last layer remember of a story, in the mean over stories and heads.

attractors        where queries come to rest: how many different places, as a share of the story's tokens
recalled          how many stored tokens a resting place is made of: 1, a single token is recalled
store_separation  how much more a stored token is like itself than like any other, over the mean square of its length
"""

from unbraid.axes import Tensor
from unbraid.models import Models, Transformers
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.landscape import landscape
from unbraid.worlds.stories import StoryBatch

STORIES = 16
"""Every query is followed for hundreds of iterations."""


def remembered(one: Models, batch: StoryBatch) -> dict[str, Tensor]:
    """Scores `m`; none for other attention."""
    if not isinstance(one, Transformers) or not isinstance(one.settings.attention, Hopfield):
        return {}
    tokens, mask = batch.tokens[:STORIES], batch.mask[:STORIES]
    layer = one.settings.layers - 1
    found = landscape(one, tokens, layer)
    keys = one.forward(tokens, [f"blocks.{layer}.attn.hook_k"]).recorded[f"blocks.{layer}.attn.hook_k"].double()
    squares = keys.square().sum(-1).transpose(1, 2)[:, :, mask].mean((1, 2))
    return {
        "attractors": (found.attractors / mask.sum(1)[:, None]).mean((1, 2)),
        "recalled": found.patterns.flatten(1).nanmean(1),
        "store_separation": found.separation.flatten(1).nanmean(1) / squares,
    }
