"""One layer of a gauge transformer: heads read beliefs, then beliefs go down the free energy; all in the common frame.

m ← m + Σ_j β_ij m_j        S ← the covariance of that mixture        (m, S) ← down the free energy, if it is asked for
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Named, Weights
from unbraid.models.gauge.attention import GaugeMask, HeadRead, attend, divergences, pattern, patterns
from unbraid.models.gauge.beliefs import Beliefs, fold, unfold
from unbraid.models.gauge.config import Family, Gauge
from unbraid.models.gauge.frames import out_of
from unbraid.models.gauge.free_energy import TokenState, descend_free_energy
from unbraid.models.gauge.pairwise import compare, mix, transports
from unbraid.models.models import Recorder


@dataclass(frozen=True)
class ForwardContext:
    """What goes along with a batch from layer to layer."""

    settings: Gauge
    weights: Weights
    mask: GaugeMask
    recorder: Recorder
    head_masks: Mapping[int, Tensor] = field(default_factory=dict)
    """Of a layer: 0 for each ablated head, else 1."""
    expected: list[Tensor] = field(default_factory=list)
    """Of each layer and degree: Σ_j β_ij KL_ij, where a cost wants it."""

    def uses(self, layer: int) -> bool:
        """Whether the covariances that a layer leaves are used: by the next one, or by a cost."""
        return layer + 1 < self.settings.layers or self.settings.prior > 0

    def evolves(self, layer: int) -> bool:
        """Whether covariances become those of what was read."""
        return self.settings.evolve_covariance and (self.settings.free_energy is not None or self.uses(layer))


def kappas(settings: Gauge, weights: Weights, layer: int) -> list[Float[Tensor, "m h"]]:
    """The temperatures of a layer's heads, degree by degree."""
    learned = weights.get(f"blocks.{layer}.attn.kappa")
    if learned is not None:
        return [part.exp() for part in learned.split([family.heads for family in settings.families], 1)]
    answer = weights["answer.weight"]
    return [
        answer.new_full((len(answer), family.heads), settings.kappa_of(family.width)) for family in settings.families
    ]


def forward_layer(layer: int, state: TokenState, context: ForwardContext) -> TokenState:
    """Attention, then belief updates, if any."""
    prefix, settings = f"blocks.{layer}.", context.settings
    _keep(f"{prefix}hook_resid_pre", state, context)
    reads = _attend(layer, state, context)
    updated = [_updated(beliefs, read, settings) for beliefs, read in zip(state.beliefs, reads, strict=True)]
    state = replace(state, beliefs=updated)
    _keep(f"{prefix}hook_resid_mid", state, context)
    if settings.free_energy is not None:
        step = context.weights[f"{prefix}free.step"][:, 0].exp()
        kappa, used = settings.kappa_of(settings.width), context.uses(layer)
        state = descend_free_energy(state, settings.free_energy, step, kappa, context.mask, used)
    _keep(f"{prefix}hook_resid_post", state, context)
    return state


def own_frame_means(state: TokenState) -> Float[Tensor, "m b t d"]:
    """Means of all heads side by side, each token's in its own frame."""
    return torch.cat([out_of(state.turned[beliefs.degree], beliefs.mean).flatten(3) for beliefs in state.beliefs], -1)


def _updated(beliefs: Beliefs, read: HeadRead, settings: Gauge) -> Beliefs:
    mean = beliefs.mean + read.mean if settings.residual else read.mean
    return beliefs.with_mean(mean) if read.covariance is None else Beliefs(mean, read.covariance)


def _attend(layer: int, state: TokenState, context: ForwardContext) -> list[HeadRead]:
    """What the heads of each degree read."""
    settings, prefix = context.settings, f"blocks.{layer}.attn."
    seen: dict[str, list[Tensor]] = {"hook_pattern": [], "hook_kl": []}
    reads: list[HeadRead] = []
    first = 0
    layer_kappas = kappas(settings, context.weights, layer)
    for family, beliefs, kappa in zip(settings.families, state.beliefs, layer_kappas, strict=True):
        mask = context.mask.for_heads(first, family.heads)
        if settings.by_pairs:
            read = _by_pairs(beliefs, family, state, kappa, layer, mask, context, seen)
        else:
            read = _fast(beliefs, kappa, layer, mask, context, seen)
        reads.append(_apply_head_mask(layer, first, family, read, context))
        first += family.heads
    for name, parts in seen.items():
        if parts:
            context.recorder.keep(prefix + name, torch.cat(parts, 2))
    _keep_reads(layer, reads, state, context)
    return reads


