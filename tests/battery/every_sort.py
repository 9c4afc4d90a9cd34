"""A plugin of every sort, as small as it can be."""

import dataclasses
import os
from typing import ClassVar, Literal

import numpy as np
import torch

import unbraid as ub
from unbraid.battery import Example
from unbraid.models.attention.attention import HeadOutputs
from unbraid.pipeline.experiment import Experiment
from unbraid.pipeline.stage import Stage
from unbraid.randomness import stream
from unbraid.storage.files import write_arrays, write_json
from unbraid.worlds import Batch
from unbraid.worlds.firing import Cells, Firing, Sampler


class Shrink(ub.Mechanism):
    """Every code is lowered."""

    weight: float = 0.5

    def encode(self, codes, memory, stack, signals):
        return ub.Codes(codes.features, codes.values * (1 - self.weight / 2), codes.width)


class Squared(ub.Activation):
    """The square of what is positive."""

    kind: Literal["squared"] = "squared"

    def codes(self, pre, weights):
        return ub.Codes.dense(pre.relu().square())


class Alternating(Firing):
    """Even features fire in some samples, odd ones in the others."""

    kind: Literal["alternating"] = "alternating"

    def check(self, population):
        population.check_rate(2 * population.marginals()[0])

    def sampler(self, population):
        return AlternatingSampler(population)


@dataclasses.dataclass(frozen=True)
class AlternatingSampler(Sampler):
    population: object

    def probabilities(self):
        return self.population.marginals()

    def fire(self, rng, size):
        side = rng.integers(2, size=size)[:, None]
        mine = np.arange(self.population.n_features) % 2 == side
        fired = mine & (rng.random(mine.shape) < 2 * self.population.marginals())
        return Cells(*np.nonzero(fired))


class OneHot(ub.World):
    """One planted feature a sample, at strength one, along an axis."""

    kind: Literal["one_hot"] = "one_hot"
    dimensions: int = 6
    seed: int = 0

    @property
    def directions(self):
        order = stream(self.seed, "axes").permutation(self.dimensions)
        return torch.eye(self.dimensions)[order]

    @property
    def probabilities(self):
        return torch.full((self.dimensions,), 1 / self.dimensions).double()

    def batch(self, position, size, split="train"):
        chosen = torch.from_numpy(stream(self.seed, split, position).integers(self.dimensions, size=size))
        truth = torch.nn.functional.one_hot(chosen, self.dimensions).float()[None]
        return Batch(self.directions[chosen], ub.Codes.dense(truth), exact=True)


class SmallOutput(ub.Constraint):
    """What heads write is small."""

    def cost(self, written, mask):
        return (written.square().sum(-1).mean(2) * mask).sum((1, 2)) / mask.sum()


class Sharper(ub.Attention):
    """Softmax at another temperature."""

    kind: Literal["sharper"] = "sharper"
    temperature: float = 0.5

    def mix(self, inputs):
        scores = inputs.q @ inputs.k.mT * inputs.q.shape[-1] ** -0.5 / self.temperature
        pattern = (scores + inputs.mask.additive().to(scores.dtype)).softmax(-1)
        return HeadOutputs(pattern @ inputs.v, recorded={"hook_pattern": pattern})


class MeanStrength(ub.DictionaryMetric):
    """How strongly features fire."""

    label: ClassVar[str] = "Mean strength"
    sentence: ClassVar[str] = "mean code of what fires"

    def measure(self, measured):
        codes = measured.codes
        return codes.l1().double().sum(-1) / codes.l0().double().sum(-1)


@dataclasses.dataclass(frozen=True)
class Toss(Stage):
    kind = "toss"
    side_by_side = True

    seeds: tuple[int, ...]
    coin: str

    @property
    def config(self):
        return {"seeds": self.seeds, "coin": self.coin}

    def run(self, context):
        heads = [float(stream(seed, self.coin).random(1000).mean()) for seed in self.seeds]
        write_arrays(
            context.folder / "tables.safetensors", {"heads": np.array(heads), "process": np.array(os.getpid())}
        )
        write_json(
            context.folder / "scores.json", {"values": {"heads": heads}, "chance": {"heads": 0.5}, "ceiling": {}}
        )


class CoinExperiment(Experiment):
    """Tosses a coin."""

    swept: ClassVar[tuple[str, ...]] = ("seed", "name")
    sections: ClassVar[tuple[str, ...]] = ("score_figures", "all_scores")

    kind: Literal["coin"] = "coin"
    name: str = "penny"

    @property
    def leading(self):
        return "heads"

    def replicate(self):
        return str(self.seed)

    def shared(self):
        return {"name": self.name}

    def memory(self):
        return 1000

    def metric_facts(self):
        return {"heads": {"label": "Heads", "sentence": "the share of heads", "better": "higher", "format": ".2f"}}

    def stages(self, stack):
        return (Toss(f"{stack.name} · tossing", tuple(member.experiment.seed for member in stack.members), self.name),)


EXAMPLES = {
    "one_hot": [Example({"dimensions": 5}), Example({"seed": 3})],
    "coin": [Example({"sweep": {"name": ["penny", "dime"], "seed": [0, 1, 2]}})],
}
