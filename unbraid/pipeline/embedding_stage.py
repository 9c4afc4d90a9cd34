"""Embed samples in the plane, and score how evenly and in how many clusters the points lie.

Chance is the same picture of the same samples with every feature's strengths dealt anew among them: each feature fires
as often and as strongly as before, and independently of the others.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from unbraid.axes import Float
from unbraid.config import Config, JsonDict
from unbraid.metrics import clustering
from unbraid.pipeline.experiment import Samples
from unbraid.pipeline.stage import Context, Stage
from unbraid.randomness import stream
from unbraid.storage.files import Arrays, write_arrays, write_json
from unbraid.worlds import Superposition

SECONDS_PER_SAMPLE = 8e-3
"""Of two embeddings, the samples' and the shuffled ones'; a guess, for the time left."""


class Tsne(Config):
    """t-SNE by scikit-learn, with its defaults but for what is set here; starts from two principal components."""

    kind: Literal["tsne"] = "tsne"
    """Which embedding."""
    perplexity: float = Field(default=30.0, gt=0)
    """About how many neighbours a point has. Raising it shows coarser structure."""
    iterations: int = Field(default=1000, ge=250)
    """Steps of gradient descent."""

    def points(self, x: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
        from sklearn.manifold import TSNE  # here, because it takes a second to import

        search = TSNE(
            perplexity=self.perplexity,
            init="pca",
            max_iter=self.iterations,
            random_state=int(stream(seed, "embedding").integers(1 << 32)),
            n_jobs=1,
        )
        return np.asarray(search.fit_transform(x), dtype=np.float32)


@dataclass(frozen=True)
class EmbeddingMember:
    """What decides one picture, beside world and method."""

    samples: Samples
    seed: int

    def to_dict(self) -> JsonDict:
        return {"samples": self.samples.to_dict(), "seed": self.seed}


@dataclass(frozen=True)
class EmbedSamples(Stage):
    """Embed the samples of every member of one group."""

    kind = "embedding"

    world: Superposition
    embedding: Tsne
    members: tuple[EmbeddingMember, ...]

    @property
    def config(self) -> JsonDict:
        members = [member.to_dict() for member in self.members]
        return {"world": self.world.to_dict(), "embedding": self.embedding.to_dict(), "members": members}

    @property
    def steps(self) -> int:
        return len(self.members)

    @property
    def seconds_per_step(self) -> float:
        return SECONDS_PER_SAMPLE * sum(member.samples.n for member in self.members) / len(self.members)

    def run(self, context: Context) -> None:
        tables: Arrays = {"probabilities": self.world.probabilities.numpy()}
        values: dict[str, list[float]] = {}
        chance: dict[str, list[float]] = {}
        for position, member in enumerate(self.members):
            context.progress.status(f"{self.name} {position + 1} of {len(self.members)}")
            x, strengths = self._samples(member)
            points = self.embedding.points(x, member.seed)
            shuffled_x, shuffled = self._shuffled(member, x, strengths)
            null = self.embedding.points(shuffled_x, member.seed)
            tables |= {f"points.{position}": points, f"null.{position}": null}
            tables[f"strongest.{position}"] = np.where(strengths.any(1), strengths.argmax(1), -1)
            for scores, drawn, fired in ((values, points, strengths), (chance, null, shuffled)):
                for name, value in statistics(drawn, (fired == 0).all(1), member.seed).items():
                    scores.setdefault(name, []).append(value)
            context.progress.advance(position + 1)
        write_arrays(context.folder / "tables.safetensors", tables)
        write_json(context.folder / "scores.json", {"values": values, "chance": chance, "ceiling": {}})

    def _samples(self, member: EmbeddingMember) -> tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b n"]]:
        batches = list(member.samples.batches(self.world))
        strengths = torch.cat([batch.truth.to_dense()[0] for batch in batches])
        return torch.cat([batch.x for batch in batches]).numpy(), strengths.numpy()

    def _shuffled(
        self, member: EmbeddingMember, x: Float[np.ndarray, "b d"], strengths: Float[np.ndarray, "b n"]
    ) -> tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b n"]]:
        """Independent features with the same rates and strengths; what is not features, the noise, stays."""
        shuffled = stream(member.seed, "dealt").permuted(strengths, axis=0)
        return x + (shuffled - strengths) @ self.world.directions.numpy(), shuffled


def statistics(points: Float[np.ndarray, "b 2"], empty: np.ndarray, seed: int) -> dict[str, float]:
    """How even all points lie; what clusters those that are not empty form; and the share that is empty."""
    rng, some = stream(seed, "uniform points"), points[~empty]
    amount, share = clustering.clusters(some)
    return {
        "evenness": clustering.evenness(points, rng),
        "hopkins": clustering.hopkins(some, rng),
        "clusters": float(amount),
        "clustered": share,
        "empty": float(empty.mean()),
    }
