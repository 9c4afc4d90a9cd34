"""Fit and score the baselines of one group, with what is on disk taken as already done."""

import numpy as np
import torch

from unbraid.axes import Int, Tensor
from unbraid.dictionaries.baselines import Fitted
from unbraid.files import Arrays, write_arrays, write_json
from unbraid.scoring import Scores, score, shown_cosines
from unbraid.sweeps.factor_work import tell_factors
from unbraid.sweeps.grid import Member
from unbraid.sweeps.group_work import GroupWork


class BaselineWork(GroupWork):
    def do_all(self) -> None:
        found: list[tuple[Fitted, Scores, Tensor]] = []
        for position, member in enumerate(self.group):
            self.watcher.advance(self.index, position)
            fitted, seen = self._fit(member)
            scores = score(fitted, self.world, member.experiment.scoring.samples)
            found.append((fitted, scores, seen))
            line = {"step": position + 1, "terms": {}}
            line |= {name: scores.values[name].tolist() for name in ("mmcs", "l0") if name in scores.values}
            self.watcher.show(self.index, line)
        self._write(*zip(*found, strict=True))

    def _fit(self, member: Member) -> tuple[Fitted, Int[Tensor, "n"]]:
        """The baseline on its data, and in how many of the samples each true feature fired."""
        one = member.experiment
        assert one.baseline is not None
        batches = list(one.data.batches(self.world))
        seen = torch.stack([batch.truth.counts()[0] for batch in batches]).sum(0)
        baseline = one.baseline.model_copy(update={"seed": one.seed})
        return baseline.fit(torch.cat([batch.x for batch in batches])), seen

    def _write(self, fitted: tuple[Fitted, ...], scores: tuple[Scores, ...], seen: tuple[Tensor, ...]) -> None:
        directions = {f"directions.{place}": one.directions[0].numpy() for place, one in enumerate(fitted)}
        write_arrays(self.folder / "weights.safetensors", directions)
        tables: Arrays = {name: _padded([one.tables[name][0].numpy() for one in scores]) for name in scores[0].tables}
        samples = [member.experiment.data.samples for member in self.group]
        tables["seen"] = np.stack([one.numpy() / amount for one, amount in zip(seen, samples, strict=True)])
        tables["probabilities"] = self.world.probabilities.numpy()
        if self.world.is_planted:
            tables["cosines.0"] = shown_cosines(self.world, fitted[0].directions[0], scores[0].tables["match"][0])
        write_arrays(self.folder / "tables.safetensors", tables)
        values = {name: [float(one.values[name][0]) for one in scores] for name in scores[0].values}
        values["directions"] = [float(one.features) for one in fitted]
        bounds = {
            "chance": {name: [one.chance[name] for one in scores] for name in scores[0].chance},
            "ceiling": {name: [one.ceiling[name] for one in scores] for name in scores[0].ceiling},
        }
        told = tell_factors(fitted, self.world, self.group, self.folder)
        bounds = {"chance": bounds["chance"] | told.chance, "ceiling": bounds["ceiling"] | told.ceiling}
        write_json(self.folder / "scores.json", {"values": values | told.values, **bounds})


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    """One row a member; where one is shorter because its data allow fewer directions, NaN after its end."""
    longest = max(len(row) for row in rows)
    if all(len(row) == longest for row in rows):
        return np.stack(rows)
    return np.stack([np.pad(row.astype(float), (0, longest - len(row)), constant_values=np.nan) for row in rows])
