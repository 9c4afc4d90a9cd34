"""m gauge transformers of one configuration as one set of stacked tensors: an architecture of `Models`.

    q_i = N(μ, Σ) of the token, in its frame φ_i = φ(token) ∘ φ(position)        →  the common frame
    beliefs ← heads read, free energy falls                                      for each layer
    answer = W R_i m_i                                                           back in the token's own frame

One path serves training, validation and generation. Costs of the model itself: `alignment`, λ_β times the mean over
sequences, layers and heads of Σ_ij β_ij KL_ij; `prior`, α times the mean over tokens of KL(q_i ‖ p_i), to which
covariances are given. The weights by name:

    embed.mean, embed.spread  m v d (log variances)     embed.frame  m v 3        answer.weight  m c d
    embed.base_mean, embed.base_spread  m d             where priors are gauge-fixed, in place of the first two
    positions.frame  m t 3      positions.mean  m t d   frames only where something is turned by them
    blocks.0.attn.kappa  m h (logarithms, if learned)   blocks.0.free.step  m 1 (logarithm)

`init = "published"`: one line of the published code gave every table, and the output, a deviation of .02, whatever
was configured; what is neither (gauge-fixed means, frames of positions) kept its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.errors import NotFinite, UserError
from unbraid.models.attention import AttentionMask
from unbraid.models.attention.attention import Named
from unbraid.models.gauge.attention import GaugeMask
from unbraid.models.gauge.beliefs import Beliefs, Indefinite, pair_weights, products
from unbraid.models.gauge.config import Family, Gauge
from unbraid.models.gauge.frames import compose, into, turns
from unbraid.models.gauge.free_energy import TokenState
from unbraid.models.gauge.layer import ForwardContext, forward_layer, kappas, keep_means, own_frame_means
from unbraid.models.layers import InitialWeights, embed_tokens, init_uniform
from unbraid.models.models import ForwardOutput, Models, Recorder
from unbraid.randomness import stream

NARROWEST, WIDEST = -9.0, 9.0
"""Log variances beyond these are taken as these."""
PUBLISHED_DEVIATION = 0.02
POSITION_DEVIATION = 0.1
"""Standard deviation of frames and means of positions before training."""


@dataclass(frozen=True)
class GaugeModels(Models):
    """Transformers whose tokens hold Gaussian beliefs in frames of their own."""

    settings: Gauge

    def run(
        self, tokens: Int[Tensor, "b t"], recorder: Recorder, head_masks: Mapping[int, Tensor], step: int | None
    ) -> ForwardOutput:
        self._check_precision()
        attention_mask = self.attention_mask(tokens, self.settings.alibi)
        mask = self._gauge_mask(attention_mask)
        context = ForwardContext(self.settings, self.weights, mask, recorder, head_masks)
        try:
            state = self._embed(tokens, recorder)
            for layer in range(self.settings.layers):
                state = forward_layer(layer, state, context)
        except Indefinite as problem:
            if step is None:
                raise UserError(f"a covariance of beliefs of member {problem.member} is no longer definite") from None
            raise NotFinite(step, "covariance of beliefs", problem.member) from None
        costs = self._costs(state, context, attention_mask)
        return ForwardOutput(own_frame_means(state), attention_mask, recorder.kept, costs)

    def kappas(self, layer: int) -> list[Float[Tensor, "m h"]]:
        """The temperatures of a layer's heads, degree by degree."""
        return kappas(self.settings, self.weights, layer)

    @property
    def words(self) -> int:
        return self.weights["embed.mean" if self.settings.priors == "free" else "embed.frame"].shape[1]

    def _check_precision(self) -> None:
        dtype: object = self.weights["answer.weight"].dtype
        dtype = dtype if self.precision == "float32" else self.precision
        if dtype not in (torch.float32, torch.float64):
            raise UserError(
                f"a gauge model was to run in {dtype}, in which covariances are not definite and torch has no Cholesky "
                "root; accepted: float32 or float64"
            )

    def _embed(self, tokens: Int[Tensor, "b t"], recorder: Recorder) -> TokenState:
        """Beliefs of tokens before the first layer: in their own frames, and then in the common one."""
        frames, placed_frames = self._frames(tokens)
        degrees = {family.degree for family in self.settings.families}
        turned = turns(frames, degrees)
        placed = turned if placed_frames is None else turns(placed_frames, degrees)
        mean, spread = self._tokens(tokens)
        beliefs = [
            self._believed(family, mean, spread, turned[family.degree], placed[family.degree])
            for family in self.settings.families
        ]
        state = keep_means("embed.hook_mean", TokenState(beliefs, beliefs, frames, turned), recorder)
        state = replace(state, priors=state.beliefs)
        recorder.keep("embed.hook_variance", spread.exp())
        recorder.keep("embed.hook_frame", frames)
        return state

    def _frames(self, tokens: Int[Tensor, "b t"]) -> tuple[Float[Tensor, "m b t 3"], Float[Tensor, "m b t 3"] | None]:
        """Frames of tokens, and the frames that bring a prior for all into the common one, where priors are fixed.

        A gauge-fixed prior is R(token) μ₀ in the frame R(token) R(position): in the common frame R(position)ᵀ μ₀.
        Without transport the common frame is each token's own, and there it stays R(token) μ₀.
        """
        fixed, answer = self.settings.priors == "gauge_fixed", self.weights["answer.weight"]
        nowhere = answer.new_zeros(len(answer), *tokens.shape, 3)
        frame, place = self.weights.get("embed.frame"), self.weights.get("positions.frame")
        token = nowhere if frame is None else embed_tokens(frame, tokens)
        if self.settings.transport == "identity":
            return nowhere, -token if fixed else None
        if place is None:
            return token, nowhere if fixed else None
        place = place[:, None, : tokens.shape[1]]
        return compose(token, place), place.expand_as(token) if fixed else None

    def _tokens(self, tokens: Int[Tensor, "b t"]) -> tuple[Float[Tensor, "m b t d"], Float[Tensor, "m b t d"]]:
        """Means and log variances: of the token, or where priors are gauge-fixed one for all."""
        if self.settings.priors == "free":
            mean, spread = (embed_tokens(self.weights[f"embed.{part}"], tokens) for part in ("mean", "spread"))
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
        """Of the heads of one degree; where a token stands is added in its own frame."""
        own, logs = (part[..., family.columns].unflatten(-1, (family.heads, -1)) for part in (mean, spread))
        place = self.weights.get("positions.mean")
        if place is not None:
            place = place[:, None, : mean.shape[2], family.columns].unflatten(-1, (family.heads, -1))
        if self.settings.priors == "free":
            return Beliefs.turned(own if place is None else own + place, logs.exp(), turn)
        belief = Beliefs.turned(own, logs.exp(), placed)
        return belief if place is None else belief.with_mean(belief.mean + into(turn, place))

    def _gauge_mask(self, attention_mask: AttentionMask) -> GaugeMask:
        """As published: a token attends to itself too, unless that is masked and there is another key."""
        allowed = attention_mask.allowed()
        if not self.settings.self_attention:
            others = ~torch.eye(allowed.shape[-1], dtype=torch.bool, device=allowed.device)
            allowed = allowed & others
            allowed = allowed | (~allowed.any(-1, keepdim=True) & ~others)
        if attention_mask.causal and attention_mask.alibi is None and self.settings.self_attention:
            return GaugeMask(None, allowed, causal=True)
        bias = torch.zeros(()) if attention_mask.alibi is None else attention_mask.alibi
        return GaugeMask(
            torch.where(allowed, bias.to(allowed.device), -torch.inf), allowed, causal=attention_mask.causal
        )

    def _costs(self, state: TokenState, context: ForwardContext, attention_mask: AttentionMask) -> Named:
        costs: Named = {}
        if self.settings.alignment > 0:
            real = attention_mask.token_mask[..., None].to(state.frames.dtype)
            summed = torch.stack([(expected * real).sum((2, 3)).mean(1) for expected in context.expected]).sum(0)
            heads = self.settings.layers * self.settings.heads_per_layer
            costs["alignment"] = self.settings.alignment / heads * summed
        if self.settings.prior > 0:
            real = attention_mask.token_mask.to(state.frames.dtype)
            pairs = zip(state.beliefs, state.priors, strict=True)
            divergence = torch.stack([prior_divergence(belief, prior).sum(-1) for belief, prior in pairs]).sum(0)
            costs["prior"] = self.settings.prior * (divergence * real).sum((1, 2)) / real.sum()
        return costs


