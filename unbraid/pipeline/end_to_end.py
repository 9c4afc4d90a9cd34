"""Whole stories with the transformer that answers them, for dictionaries that are trained through it.

What the model says is asked at its questions.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries.downstream import Downstream, Said
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.training.sequences import check_rows, inputs_with, output_normalization
from unbraid.models import Models
from unbraid.models.models import edit_rows, token_rows
from unbraid.pipeline.capture_model import ActivationsConfig, captured_stories
from unbraid.worlds import Activations
from unbraid.worlds.stories import Stories, StoryBatch

LATER = re.compile(r"blocks\.(\d+)\.hook_resid_post")


@dataclass(frozen=True)
class StorySequences:
    """Whole stories that a model has read, with about `size` rows a batch."""

    world: Activations
    model: Models
    stories: Stories
    capture: ActivationsConfig
    size: int
    _checked: list[bool] = field(default_factory=list)

    @property
    def target(self) -> str:
        """Where reconstructions stand."""
        return (*self.capture.inputs, *self.capture.targets)[-1]  # of one site and one target at most: `sequences`

    @property
    def later(self) -> list[str]:
        """The residual stream behind the layers after the target's."""
        layer = int(self.target.split(".")[1])
        hooks = ((hook, LATER.fullmatch(hook)) for hook in self.model.settings.hooks())
        return [hook for hook, found in hooks if found is not None and int(found[1]) > layer]

    def inputs(self, position: int) -> Inputs:
        """The batch of a step."""
        drawn = self.world.sequences(position, self.size)
        numbers = np.array([documents[0] for documents in drawn.documents])
        downstream = StoryDownstream(self, captured_stories(self.stories, numbers))
        if not self._checked:
            stored = drawn.x if drawn.target is None else drawn.target
            check_rows(downstream.at_target(), stored, self.world.path)
            self._checked.append(True)
        return inputs_with(self.world, drawn, downstream)


@dataclass(frozen=True)
class StoryDownstream(Downstream):
    """A model of stories behind a site, on one batch."""

    source: StorySequences
    batch: StoryBatch

    @cached_property
    def right(self) -> Int[Tensor, "n"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.batch.answers.flatten()

    def run(self, rows: Float[Tensor, "m b o"] | None) -> Said:
        members = 1 if rows is None else len(rows)
        tokens, mask, asked = (t.repeat(members, 1) for t in (self.batch.tokens, self.batch.mask, self.batch.asked))
        edits = {}
        if rows is not None:
            inside = output_normalization(self.source.world).undo(rows.flatten(0, 1))

            def put(activations: Tensor) -> Tensor:
                changed = activations.clone()
                changed[0, mask] = inside.to(changed.dtype)
                return changed

            edits = {self.source.target: edit_rows(put)}
        output = self.source.model.forward(tokens, self.source.later, edit=edits)
        logits = self.source.model.read(output, asked)[0]
        later = [output.recorded[hook][0][mask].unflatten(0, (members, -1)) for hook in self.source.later]
        return Said(logits.unflatten(0, (members, -1)).flatten(1, 2), later)

    @torch.no_grad()
    def at_target(self) -> Float[Tensor, "b o"]:
        """What the model has at the target on its own."""
        recorded = self.source.model.forward(self.batch.tokens, [self.source.target]).recorded
        return token_rows(recorded[self.source.target])[0][self.batch.mask]
