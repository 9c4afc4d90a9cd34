"""m gauge transformers of one shape as one set of stacked tensors; the same face as `Models`.

    q_i = N(μ, Σ) of the token, in its frame φ_i = φ(token) ∘ φ(position)        →  the common frame
    beliefs ← heads read, free energy falls                                      for each layer
    answer = W R_i m_i                                                           back in the token's own frame

One path serves training, validation and generation. Costs of the model itself: `alignment`, λ_β times the mean over
sequences, layers and heads of Σ_ij β_ij KL_ij; `prior`, α times the mean over tokens of KL(q_i ‖ p_i), to which
covariances are given.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.errors import NotFinite, Refusal
from unbraid.models.attention import Sight
from unbraid.models.attention.attention import Named
from unbraid.models.gauge.attention import Looking
from unbraid.models.gauge.beliefs import Beliefs, Indefinite
from unbraid.models.gauge.frames import compose, into, turns
from unbraid.models.gauge.free_energy import Held
from unbraid.models.gauge.irreps import Family
from unbraid.models.gauge.layer import Passing, kappas, own_means, pass_layer
from unbraid.models.gauge.lifts import products, weights
from unbraid.models.gauge.settings import Gauge
from unbraid.models.layers import look_up
from unbraid.models.models import Models, Passed
from unbraid.models.recording import Recorder, recorder

NARROWEST, WIDEST = -9.0, 9.0
"""Log variances beyond these are taken as these."""


@dataclass(frozen=True)
class GaugeModels(Models):
    """Transformers whose tokens hold Gaussian beliefs in frames of their own."""

    settings: Gauge

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        record: Collection[str] = (),
        silence: Iterable[tuple[int, int]] = (),
        step: int | None = None,
    ) -> Passed:
        sight = self.sight(tokens, self.settings.nearness)
        kept = recorder(self.settings, frozenset(record))
        passing = Passing(self.settings, self.weights, self._looking(sight), kept, self.audible(silence))
        try:
            held = self._embed(tokens, kept)
            for layer in range(self.settings.layers):
                held = pass_layer(layer, held, passing)
        except Indefinite as problem:
            if step is None:
                raise Refusal(f"a covariance of beliefs of member {problem.member} is no longer definite") from None
            raise NotFinite(step, "covariance of beliefs", problem.member) from None
        costs = self._costs(held, passing, sight)
        return Passed(own_means(held), sight, kept.kept, costs)

    def kappas(self, layer: int) -> list[Float[Tensor, "m h"]]:
        """The temperatures of a layer's heads, degree by degree."""
        return kappas(self.settings, self.weights, layer)

    @property
    def words(self) -> int:
        return self.weights["embed.frame"].shape[1]

    def _embed(self, tokens: Int[Tensor, "b t"], kept: Recorder) -> Held:
        """What tokens believe before they look: in their own frames, and then in that of all."""
        frames, degrees = look_up(self.weights["embed.frame"], tokens), {one.degree for one in self.settings.families}
        place = self.weights.get("positions.frame")
        if place is not None:
            place = place[:, None, : tokens.shape[1]]
            frames = compose(frames, place)
        turned = turns(frames, degrees)
        mean, spread = self._tokens(tokens)
        placed = turned
        if self.settings.priors == "gauge_fixed":
            placed = turns(torch.zeros_like(frames) if place is None else place.expand_as(frames), degrees)
        beliefs = [
            self._believed(family, mean, spread, turned[family.degree], placed[family.degree])
            for family in self.settings.families
        ]
        held = Held(beliefs, beliefs, frames, turned)
        if "embed.hook_mean" in kept.asked:
            kept.keep("embed.hook_mean", own_means(held))
        kept.keep("embed.hook_variance", spread.exp())
        kept.keep("embed.hook_frame", frames)
        return held

    def _tokens(self, tokens: Int[Tensor, "b t"]) -> tuple[Float[Tensor, "m b t d"], Float[Tensor, "m b t d"]]:
        """Means and log variances: of the token, or where priors are gauge-fixed one for all."""
        if self.settings.priors == "free":
            mean, spread = (look_up(self.weights[f"embed.{part}"], tokens) for part in ("mean", "spread"))
        else:
            shape = (-1, *tokens.shape, -1)
            mean, spread = (
                self.weights[f"embed.base_{part}"][:, None, None].expand(shape) for part in ("mean", "spread")
            )
        return mean, spread.clamp(NARROWEST, WIDEST)

    def _believed(
        self,
        family: Family,
        mean: Float[Tensor, "m b t d"],
        spread: Float[Tensor, "m b t d"],
        turn: Float[Tensor, "m b t e e"],
        placed: Float[Tensor, "m b t e e"],
    ) -> Beliefs:
        """Of the heads of one degree; where a token stands is added in its own frame.

        A gauge-fixed prior is R(token) μ₀, the frame R(token) R(position): in the frame of all it is R(position)ᵀ μ₀.
        """
        own, logs = (part[..., family.columns].unflatten(-1, (family.heads, -1)) for part in (mean, spread))
        place = self.weights.get("positions.mean")
        if place is not None:
            place = place[:, None, : mean.shape[2], family.columns].unflatten(-1, (family.heads, -1))
        if self.settings.priors == "free":
            return Beliefs.turned(own if place is None else own + place, logs.exp(), turn)
        one = Beliefs.turned(own, logs.exp(), placed)
        return one if place is None else one.with_mean(one.mean + into(turn, place))

    def _looking(self, sight: Sight) -> Looking:
        """As the seed masks: who looks only back sees himself too, unless that is forbidden and there is another."""
        allowed = sight.allowed()
        if not self.settings.self_attention:
            others = ~torch.eye(sight.mask.shape[1], dtype=torch.bool)
            allowed = allowed & others
            allowed = allowed | (~allowed.any(-1, keepdim=True) & ~others)
        if sight.causal and sight.nearness is None and self.settings.self_attention:
            return Looking(None, allowed, back=True)
        near = torch.zeros(()) if sight.nearness is None else sight.nearness
        return Looking(torch.where(allowed, near, -torch.inf), allowed, back=sight.causal)

    def _costs(self, held: Held, passing: Passing, sight: Sight) -> Named:
        costs: Named = {}
        if self.settings.alignment > 0:
            real = sight.mask[..., None].to(held.frames.dtype)
            summed = torch.stack([(one * real).sum((2, 3)).mean(1) for one in passing.expected]).sum(0)
            heads = self.settings.layers * self.settings.heads_a_layer
            costs["alignment"] = self.settings.alignment / heads * summed
        if self.settings.prior > 0:
            real = sight.mask.to(held.frames.dtype)
            pairs = zip(held.beliefs, held.priors, strict=True)
            divergence = torch.stack([from_prior(one, prior).sum(-1) for one, prior in pairs]).sum(0)
            costs["prior"] = self.settings.prior * (divergence * real).sum((1, 2)) / real.sum()
        return costs


def from_prior(one: Beliefs, prior: Beliefs) -> Float[Tensor, "m b t h"]:
    """KL(q ‖ p) of each head; covariances are given, and only means feel it."""
    apart = one.mean - prior.mean
    precision = prior.precision.detach()
    far = (weights(one.width, apart.dtype) * precision * (one.covariance.detach() + products(apart))).sum(-1)
    return 0.5 * (far - one.width + prior.logdet.detach() - one.logdet.detach())
