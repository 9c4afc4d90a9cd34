"""Replace a part of a trained model by what a dictionary makes of it: an MLP by a transcoder, or sites by a crosscoder.

    accuracy   of the answers with predictions in place of the activations at the target sites, at every token
    recovered  (CE with zeros there - CE with predictions) / (CE with zeros - CE as it is)        CE of the answers

Predictions are made from the inputs of the model as it is. With several target sites all are replaced at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from unbraid.axes import Float, Tensor
from unbraid.dictionaries.stack import Stack
from unbraid.models import Models
from unbraid.models.models import Edit, edit_rows, token_rows
from unbraid.worlds.stories import Stories, StoryBatch

SPLIT, BATCH = "replacement", 64
Predict = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n o"]]


@dataclass(frozen=True)
class Answered:
    """How well questions were answered: share that are right, and cross-entropy."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Replacement:
    """One trained model, and the sites between which a dictionary stands."""

    model: Models
    world: Stories
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    stories: int

    def batches(self) -> list[StoryBatch]:
        """Stories that neither the model nor a dictionary was trained on."""
        starts = range(0, self.stories, BATCH)
        batches = [self.world.batch(start // BATCH, BATCH, split=SPLIT) for start in starts]
        return [batch.first(self.stories - start) for start, batch in zip(starts, batches, strict=True)]

    def mean(self) -> Float[Tensor, "o"]:
        """The mean of the activations at the target sites."""
        return torch.cat([self._rows(batch, self.targets)[batch.mask] for batch in self.batches()]).mean(0)

    def answers(self, predict: Predict | None = None) -> Answered:
        """Of the model with predictions, from inputs in its units, in place of targets; as it is, without."""
        right, loss, questions = 0.0, 0.0, 0
        for batch in self.batches():
            edits = {} if predict is None else self._edits(batch, predict)
            logits = self.model.read(self.model.forward(batch.tokens, [], edit=edits), batch.asked)[0].flatten(0, 1)
            answers = batch.answers.flatten()
            right += float((logits.argmax(-1) == answers).sum())
            loss += float(cross_entropy(logits.double(), answers, reduction="sum"))
            questions += len(answers)
        return Answered(right / questions, loss / questions)

    def _edits(self, batch: StoryBatch, predict: Predict) -> dict[str, Edit]:
        rows = self._rows(batch, self.inputs)
        widths = [self._rows(batch.first(1), [site]).shape[-1] for site in self.targets]
        parts = predict(rows[batch.mask]).split(widths, dim=-1)
        return {site: edit_rows(_put(part, batch)) for site, part in zip(self.targets, parts, strict=True)}

    def _rows(self, batch: StoryBatch, sites: Sequence[str]) -> Float[Tensor, "b t _"]:
        recorded = self.model.forward(batch.tokens, list(sites)).recorded
        return torch.cat([token_rows(recorded[site])[0].float() for site in sites], dim=-1)


def _put(rows: Float[Tensor, "n d"], batch: StoryBatch) -> Edit:
    """The edit that puts these rows where tokens are not padding."""

    def edit(activations: Tensor) -> Tensor:
        changed = activations.clone()
        changed[0, batch.mask] = rows.to(changed.dtype)
        return changed

    return edit


@torch.no_grad()
def score_replacement(stack: Stack, chance: Sequence[Stack], replacement: Replacement) -> dict[str, dict[str, object]]:
    """Accuracy and loss recovered of every member, with chance and ceiling.

    Parameters
    ----------
    stack : Stack
        Dictionaries from inputs to targets, in the model's units (see `fold`).
    chance : sequence of Stack
        Random ones of the same size, in the same units.
    replacement : Replacement
        The model and the sites.
    """
    clean, zeros = replacement.answers(), replacement.answers(_constant(torch.zeros_like(replacement.mean())))
    without = replacement.answers(_constant(replacement.mean()))

    def recovered(answered: Answered) -> float:
        return (zeros.loss - answered.loss) / (zeros.loss - clean.loss)

    def replaced(stacks: Sequence[Stack]) -> list[Answered]:
        members = [each.member(index) for each in stacks for index in range(each.members)]
        return [replacement.answers(_predicted(member)) for member in members]

    answered, random = replaced([stack]), replaced(chance)
    return {
        "values": {
            "spliced_accuracy": [each.accuracy for each in answered],
            "loss_recovered": [recovered(each) for each in answered],
        },
        "chance": {
            "spliced_accuracy": without.accuracy,
            "loss_recovered": sum(map(recovered, random)) / len(random),
        },
        "ceiling": {"spliced_accuracy": clean.accuracy, "loss_recovered": 1.0},
    }


def _constant(row: Float[Tensor, "o"]) -> Predict:
    return lambda x: row.expand(len(x), -1)


def _predicted(member: Stack) -> Predict:
    return lambda x: member.decode(member.encode(x), x)[0]