def prior_divergence(belief: Beliefs, prior: Beliefs) -> Float[Tensor, "m b t h"]:
    """KL(q ‖ p) of each head; covariances are given, and only means feel it."""
    apart = belief.mean - prior.mean
    precision = prior.precision.detach()
    weights = pair_weights(belief.width, apart.dtype).to(apart)
    far = (weights * precision * (belief.covariance.detach() + products(apart))).sum(-1)
    return 0.5 * (far - belief.width + prior.logdet.detach() - belief.logdet.detach())


def init_gauge(settings: Gauge, vocabulary: int, length: int, classes: int, seed: int) -> InitialWeights:
    """All weights of one member before training."""
    width, published = settings.width, settings.init == "published"

    def drawn(name: str, deviation: float, *shape: int) -> np.ndarray:
        return (deviation * stream(seed, "weights", name).standard_normal(shape)).astype(np.float32)

    means_apart = PUBLISHED_DEVIATION if published else settings.mean_deviation
    weights: InitialWeights = {}
    if settings.priors == "gauge_fixed":
        weights["embed.base_mean"] = drawn("embed.base_mean", settings.mean_deviation, width)
        weights["embed.base_spread"] = np.zeros(width, np.float32)
    else:
        weights["embed.mean"] = drawn("embed.mean", means_apart, vocabulary, width)
        weights["embed.spread"] = np.zeros((vocabulary, width), np.float32)
    frames_apart = PUBLISHED_DEVIATION if published else settings.frame_deviation
    if settings.transport == "frames" or settings.priors == "gauge_fixed":
        weights["embed.frame"] = drawn("embed.frame", frames_apart, vocabulary, 3)
    if settings.transport == "frames" and settings.positions in ("frame", "both"):
        weights["positions.frame"] = drawn("positions.frame", POSITION_DEVIATION, length, 3)
    if settings.positions in ("mean", "both"):
        positions_apart = PUBLISHED_DEVIATION if published else POSITION_DEVIATION
        weights["positions.mean"] = drawn("positions.mean", positions_apart, length, width)
    for layer in range(settings.layers):
        if settings.temperature == "learned":
            kappas = [settings.kappa_of(family.width) for family in settings.families for _ in range(family.heads)]
            weights[f"blocks.{layer}.attn.kappa"] = np.log(kappas).astype(np.float32)
        if settings.free_energy is not None:
            weights[f"blocks.{layer}.free.step"] = np.log([settings.free_energy.step]).astype(np.float32)
    if published:
        weights["answer.weight"] = drawn("answer", PUBLISHED_DEVIATION, classes, width)
    else:
        weights["answer.weight"] = init_uniform(stream(seed, "weights", "answer"), width, classes, width)
    return weights
