"""Picture the samples of one group, and score how evenly and in how many clusters their points lie.

Chance is the same picture of the same samples with every feature's strengths dealt anew among them: each feature fires
as often and as strongly as before, and independently of the others.
"""

import numpy as np
import torch

from unbraid.axes import Float
from unbraid.errors import Refusal
from unbraid.files import Arrays, write_arrays, write_json
from unbraid.metrics import clustering
from unbraid.randomness import stream
from unbraid.sweeps.grid import Member
from unbraid.sweeps.group_work import GroupWork


class EmbeddingWork(GroupWork):
    def do_all(self) -> None:
        tables: Arrays = {"probabilities": self.world.probabilities.numpy()}
        values: dict[str, list[float]] = {}
        chance: dict[str, list[float]] = {}
        for position, member in enumerate(self.group):
            self.watcher.stage(f"picture {position + 1} of {len(self.group)} in group {self.index + 1}")
            x, strengths = self._samples(member)
            points = self._points(member, x)
            dealt = self._dealt(member, x, strengths)
            null = self._points(member, dealt[0])
            tables |= {f"points.{position}": points, f"null.{position}": null}
            tables[f"strongest.{position}"] = np.where(strengths.any(1), strengths.argmax(1), -1)
            for kept, drawn, of in ((values, points, strengths), (chance, null, dealt[1])):
                for name, value in statistics(drawn, (of == 0).all(1), member.experiment.seed).items():
                    kept.setdefault(name, []).append(value)
            self.watcher.advance(self.index, position + 1)
        write_arrays(self.folder / "tables.safetensors", tables)
        write_json(self.folder / "scores.json", {"values": values, "chance": chance, "ceiling": {}})

    def _samples(self, member: Member) -> tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b n"]]:
        batches = list(member.experiment.data.batches(self.world))
        strengths = torch.cat([batch.truth.to_dense()[0] for batch in batches])
        return torch.cat([batch.x for batch in batches]).numpy(), strengths.numpy()

    def _dealt(
        self, member: Member, x: Float[np.ndarray, "b d"], strengths: Float[np.ndarray, "b n"]
    ) -> tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b n"]]:
        """Independent features with the same rates and strengths; what is not features, the noise, stays."""
        dealt = stream(member.experiment.seed, "dealt").permuted(strengths, axis=0)
        return x + (dealt - strengths) @ self.world.directions.numpy(), dealt

    def _points(self, member: Member, x: Float[np.ndarray, "b d"]) -> Float[np.ndarray, "b 2"]:
        one = member.experiment
        assert one.embedding is not None
        if one.embedding.perplexity >= len(x):
            raise Refusal(
                f"embedding.perplexity is {one.embedding.perplexity:g} and there are {len(x)} samples; accepted: less "
                "than data.samples"
            )
        return one.embedding.points(x, one.seed)


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
