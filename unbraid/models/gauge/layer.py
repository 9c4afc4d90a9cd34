"""One layer of a gauge transformer: heads read beliefs, then beliefs go down the free energy; all in the common frame.

m ← m + Σ_j β_ij m_j        S ← the covariance of that mixture        (m, S) ← down the free energy, if it is asked for
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Named, Weights
from unbraid.models.gauge.attention import Looking, Read, attend, divergences, pattern, patterns
from unbraid.models.gauge.beliefs import Beliefs
from unbraid.models.gauge.frames import out_of
from unbraid.models.gauge.free_energy import Held, settle
from unbraid.models.gauge.irreps import Family
from unbraid.models.gauge.lifts import fold, unfold
from unbraid.models.gauge.pairwise import compare, mix, transports
from unbraid.models.gauge.settings import Gauge
from unbraid.models.recording import Recorder


@dataclass(frozen=True)
class Passing:
    """What goes along with a batch from layer to layer."""

    settings: Gauge
    weights: Weights
    looking: Looking
    recorder: Recorder
    silenced: Mapping[int, Tensor] = field(default_factory=dict)
    """Of a layer: 0 for each head that is silenced, else 1."""
    expected: list[Tensor] = field(default_factory=list)
    """Of each layer and degree: Σ_j β_ij KL_ij, where a cost wants it."""

    def uses(self, layer: int) -> bool:
        """Whether anybody asks for the covariances that a layer leaves: the next one, or a cost."""
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
    return [answer.new_full((len(answer), one.heads), settings.kappa_of(one.width)) for one in settings.families]


def pass_layer(layer: int, held: Held, passing: Passing) -> Held:
    place, settings = f"blocks.{layer}.", passing.settings
    _keep(f"{place}hook_resid_pre", held, passing)
    reads = _attend(layer, held, passing)
    beliefs = [_updated(one, read, settings) for one, read in zip(held.beliefs, reads, strict=True)]
    held = replace(held, beliefs=beliefs)
    _keep(f"{place}hook_resid_mid", held, passing)
    if settings.free_energy is not None:
        step = passing.weights[f"{place}free.step"][:, 0].exp()
        kappa, used = settings.kappa_of(settings.width), passing.uses(layer)
        held = settle(held, settings.free_energy, step, kappa, passing.looking, used)
    _keep(f"{place}hook_resid_post", held, passing)
    return held


def own_means(held: Held) -> Float[Tensor, "m b t d"]:
    """Means of all heads side by side, each token's in its own frame."""
    return torch.cat([out_of(held.turned[one.degree], one.mean).flatten(3) for one in held.beliefs], -1)


def _updated(one: Beliefs, read: Read, settings: Gauge) -> Beliefs:
    mean = one.mean + read.mean if settings.residual else read.mean
    return one.with_mean(mean) if read.covariance is None else Beliefs(mean, read.covariance)


def _attend(layer: int, held: Held, passing: Passing) -> list[Read]:
    """What the heads of each degree read."""
    settings, place = passing.settings, f"blocks.{layer}.attn."
    seen: dict[str, list[Tensor]] = {"hook_pattern": [], "hook_kl": []}
    reads: list[Read] = []
    first = 0
    each_kappa = kappas(settings, passing.weights, layer)
    for family, one, kappa in zip(settings.families, held.beliefs, each_kappa, strict=True):
        looking = passing.looking.of_heads(first, family.heads)
        if settings.by_pairs:
            read = _by_pairs(one, family, held, kappa, layer, looking, passing, seen)
        else:
            read = _fast(one, kappa, layer, looking, passing, seen)
        reads.append(_audible(layer, first, family, read, passing))
        first += family.heads
    for name, parts in seen.items():
        if parts:
            passing.recorder.keep(place + name, torch.cat(parts, 2))
    _keep_reads(layer, reads, held, passing)
    return reads


def _fast(
    one: Beliefs, kappa: Tensor, layer: int, looking: Looking, passing: Passing, seen: dict[str, list[Tensor]]
) -> Read:
    place = f"blocks.{layer}.attn."
    if f"{place}hook_kl" in passing.recorder.asked:
        seen["hook_kl"].append(divergences(one))
    if f"{place}hook_pattern" in passing.recorder.asked:
        seen["hook_pattern"].append(patterns(one, kappa, looking))
    settings = passing.settings
    read = attend(one, kappa, looking, passing.evolves(layer), settings.alignment > 0)
    if read.expected is not None:
        passing.expected.append(read.expected)
    return read


def _by_pairs(
    one: Beliefs,
    family: Family,
    held: Held,
    kappa: Tensor,
    layer: int,
    looking: Looking,
    passing: Passing,
    seen: dict[str, list[Tensor]],
) -> Read:
    """As published: in own frames, pair by pair, and back."""
    settings, turn = passing.settings, held.turned[family.degree]
    there = turn[:, :, :, None]
    mean, covariance = one.mean @ turn.mT, there @ unfold(one.covariance, one.width) @ there.mT
    pairs = compare(mean, covariance, transports(held.frames, family.degree, settings.exponential), settings.covariance)
    look = pattern(pairs.kl, kappa, looking)
    seen["hook_kl"].append(pairs.kl)
    seen["hook_pattern"].append(look)
    if settings.alignment > 0:
        passing.expected.append((look * pairs.kl).sum(-1).transpose(2, 3))
    mean, mixture = mix(pairs, look)
    if settings.covariance == "diagonal":
        mixture = torch.diag_embed(mixture.diagonal(0, -2, -1))
    back = fold(there.mT @ mixture @ there) if passing.evolves(layer) else None
    return Read(mean @ turn, back, None)


def _audible(layer: int, first: int, family: Family, read: Read, passing: Passing) -> Read:
    if (audible := passing.silenced.get(layer)) is None:
        return read
    heard = audible[first : first + family.heads].to(read.mean.dtype)
    return Read(read.mean * heard[:, None], read.covariance, read.expected)


def _keep(name: str, held: Held, passing: Passing) -> None:
    if name in passing.recorder.asked:
        passing.recorder.keep(name, own_means(held))


def _keep_reads(layer: int, reads: Sequence[Read], held: Held, passing: Passing) -> None:
    """What heads read, each padded to the widest; and what each writes: its own columns, and 0 in all others."""
    place = f"blocks.{layer}."
    wanted = {f"{place}attn.hook_z", f"{place}attn.hook_result", f"{place}hook_attn_out"} & passing.recorder.asked
    if not wanted:
        return
    means = [out_of(held.turned[one.degree], r.mean) for one, r in zip(held.beliefs, reads, strict=True)]
    widest, first, z, written = max(mean.shape[-1] for mean in means), 0, [], []
    for mean in means:
        heads, width = mean.shape[-2:]
        z.append(torch.nn.functional.pad(mean, (0, widest - width)))
        columns = torch.zeros(heads, width, passing.settings.width, dtype=mean.dtype)
        for head in range(heads):
            columns[head, :, first : first + width] = torch.eye(width)
            first += width
        written.append(torch.einsum("mbthe,hed->mbthd", mean, columns))
    named: Named = {
        f"{place}attn.hook_z": torch.cat(z, 3).transpose(2, 3),
        f"{place}attn.hook_result": torch.cat(written, 3).transpose(2, 3),
        f"{place}hook_attn_out": torch.cat([mean.flatten(3) for mean in means], -1),
    }
    for name in wanted:
        passing.recorder.keep(name, named[name])
