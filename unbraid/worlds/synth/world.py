"""SynthSAEBench's world: features with Zipf rates in a forest, fired by a copula, in superposition."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn.functional import embedding_bag

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.worlds.synth import files, planted
from unbraid.worlds.world import Batch, World

if TYPE_CHECKING:
    from unbraid.worlds.synth.sampler import SynthSampler

READ_WITH_PATH = {"kind", "path", "checksum", "dimensions", "n_features", "seed"}


class Synth(World):
    """SynthSAEBench's world (SAELens' `sae_lens.synthetic`): Zipf rates, a forest, a copula, magnitudes, a bias.

        x = Σ strength_i · direction_i  over the features i that fire  + bias

    A child fires only with its parent, at most one of exclusive siblings fires, and a child's strength is scaled by
    its parent's. The defaults are those of SynthSAEBench-16k: about 34 of 16,384 features fire in 768 dimensions. The
    same seed plants the same world in SAELens on a CPU. A model that SAELens saved is read with `path`.

    Attributes
    ----------
    directions : Tensor, shape (n_features, dimensions)
        The planted unit directions. At the default size they take a minute or two: `save` the world, and use `path`.
    bias_vector : Tensor, shape (dimensions,)
        What is added to every sample.
    probabilities : Tensor, shape (n_features,)
        The share of samples in which each feature fires; of children an estimate, to a percent or so.
    parents : integer Tensor, shape (n_features,)
        The feature without which each feature never fires, or -1.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Synth(dimensions=32, n_features=96, roots=6, depth=2)
    >>> batch = world.batch(position=0, size=100)
    >>> batch.x.shape, batch.truth.width
    (torch.Size([100, 32]), 96)
    >>> world.parents[[0, 6, 10, 95]].tolist()
    [-1, 0, 1, 22]
    """

    kind: Literal["synth"] = "synth"
    """The world's name in a configuration."""
    path: str | None = None
    """A folder with a model that SAELens or `save` wrote; then only `seed` is read besides, which draws the batches."""
    checksum: str | None = None
    """Checksum of that model, read from the folder; a run refuses to go on with another."""
    dimensions: int = Field(default=768, ge=1, le=1 << 20)
    """d, the number of dimensions of the inputs; more make the planted directions more nearly orthogonal."""
    n_features: int = Field(default=16_384, ge=1, le=1 << 24)
    """Number of planted features; more in the same number of dimensions interfere more."""
    max_probability: float = Field(default=0.4, gt=0, le=1)
    """Rate of the most frequent feature."""
    min_probability: float = Field(default=5e-4, gt=0, le=1)
    """Rate of the least frequent feature."""
    exponent: float = Field(default=0.5, gt=0)
    """Rates fall with rank^-exponent between the two; higher makes most features rare."""
    roots: int = Field(default=128, ge=0)
    """Number of trees; 0 for no hierarchy."""
    branching: int = Field(default=4, ge=2)
    """Children of each parent."""
    depth: int = Field(default=3, ge=1)
    """Levels below a root; trees stop growing when there are no features left."""
    exclusive: float = Field(default=1.0, ge=0, le=1)
    """Share of parents whose children exclude each other: at most one fires."""
    compensate: bool = True
    """Whether children are drawn more often, so that they fire about as often as their rank says."""
    scale_children: bool = True
    """Whether a child's strength is multiplied by its parent's, relative to the parent's mean."""
    rank: int = Field(default=25, ge=0)
    """Number of factors of the copula; 0 draws features independently."""
    correlation_scale: float = Field(default=0.1, ge=0)
    """Deviation of each entry of the factors; higher makes features fire together, or apart, more."""
    first_magnitude: float = Field(default=5.0, gt=0)
    """Mean magnitude of the most frequent feature."""
    last_magnitude: float = Field(default=4.0, gt=0)
    """Mean magnitude of the least frequent feature; those between lie on a line."""
    deviation_mean: float = 0.5
    """Each feature's magnitude has its own deviation, |N(deviation_mean, deviation_std²)|: the mean of that normal."""
    deviation_std: float = Field(default=0.5, ge=0)
    """Its standard deviation; at 0 all features vary alike."""
    orthogonal_steps: int = Field(default=100, ge=0)
    """Steps of Adam that turn directions away from each other; more make them overlap less."""
    orthogonal_rate: float = Field(default=3e-4, gt=0)
    """Rate of those steps."""
    bias: float = Field(default=0.5, ge=0)
    """Length of a vector that is added to every sample."""
    seed: int = Field(default=0, ge=0, lt=1 << 62)
    """Another seed plants another world and draws other batches; with `path`, other batches of the same world."""

    @model_validator(mode="before")
    @classmethod
    def check_path(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("path"), str):
            return data
        cls.check_known(data)
        for name in data.keys() - READ_WITH_PATH:
            if data[name] != cls.model_fields[name].default:
                raise UserError(f"world.path and world.{name} were both given; accepted: path and seed alone")
        folder = Path(data["path"])
        config = files.read_config(folder)
        found = {"n_features": config["num_features"], "dimensions": config["hidden_dim"]}
        found["checksum"] = files.checksum_of(folder)
        for name, value in found.items():
            if data.get(name, value) != value:
                raise UserError(
                    f"{folder} holds a model with {name} {value!r}, and {data[name]!r:.60} was asked for; accepted: "
                    f"a model of that {name}, or world.{name} left out"
                )
        return {**data, **found}

    @model_validator(mode="after")
    def check_rates(self) -> Self:
        if not self.min_probability < self.max_probability:
            raise ValueError(
                f"min_probability is {self.min_probability:g}; accepted: below max_probability, "
                f"{self.max_probability:g}"
            )
        if self.checksum is not None and self.path is None:
            raise ValueError("checksum was given without a path; accepted: both, or neither")
        return self

    @property
    def scored_by_latent(self) -> bool:
        return True

    @property
    def directions(self) -> Float[Tensor, "n d"]:
        return self._planted.directions

    @property
    def bias_vector(self) -> Float[Tensor, "d"]:
        return self._planted.bias

    @cached_property
    def probabilities(self) -> Float[Tensor, "n"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.from_numpy(self._sampler.marginals(self.seed if self.path is None else 0))

    @property
    def parents(self) -> Int[Tensor, "n"]:
        return torch.from_numpy(self._planted.forest.parents)

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        cells, strengths = self._sampler.fire(stream(self.seed, split, position), size)
        starts = np.searchsorted(cells.samples, np.arange(size))
        lists = [torch.from_numpy(array) for array in (cells.features, starts, strengths)]
        x = embedding_bag(lists[0], self.directions, lists[1], mode="sum", per_sample_weights=lists[2])
        codes = Codes.of_cells(cells.samples, cells.features, strengths, starts, self.n_features)
        biased = bool(self.bias_vector.any())
        return Batch(x.add_(self.bias_vector) if biased else x, codes, exact=not biased)

    def save(self, folder: str | Path) -> None:
        """Write the world as SAELens writes a synthetic model, for `SyntheticModel.load_from_disk` or for `path`.

        Parameters
        ----------
        folder : str or Path
            Where to; made if it is not there.

        Examples
        --------
        >>> import tempfile, unbraid as ub
        >>> world = ub.Synth(dimensions=16, n_features=40, roots=4, depth=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     world.save(folder)
        ...     again = ub.Synth(path=folder)
        ...     bool((again.batch(0, 50).x == world.batch(0, 50).x).all())
        True
        """
        if self.path is not None:
            raise UserError(f"this world was read from {self.path}; accepted: a world made from settings")
        files.save(Path(folder), self._saved_config(), self._planted)

    def _saved_config(self) -> JsonDict:
        """The settings in SAELens' words."""
        hierarchy = {
            "total_root_nodes": self.roots,
            "branching_factor": self.branching,
            "max_depth": self.depth,
            "mutually_exclusive_portion": self.exclusive,
            "mutually_exclusive_min_depth": 0,
            "mutually_exclusive_max_depth": None,
            "compensate_probabilities": self.compensate,
            "scale_children_by_parent": self.scale_children,
        }
        zipf = {"exponent": self.exponent, "max_prob": self.max_probability, "min_prob": self.min_probability}
        mean = {"start": self.first_magnitude, "end": self.last_magnitude, "generator_name": "linear"}
        folded = {"mean": self.deviation_mean, "std": self.deviation_std, "min_value": None, "max_value": None}
        steps = {"num_steps": self.orthogonal_steps, "lr": self.orthogonal_rate, "chunk_size": 1024}
        copula = {"rank": self.rank, "correlation_scale": self.correlation_scale, "seed": None}
        return {
            "num_features": self.n_features,
            "hidden_dim": self.dimensions,
            "firing_probability": {**zipf, "generator_name": "zipfian"},
            "hierarchy": hierarchy if self.roots else None,
            "orthogonalization": steps if self.orthogonal_steps else None,
            "correlation": copula if self.rank else None,
            "std_firing_magnitudes": {**folded, "generator_name": "folded_normal"}
            if self.deviation_std
            else abs(self.deviation_mean),
            "mean_firing_magnitudes": mean,
            "bias": self.bias,
            "dtype": "float32",
            "seed": self.seed,
        }

    @cached_property
    def _planted(self) -> planted.Planted:
        if self.path is not None:
            return files.load(Path(self.path))
        n, seed = self.n_features, self.seed
        forest = planted.Forest.grow(n, self.roots, self.branching, self.depth)
        exclusive = planted.draw_exclusive(forest, self.exclusive, seed + 3)
        scaling = (forest.sizes > 0) & self.scale_children
        forest = planted.Forest(forest.parents, exclusive, scaling)
        base = planted.zipf_rates(n, self.exponent, self.max_probability, self.min_probability)
        drawn = forest.compensated(base) if self.compensate else base
        drawn = drawn.astype(np.float32).astype(float)  # as a file keeps them
        factors, own = planted.draw_factors(n, self.rank, self.correlation_scale, seed + 4)
        mean = self.first_magnitude + (self.last_magnitude - self.first_magnitude) * np.linspace(0, 1, n)
        std = planted.folded_normal(n, self.deviation_mean, self.deviation_std, seed + 1).astype(float)
        steps = self.orthogonal_steps, self.orthogonal_rate
        return planted.Planted(
            drawn, forest, factors, own, mean, std,
            *planted.draw_directions(n, self.dimensions, self.bias, *steps, seed),
        )  # fmt: skip

    @cached_property
    def _sampler(self) -> "SynthSampler":
        from unbraid.worlds.synth.sampler import SynthSampler  # numba takes a while, and only these worlds ask

        return SynthSampler(self._planted)
