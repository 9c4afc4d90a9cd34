"""Configuration of a gauge-equivariant transformer, and its heads as irreps of SO(3).

Irreps are written as e3nn writes them: "5x0e + 3x1e + 1x2e" is nine heads, of width 1, 3 and 5. Parity plays no part:
frames only rotate. The source study's own way, [["ℓ0", 5, 1], ["ℓ1", 3, 3]], means the same. Each bug of the published
code is available as an option.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from unbraid.config import Config
from unbraid.models.config import CostModel, ModelConfig

HIGHEST_DEGREE = 11
"""The highest degree that e3nn has tables for."""
REFERENCE_WIDTH = 11
"""The published temperature of all heads is kappa times d_model over this."""
PUBLISHED_RATES = {
    "embed.mean": 4.0,
    "embed.spread": 0.2,
    "embed.base": 4.0,
    "free.": 4.0,
    "positions": 4.0,
    "answer": 4.0,
}
"""The published rates over that of frames and of attention (.05); what has no table of its own went with the output."""
EMBEDDING_HOOKS = ("embed.hook_mean", "embed.hook_variance", "embed.hook_frame")
LAYER_HOOKS = (
    *("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_resid_post"),
    *("attn.hook_z", "attn.hook_result", "attn.hook_pattern", "attn.hook_kl"),
)


@dataclass(frozen=True)
class Family:
    """Heads of one degree ℓ, side by side: each is 2ℓ+1 wide."""

    degree: int
    heads: int
    first: int
    """The first of its columns among all."""

    @property
    def width(self) -> int:
        """Of one head."""
        return 2 * self.degree + 1

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.heads * self.width)


@lru_cache(maxsize=64)
def families(irreps: str, width: int | None = None) -> tuple[Family, ...]:
    """The heads of a specification; where `width` is more than they take, scalar heads fill what is left."""
    terms = _parsed(irreps)
    taken = sum(heads * (2 * degree + 1) for heads, degree in terms)
    if not terms:
        raise ValueError(f"irreps is '{irreps}', which has no head; accepted: for example 5x0e + 3x1e + 1x2e")
    if width is not None and taken > width:
        raise ValueError(f"irreps '{irreps}' take {taken} dimensions and d_model is {width}; accepted: at most {width}")
    if width is not None and taken < width:
        terms = [*terms, (width - taken, 0)]
    parsed: list[Family] = []
    for heads, degree in terms:
        parsed.append(Family(degree, heads, parsed[-1].columns.stop if parsed else 0))
    return tuple(parsed)


class FreeEnergy(Config):
    """Belief updates of a `Gauge` model in place of a feed-forward layer: natural-gradient steps on a free energy.

        F = prior · KL(q ‖ p) + alignment · Σ_j β_ij KL(q_i ‖ q_j)

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Gauge(free_energy=ub.FreeEnergy(iterations=2)).free_energy.step
    0.1
    """

    iterations: int = Field(default=1, ge=1, le=1000)
    """Gradient steps in a layer; time grows with it."""
    prior: float = Field(default=1.0, ge=0)
    """Weight α of the divergence from the prior; raising it keeps beliefs nearer to what their tokens say."""
    alignment: float = Field(default=1.0, ge=0)
    """Weight λ of the divergence from attended beliefs; raising it draws tokens together."""
    step: float = Field(default=0.1, gt=0)
    """Initial step size of means, which is learned; raising it moves beliefs farther in a step."""
    trust: float = Field(default=2.0, gt=0)
    """Longest step of a mean, in standard deviations of its belief; raising it allows larger steps."""
    covariance_rate: float = Field(default=0.05, ge=0)
    """Step size of covariances as a share of that of means; raising it moves them faster. 0: they stay."""
    covariance_trust: float = Field(default=0.1, gt=0)
    """Longest relative step of a covariance; raising it allows larger steps."""
    frame_step: float = Field(default=0.0, ge=0)
    """Step size of frames, in radians per unit of gradient; raising it turns them farther. 0: they stay."""
    sign: Literal["corrected", "published"] = "corrected"
    """Gradients as derived; as published, that of β has the wrong sign and covariances take a quarter of their step."""
    prior_covariance: Literal["prior", "current"] = "prior"
    """Which covariance the prior has: its own, or as published the belief's."""