def _fast(
    beliefs: Beliefs, kappa: Tensor, layer: int, mask: GaugeMask, context: ForwardContext, seen: dict[str, list[Tensor]]
) -> HeadRead:
    prefix = f"blocks.{layer}.attn."
    if f"{prefix}hook_kl" in context.recorder.asked:
        seen["hook_kl"].append(divergences(beliefs))
    if f"{prefix}hook_pattern" in context.recorder.asked:
        seen["hook_pattern"].append(patterns(beliefs, kappa, mask))
    settings = context.settings
    read = attend(beliefs, kappa, mask, context.evolves(layer), settings.alignment > 0)
    if read.expected is not None:
        context.expected.append(read.expected)
    return read


def _by_pairs(
    beliefs: Beliefs,
    family: Family,
    state: TokenState,
    kappa: Tensor,
    layer: int,
    mask: GaugeMask,
    context: ForwardContext,
    seen: dict[str, list[Tensor]],
) -> HeadRead:
    """As published: in own frames, pair by pair, and back."""
    settings, turn = context.settings, state.turned[family.degree]
    there = turn[:, :, :, None]
    mean, covariance = beliefs.mean @ turn.mT, there @ unfold(beliefs.covariance, beliefs.width) @ there.mT
    pairs = compare(
        mean, covariance, transports(state.frames, family.degree, settings.exponential), settings.covariance
    )
    beta = pattern(pairs.kl, kappa, mask)
    seen["hook_kl"].append(pairs.kl)
    seen["hook_pattern"].append(beta)
    if settings.alignment > 0:
        context.expected.append((beta * pairs.kl).sum(-1).transpose(2, 3))
    mean, mixture = mix(pairs, beta)
    if settings.covariance == "diagonal":
        mixture = torch.diag_embed(mixture.diagonal(0, -2, -1))
    in_common_frame = fold(there.mT @ mixture @ there) if context.evolves(layer) else None
    return HeadRead(mean @ turn, in_common_frame, None)


def _apply_head_mask(layer: int, first: int, family: Family, read: HeadRead, context: ForwardContext) -> HeadRead:
    if (head_mask := context.head_masks.get(layer)) is None:
        return read
    kept = head_mask[first : first + family.heads].to(read.mean.dtype)
    return HeadRead(read.mean * kept[:, None], read.covariance, read.expected)


def _keep(name: str, state: TokenState, context: ForwardContext) -> None:
    if name in context.recorder.asked:
        context.recorder.keep(name, own_frame_means(state))


def _keep_reads(layer: int, reads: Sequence[HeadRead], state: TokenState, context: ForwardContext) -> None:
    """What heads read, each padded to the widest; and what each writes: its own columns, and 0 in all others."""
    prefix = f"blocks.{layer}."
    wanted = {f"{prefix}attn.hook_z", f"{prefix}attn.hook_result", f"{prefix}hook_attn_out"} & context.recorder.asked
    if not wanted:
        return
    means = [out_of(state.turned[beliefs.degree], r.mean) for beliefs, r in zip(state.beliefs, reads, strict=True)]
    widest, first, z, written = max(mean.shape[-1] for mean in means), 0, [], []
    for mean in means:
        heads, width = mean.shape[-2:]
        z.append(torch.nn.functional.pad(mean, (0, widest - width)))
        columns = torch.zeros(heads, width, context.settings.width, dtype=mean.dtype)
        for head in range(heads):
            columns[head, :, first : first + width] = torch.eye(width)
            first += width
        written.append(torch.einsum("mbthe,hed->mbthd", mean, columns))
    named: Named = {
        f"{prefix}attn.hook_z": torch.cat(z, 3).transpose(2, 3),
        f"{prefix}attn.hook_result": torch.cat(written, 3).transpose(2, 3),
        f"{prefix}hook_attn_out": torch.cat([mean.flatten(3) for mean in means], -1),
    }
    for name in wanted:
        context.recorder.keep(name, named[name])
