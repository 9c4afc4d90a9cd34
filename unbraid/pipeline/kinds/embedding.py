"""An embedding: samples of a world in the plane by t-SNE, and how evenly and in how many clusters they lie.

Reads [world] (superposition), [embedding] [samples].
"""

from typing import Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from unbraid.config import JsonDict
from unbraid.pipeline.embedding_stage import EmbeddingMember, EmbedSamples, Tsne
from unbraid.pipeline.experiment import Experiment, MemberStack, Samples
from unbraid.pipeline.stage import Stage
from unbraid.worlds import Superposition


class EmbeddingExperiment(Experiment):
    """Samples of a world in the plane."""

    swept: ClassVar[tuple[str, ...]] = ("seed", "world", "embedding", "samples")
    sections: ClassVar[tuple[str, ...]] = (*("score_figures", "all_scores", "differences", "embeddings"),)

    kind: Literal["embedding"]
    """What kind of experiment this is."""
    world: Superposition = Superposition()
    """Where samples come from."""
    embedding: Tsne = Tsne()
    """How they are laid into the plane."""
    samples: Samples = Samples()
    """How many, and how they are drawn."""

    @field_validator("world", mode="before")
    @classmethod
    def check_world(cls, world: Any) -> Any:
        kind = world.get("kind", "superposition") if isinstance(world, dict) else "superposition"
        if kind != "superposition":
            raise ValueError(
                f"an embedding needs a planted truth, and world.kind is {kind!r:.60}; accepted: 'superposition'"
            )
        return world

    @model_validator(mode="after")
    def check_perplexity(self) -> Self:
        if self.embedding.perplexity >= self.samples.n:
            raise ValueError(
                f"embedding.perplexity is {self.embedding.perplexity:g} and there are {self.samples.n} samples; "
                "accepted: less than samples.n"
            )
        return self

    @property
    def leading(self) -> str:
        return "evenness"

    def replicate(self) -> str:
        return f"{self.world.seed}/{self.seed}"

    def memory(self) -> int:
        return 12 * self.samples.n * self.world.dimensions

    def shared(self) -> JsonDict:
        return {name: value for name, value in self.to_dict().items() if name not in ("seed", "samples")}

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        experiments = [m.experiment for m in stack.members]
        members = tuple(EmbeddingMember(e.samples, e.seed) for e in experiments if isinstance(e, EmbeddingExperiment))
        return (EmbedSamples(f"{stack.name} · embedding", self.world, self.embedding, members),)
