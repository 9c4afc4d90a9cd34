"""Silence each head in turn, and see which answers go wrong, and in which stories.

importance   m l h   accuracy less accuracy without the head      needed   m l h   answers that are right only with it
largest_drop m l h   importance in the group that needs it most   dealt_drop       the same with groups dealt anew

Questions are grouped by their answer, by their place in the story, and by how far back their last supporting fact is.
"""

from collections.abc import Sequence
from itertools import product

import torch

from unbraid.axes import Bool, Int, Tensor
from unbraid.metrics import ablation, answering
from unbraid.models import Models
from unbraid.randomness import stream
from unbraid.worlds.stories import StoryBatch

Named = dict[str, Tensor]
QUARTERS = (0.25, 0.5, 0.75)


def silence(one: Models, batches: Sequence[StoryBatch]) -> Named:
    """Tables of a single member, over all these stories."""
    layers, heads = one.settings.layers, one.settings.heads_a_layer
    right = _right(one, batches, None)
    without = torch.stack([_right(one, batches, place) for place in product(range(layers), range(heads))], 1)
    groups = groupings(batches)
    found = {
        "importance": ablation.importance(right, without),
        "needed": ablation.needed(right, without),
        "largest_drop": ablation.largest_drop(right, without, groups),
        "dealt_drop": ablation.chance_of_largest_drop(right, without, groups, stream(0, "groups")),
    }
    return {name: table.unflatten(1, (layers, heads)) for name, table in found.items()}


def _right(one: Models, batches: Sequence[StoryBatch], place: tuple[int, int] | None) -> Bool[Tensor, "m n"]:
    """Which of all questions are answered right, with this head silent."""
    silent = () if place is None else (place,)
    logits = [one.read(one.forward(batch.tokens, silence=silent), batch.asked) for batch in batches]
    right = [answering.right(said, batch.answers) for said, batch in zip(logits, batches, strict=True)]
    return torch.cat([each.flatten(1) for each in right], 1)


def groupings(batches: Sequence[StoryBatch]) -> list[Int[Tensor, "n"]]:
    """Each way of grouping all questions."""
    answers = torch.cat([batch.answers.flatten() for batch in batches])
    order = torch.cat([torch.arange(batch.asked.shape[1]).expand_as(batch.asked).flatten() for batch in batches])
    far = torch.cat([back(batch) for batch in batches])
    known = far[far >= 0].double()
    quarters = torch.bucketize(far.double(), known.quantile(torch.tensor(QUARTERS).double())) if len(known) else far
    return [answers, order, torch.where(far >= 0, quarters, -1)]


def back(batch: StoryBatch) -> Int[Tensor, "n"]:
    """How many tokens before the question the last supporting one stands; -1 where nothing supports."""
    places = torch.arange(batch.support.shape[-1]).expand_as(batch.support)
    last = torch.where(batch.support, places, -1).amax(-1)
    return torch.where(last >= 0, batch.asked - last, -1).flatten()
