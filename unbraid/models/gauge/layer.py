"""One layer of a gauge transformer: heads read beliefs, then beliefs go down the free energy; all in the common frame.

m ← m + Σ_j β_ij m_j        S ← the covariance of that mixture        (m, S) ← down the free energy, if it is asked for
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import pad

from unbraid.axes import Bool, Float, Tensor
from unbraid.models.attention.attention import Weights
from unbraid.models.gauge.attention import GaugeMask, HeadRead, attend, divergences, pattern, patterns
from unbraid.models.gauge.beliefs import Beliefs, fold, unfold
from unbraid.models.gauge.config import Family, Gauge
from unbraid.models.gauge.frames import into, out_of
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
    state = keep_means(f"{prefix}hook_resid_pre", state, context.recorder)
    reads = _attend(layer, state, context)
    updated = [_updated(beliefs, read, settings) for beliefs, read in zip(state.beliefs, reads, strict=True)]
    state = keep_means(f"{prefix}hook_resid_mid", replace(state, beliefs=updated), context.recorder)
    if settings.free_energy is not None:
        step = context.weights[f"{prefix}free.step"][:, 0].exp()
        kappa, used = settings.kappa_of(settings.width), context.uses(layer)
        state = descend_free_energy(state, settings.free_energy, step, kappa, context.mask, used)
    return keep_means(f"{prefix}hook_resid_post", state, context.recorder)


def own_frame_means(state: TokenState) -> Float[Tensor, "m b t d"]:
    """Means of all heads side by side, each token's in its own frame."""
    return torch.cat([out_of(state.turned[beliefs.degree], beliefs.mean).flatten(3) for beliefs in state.beliefs], -1)


def _updated(beliefs: Beliefs, read: HeadRead, settings: Gauge) -> Beliefs:
    mean = beliefs.mean + read.mean if settings.residual else read.mean
    return beliefs.with_mean(mean) if read.covariance is None else Beliefs(mean, read.covariance)


def _attend(layer: int, state: TokenState, context: ForwardContext) -> Sequence[HeadRead]:
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
    return _keep_reads(layer, reads, state, context)


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
    kept = head_mask[first : first + family.heads].to(read.mean)
    return HeadRead(read.mean * kept[:, None], read.covariance, read.expected)


def keep_means(name: str, state: TokenState, recorder: Recorder) -> TokenState:
    """The state with its means as the recorder edits them, each token's in its own frame."""
    if not recorder.wants(name):
        return state
    means = own_frame_means(state)
    change = recorder.keep(name, means) - means  # as a change, so that what is not edited is not turned to and fro
    if name not in recorder.edits:
        return state
    changes = _by_degree(change, state)
    edited = [b.with_mean(b.mean + change) for b, change in zip(state.beliefs, changes, strict=True)]
    return replace(state, beliefs=edited)


def _by_degree(change: Float[Tensor, "m b t d"], state: TokenState) -> list[Float[Tensor, "m b t h e"]]:
    """A change in tokens' own frames, in the common frame and by the heads of each degree."""
    parts = change.split([beliefs.mean.shape[-2:].numel() for beliefs in state.beliefs], -1)
    return [
        into(state.turned[beliefs.degree], part.unflatten(-1, beliefs.mean.shape[-2:]))
        for beliefs, part in zip(state.beliefs, parts, strict=True)
    ]


def _keep_reads(
    layer: int, reads: Sequence[HeadRead], state: TokenState, context: ForwardContext
) -> Sequence[HeadRead]:
    """What heads read, each padded to the widest; and what each writes: its own columns, and 0 in all others."""
    block, recorder = f"blocks.{layer}.", context.recorder
    read, written, added = f"{block}attn.hook_z", f"{block}attn.hook_result", f"{block}hook_attn_out"
    if not any(recorder.wants(name) for name in (read, written, added)):
        return reads
    means = [out_of(state.turned[beliefs.degree], r.mean) for beliefs, r in zip(state.beliefs, reads, strict=True)]
    before = out = torch.cat([mean.flatten(3) for mean in means], -1)
    if recorder.wants(read):
        z = _heads_apart(out, context.settings)
        out = out + _heads_together(recorder.keep(read, z) - z, context.settings)
    if recorder.wants(written):
        result = out[:, :, None] * _columns(context.settings).to(out)[:, None]
        out = out + (recorder.keep(written, result) - result).sum(2)
    out = recorder.keep(added, out)
    if not recorder.edits.keys() & {read, written, added}:
        return reads
    changes = _by_degree(out - before, state)
    return [replace(r, mean=r.mean + change) for r, change in zip(reads, changes, strict=True)]


def _heads_apart(out: Float[Tensor, "m b t d"], settings: Gauge) -> Float[Tensor, "m b h t e"]:
    """The columns of each head, padded to the widest."""
    widest = max(family.width for family in settings.families)
    parts = [out[..., family.columns].unflatten(-1, (family.heads, family.width)) for family in settings.families]
    return torch.cat([pad(part, (0, widest - part.shape[-1])) for part in parts], 3).transpose(2, 3)


def _heads_together(z: Float[Tensor, "m b h t e"], settings: Gauge) -> Float[Tensor, "m b t d"]:
    """Back, without the padding."""
    parts = z.transpose(2, 3).split([family.heads for family in settings.families], 3)
    return torch.cat([p[..., : f.width].flatten(3) for p, f in zip(parts, settings.families, strict=True)], -1)


def _columns(settings: Gauge) -> Bool[Tensor, "h d"]:
    """Which columns are those of each head."""
    widths = torch.tensor([family.width for family in settings.families for _ in range(family.heads)])
    owner = torch.repeat_interleave(torch.arange(len(widths)), widths)
    return owner == torch.arange(len(widths))[:, None]
