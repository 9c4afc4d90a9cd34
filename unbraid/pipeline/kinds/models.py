"""Models on stories: train transformers, with constraints on their heads, and evaluate their answers and heads.

Reads [world] (stories), [model] with [model.training] and [model.evaluation], [constraints], [checkpoints].
"""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from unbraid.config import JsonDict, task_of
from unbraid.errors import UserError
from unbraid.models import AnyModel, Transformer
from unbraid.models.constraints import Constraint, recorded_for
from unbraid.models.constraints import Enabled as EnabledConstraints
from unbraid.models.constraints import enabled as enabled_constraints
from unbraid.pipeline.experiment import Experiment, MemberStack, ModelToTry, without_per_member
from unbraid.pipeline.model_stages import EvaluateModels, ModelMember, TrainModels
from unbraid.pipeline.stage import Stage
from unbraid.pipeline.training import Checkpoints
from unbraid.worlds.stories import Stories
from unbraid.worlds.text import Text

MODELS_TOGETHER, SMALL_STEP = 16, 1 << 16
"""So many models are trained together where a batch of one has at most so many numbers (sequences × tokens × d_model).

Sixteen together took .53 of the time of one by one at 16 × 95 × 16 numbers, and 1.5 of it at 64 × 95 × 64, where each
has work enough for itself and fewer numbers stay in the cache (`make bench ONLY=models`).
"""


class TrainsModels(Experiment):
    """What every experiment has that trains models."""

    world: Stories | Text = Stories()
    """What the models are asked about."""
    model: AnyModel = Transformer()
    """The architecture; [model.training] says how it is trained, [model.evaluation] how it is evaluated."""
    constraints: EnabledConstraints = EnabledConstraints()
    """Costs on heads; the presence of a constraint's table switches it on."""
    checkpoints: Checkpoints = Checkpoints()
    """How often training logs and saves."""

    @model_validator(mode="after")
    def check_constraints(self) -> Self:
        try:
            recorded_for(self.enabled_constraints(), self.model.layers)
        except UserError as problem:
            raise ValueError(str(problem)) from None
        return self

    def enabled_constraints(self) -> dict[str, Constraint]:
        return enabled_constraints(self.constraints)

    def model_memory(self) -> int:
        """Weights, gradients, two moments; and of a batch what each layer keeps to go back: streams, hidden, patterns.

        On a text every token has logits of the whole vocabulary.
        """
        words = len(self.world.vocabulary) if isinstance(self.world, Text) else 0
        cost = self.model.cost(self.world.length)
        weights, token = cost.weights + 2 * words * self.model.width, cost.activations + 3 * words
        return 4 * (4 * weights + self.model.training.batch * self.world.length * token)

    def model_member(self, seed: int) -> ModelMember:
        return ModelMember(self.model, self.model.training, self.enabled_constraints(), seed)

    def model_to_try(self) -> ModelToTry | None:
        return ModelToTry(self.world, self.model)

    def smaller(self) -> str:
        return "layers, a smaller d_model or d_ff, or fewer sequences in a batch"


class ModelExperiment(TrainsModels):
    """Models that answer questions about stories."""

    swept: ClassVar[tuple[str, ...]] = ("seed", "precision", "world", "model", "constraints")
    sections: ClassVar[tuple[str, ...]] = (
        *("published_accuracy", "task_scores", "all_scores", "differences"),
        *("attention_and_support", "routing"),
        *("chosen_heads", "drawn_heads", "all_heads", "first_heads", "head_dependence", "layer_redundancy"),
        *("gradient_through_attention", "training_curves"),
    )

    kind: Literal["models"]
    """What kind of experiment this is."""
    world: Stories = Stories()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The stories, and the questions about them."""

    @property
    def leading(self) -> str:
        return "accuracy"

    def replicate(self) -> str:
        return f"{self.world.seed}/{self.seed}"

    def comparable(self, setting: JsonDict) -> JsonDict:
        """Accuracies on different tasks are not to be compared."""
        return task_of(setting)

    def memory(self) -> int:
        return self.model_memory()

    def most_together(self) -> int:
        numbers = self.model.training.batch * self.world.length * self.model.width
        return MODELS_TOGETHER if numbers <= SMALL_STEP else 1

    def shared(self) -> JsonDict:
        tree = self.to_dict()
        del tree["seed"]
        tree["model"]["training"] = without_per_member(self.model.training, tree["model"]["training"])
        for name, constraint in self.enabled_constraints().items():
            tree["constraints"][name] = without_per_member(constraint, tree["constraints"][name])
        return tree

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        train = TrainModels(
            name=f"{stack.name} · training",
            world=self.world,
            members=model_members(stack),
            names=stack.names,
            checkpoints=self.checkpoints,
            hardware=self.hardware,
        )
        evaluation = self.model.evaluation
        return train, EvaluateModels(f"{stack.name} · evaluation", train, evaluation, stack.shown)


def model_members(stack: MemberStack) -> tuple[ModelMember, ...]:
    experiments = [member.experiment for member in stack.members]
    return tuple(e.model_member(e.seed) for e in experiments if isinstance(e, TrainsModels))
