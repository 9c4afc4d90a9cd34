"""Language models on a text: train transformers to predict the next token, evaluate predictions and heads.

Reads [world] (text), [model] with [model.training] and [model.evaluation], [constraints], [checkpoints].
"""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from unbraid.config.sweep import label
from unbraid.pipeline.experiment import MemberStack
from unbraid.pipeline.kinds.models import ModelExperiment, model_members
from unbraid.pipeline.model_stages import EvaluateTextModels, TrainTextModels
from unbraid.pipeline.stage import Stage
from unbraid.worlds.text import Text


class LanguageModelExperiment(ModelExperiment):
    """Models that predict the next token of a text."""

    sections: ClassVar[tuple[str, ...]] = (
        *("perplexity", "all_scores", "differences"),
        *("head_uniformity", "diversity", "head_maps", "chosen_head_maps", "training_curves", "text_samples"),
    )

    kind: Literal["language_models"]  # pyright: ignore[reportIncompatibleVariableOverride]
    """What kind of experiment this is."""
    world: Text = Text()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The text."""

    @model_validator(mode="after")
    def check_causal(self) -> Self:
        if not (self.model.causal and self.model.readout == "question"):
            seen = "model.readout is 'mean'" if self.model.causal else "model.causal is false"
            raise ValueError(
                f"{seen}, so that a token would see the next one, which it is asked for; accepted on a text: causal = "
                "true and readout = 'question'"
            )
        return self

    @property
    def leading(self) -> str:
        return "perplexity"

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        train = TrainTextModels(
            name=f"{stack.name} · training",
            world=self.world,
            members=model_members(stack),
            names=stack.names,
            checkpoints=self.checkpoints,
            setting="" if stack.index else label(stack.members[0].setting),
        )
        evaluation = self.model.evaluation
        return train, EvaluateTextModels(f"{stack.name} · evaluation", train, evaluation, stack.shown)
