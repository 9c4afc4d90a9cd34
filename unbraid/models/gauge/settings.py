"""The settings of a gauge-equivariant transformer; each fault of the published one can be had by name."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from unbraid.config import Record
from unbraid.models.gauge.irreps import Family, families, written
from unbraid.models.shape import Shape, Sizes

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
OF_EMBEDDING = ("embed.hook_mean", "embed.hook_variance", "embed.hook_frame")
OF_LAYERS = (
    *("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_resid_post"),
    *("attn.hook_z", "attn.hook_result", "attn.hook_pattern", "attn.hook_kl"),
)


class FreeEnergy(Record):
    """Belief updates in place of a feed-forward: natural gradient down prior · KL(q‖p) + alignment · Σ β KL.

    `sign`: "published" has the gradient of β upside down, and a quarter of the natural step of covariances.
    `prior_covariance`: "current" (published) takes the belief's own covariance for the prior's.
    `step` is where the learned step starts; covariances take `covariance_rate` of it, frames `frame_step` (0: they
    stay).
    """

    iterations: int = Field(default=1, ge=1, le=1000)
    prior: float = Field(default=1.0, ge=0)
    alignment: float = Field(default=1.0, ge=0)
    step: float = Field(default=0.1, gt=0)
    trust: float = Field(default=2.0, gt=0)
    covariance_rate: float = Field(default=0.05, ge=0)
    covariance_trust: float = Field(default=0.1, gt=0)
    frame_step: float = Field(default=0.0, ge=0)
    sign: Literal["corrected", "published"] = "corrected"
    prior_covariance: Literal["prior", "current"] = "prior"


class Gauge(Shape):
    """One shape of gauge transformer.

    `temperature`: of a head kappa · √width ("head"), of all heads kappa · d_model/11 ("shared", as published), or
    learned from the first. `start`: means of tokens as far apart as `mean_deviation` says; "published" forgets that,
    and frames', for .02. `priors`: "gauge_fixed" gives all tokens one belief, each in its own frame; then every KL is
    0 but for positions. `alignment`, `prior`: weights λ_β and α of these costs in the loss.
    """

    kind: Literal["gauge"] = "gauge"
    irreps: str = "5x0e + 3x1e + 1x2e"
    d_model: int | None = Field(default=None, ge=1, le=1 << 16)
    layers: int = Field(default=1, ge=1, le=1024)
    kappa: float = Field(default=1.0, gt=0)
    temperature: Literal["head", "shared", "learned"] = "head"
    covariance: Literal["exact", "diagonal"] = "exact"
    exponential: Literal["exact", "taylor"] = "exact"
    priors: Literal["free", "gauge_fixed"] = "free"
    start: Literal["spread", "published"] = "spread"
    mean_deviation: float = Field(default=1.0, gt=0)
    frame_deviation: float = Field(default=0.1, ge=0)
    positions: Literal["both", "frame", "mean", "none"] = "both"
    nearness: bool = False
    self_attention: bool = True
    residual: bool = True
    evolve_covariance: bool = True
    free_energy: FreeEnergy | None = None
    alignment: float = Field(default=0.0, ge=0)
    prior: float = Field(default=0.0, ge=0)
    rates: Literal["one", "published"] = "one"

    @field_validator("irreps", mode="before")
    @classmethod
    def write_as_e3nn_does(cls, irreps: Any) -> Any:
        return written(irreps)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        families(self.irreps, self.d_model)  # refuses what does not parse or does not fit
        if self.covariance == "diagonal" and self.free_energy is not None:
            raise ValueError(
                "covariance is 'diagonal', which is of pairs, and free_energy needs one of tokens; accepted: "
                "covariance = 'exact', or no free_energy"
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
        of_layers = [f"blocks.{layer}.{name}" for layer in range(self.layers) for name in OF_LAYERS]
        return [*OF_EMBEDDING, *of_layers]

    def sizes(self, length: int) -> Sizes:
        """Lifted queries, keys and values of every head; with free energy, one pattern of all heads too."""
        lifted = sum(one.heads * (one.width + 1) * (one.width + 2) // 2 for one in self.families)
        patterns = 0 if self.free_energy is None else 8 * length * self.free_energy.iterations
        if self.by_pairs:
            patterns += length * sum(6 * one.heads * one.width**2 for one in self.families)
        kept = self.layers * (12 * lifted + patterns)
        return Sizes(self.layers, kept, self.layers * (2 * lifted * length + 20 * lifted))

    def rate_of(self, weight: str) -> float:
        if self.rates == "one":
            return 1.0
        return next((rate for start, rate in PUBLISHED_RATES.items() if start in weight), 1.0)

    def kappa_of(self, width: int) -> float:
        """The temperature of a head of this width, as it starts."""
        return self.kappa * (self.width / REFERENCE_WIDTH if self.temperature == "shared" else width**0.5)