class Gauge(ModelConfig):
    """A gauge-equivariant transformer: tokens hold Gaussian beliefs in local frames; heads are irreps of SO(3).

    Attention weights are softmax(-KL / temperature) between beliefs, after rotation into a common frame. A head of
    degree ℓ is 2ℓ+1 wide; `irreps` lists heads as e3nn writes them. Each bug of the published code is available as an
    option.

    Attributes
    ----------
    width : int
        Dimensions of all heads together.
    head_labels : tuple of str
        The degree of each head.

    Examples
    --------
    >>> import unbraid as ub
    >>> config = ub.Gauge(irreps="2x0e + 1x1e")
    >>> config.width, config.head_labels
    (5, ('ℓ0', 'ℓ0', 'ℓ1'))
    """

    kind: Literal["gauge"] = "gauge"
    """The architecture's name in a configuration."""
    irreps: str = "5x0e + 3x1e + 1x2e"
    """Heads of a layer by degree, as e3nn writes them; more and higher ones make beliefs wider."""
    d_model: int | None = Field(default=None, ge=1, le=1 << 16)
    """Dimensions of all heads together, filled up with scalar heads; None: as many as `irreps` take."""
    layers: int = Field(default=1, ge=1, le=1024)
    """Number of layers; time and memory grow with it."""
    kappa: float = Field(default=1.0, gt=0)
    """Temperature of attention; lower is sharper."""
    temperature: Literal["head", "shared", "learned"] = "head"
    """head: kappa · √width. shared: kappa · d_model/11 for all heads, as published. learned: begins as `head`."""
    covariance: Literal["exact", "diagonal"] = "exact"
    """How covariances are transported: whole, or as published only their diagonal."""
    exponential: Literal["exact", "taylor"] = "exact"
    """How rotations are computed: exactly, or as published by a series to the fourth order."""
    transport: Literal["frames", "identity"] = "frames"
    """How a belief reaches another token: turned from frame to frame, or as it stands (Ω = 1 for every pair)."""
    priors: Literal["free", "gauge_fixed"] = "free"
    """Beliefs of tokens: one each, or one for all in each token's frame (then every KL is 0 but for positions)."""
    init: Literal["configured", "published"] = "configured"
    """How weights begin: with the deviations below, or as published with .02 whatever is configured."""
    mean_deviation: float = Field(default=1.0, gt=0)
    """Standard deviation of tokens' means before training; raising it begins with sharper attention."""
    frame_deviation: float = Field(default=0.1, ge=0)
    """Standard deviation of tokens' frames before training, in radians; raising it begins with more varied frames."""
    positions: Literal["both", "frame", "mean", "none"] = "both"
    """What of a token its position changes: its frame, its mean, both or neither."""
    alibi: bool = False
    """Whether scores lose a slope times the distance between tokens, as `Transformer` does by default."""
    self_attention: bool = True
    """Whether a token attends to itself."""
    residual: bool = True
    """Whether the output of heads is added to a token's mean; false: it replaces the mean."""
    evolve_covariance: bool = True
    """Whether covariances are replaced by those of the attended mixture."""
    free_energy: FreeEnergy | None = None
    """Belief updates after attention; None: no updates."""
    alignment: float = Field(default=0.0, ge=0)
    """Weight λ_β of Σ β KL in the loss; raising it makes beliefs alike."""
    prior: float = Field(default=0.0, ge=0)
    """Weight α of KL(q ‖ p) in the loss; raising it keeps beliefs near their priors."""
    rates: Literal["one", "published"] = "one"
    """Learning rates: one for all weights, or a larger one for some, as published."""

    renamed: ClassVar[dict[str, str]] = {**ModelConfig.renamed, "nearness": "alibi"}
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {"init": {"spread": "configured"}}

    @field_validator("irreps", mode="before")
    @classmethod
    def write_as_e3nn_does(cls, irreps: Any) -> Any:
        return e3nn_notation(irreps)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        families(self.irreps, self.d_model)  # refuses what does not parse or does not fit
        if self.covariance == "diagonal" and self.free_energy is not None:
            raise ValueError(
                "covariance is 'diagonal', which is of pairs, and free_energy needs one of tokens; accepted: "
                "covariance = 'exact', or no free_energy"
            )
        if self.transport == "identity" and self.free_energy is not None and self.free_energy.frame_step > 0:
            raise ValueError(
                f"transport is 'identity', which has no frames, and free_energy.frame_step is "
                f"{self.free_energy.frame_step:g}; accepted: transport = 'frames', or frame_step = 0"
            )
        return self

    @property
    def families(self) -> tuple[Family, ...]:
        return families(self.irreps, self.d_model)

    @property
    def by_pairs(self) -> bool:
        """Whether attention has to go over pairs of tokens: the published approximations do not factor."""
        return self.covariance != "exact" or self.exponential != "exact"

    @property
    def width(self) -> int:
        """Of all heads together."""
        return self.families[-1].columns.stop

    @property
    def head_labels(self) -> tuple[str, ...]:
        return tuple(f"ℓ{family.degree}" for family in self.families for _ in range(family.heads))

    def hooks(self) -> list[str]:
        of_layers = [f"blocks.{layer}.{name}" for layer in range(self.layers) for name in LAYER_HOOKS]
        return [*EMBEDDING_HOOKS, *of_layers]

    def cost(self, length: int) -> CostModel:
        """Lifted queries, keys and values of every head; with free energy, one pattern of all heads too."""
        lifted = sum(family.heads * (family.width + 1) * (family.width + 2) // 2 for family in self.families)
        patterns = 0 if self.free_energy is None else 8 * length * self.free_energy.iterations
        if self.by_pairs:
            patterns += length * sum(6 * family.heads * family.width**2 for family in self.families)
        activations = self.layers * (12 * lifted + patterns)
        return CostModel(self.layers, activations, self.layers * (2 * lifted * length + 20 * lifted))

    def rate_multiplier(self, weight: str) -> float:
        if self.rates == "one":
            return 1.0
        return next((rate for name, rate in PUBLISHED_RATES.items() if name in weight), 1.0)

    def kappa_of(self, width: int) -> float:
        """The temperature of a head of this width, as it starts."""
        return self.kappa * (self.width / REFERENCE_WIDTH if self.temperature == "shared" else width**0.5)


def e3nn_notation(irreps: object) -> object:
    """The source study's list of (name, heads, width) as e3nn would write it; anything else as it is."""
    if not isinstance(irreps, list):
        return irreps
    return " + ".join(_term(entry) for entry in irreps)


def _term(entry: object) -> str:
    if isinstance(entry, Sequence) and len(entry) == 3 and not isinstance(entry, str):
        name, heads, width = entry
        degree = str(name).removeprefix("ℓ").removeprefix("l").removesuffix("_pad")
        if degree.isdigit() and isinstance(heads, int) and width == 2 * int(degree) + 1:
            return f"{heads}x{degree}e"
    raise ValueError(f"{entry!r} is no irrep; accepted: [name, heads, width] with width 2ℓ+1, as ['ℓ1', 3, 3]")


def _parsed(irreps: str) -> list[tuple[int, int]]:
    from e3nn.o3 import Irreps  # here, because it takes a second and few models are of this kind

    try:
        terms = [(int(heads), int(irrep.l)) for heads, irrep in Irreps(irreps) if heads]
    except ValueError:
        raise ValueError(f"irreps is '{irreps}'; accepted: heads by degree, for example 5x0e + 3x1e + 1x2e") from None
    if high := [degree for _, degree in terms if degree > HIGHEST_DEGREE]:
        raise ValueError(f"irreps '{irreps}' have a degree of {high[0]}; accepted: 0 to {HIGHEST_DEGREE}")
    return terms
