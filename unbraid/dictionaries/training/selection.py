"""Which of the candidates of several shards fire: top-k and batch top-k, where no process has all pre-activations.

Every shard lists the k largest of its own features (batch top-k: the k·b largest); whatever fires is among them. Their
values are exchanged, and everybody finds the same k-th largest. What is above it fires. Of several that equal it the
first do, as many as are left: by feature, and in batch top-k by sample and then by feature, as in one process.
"""

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries import kernels as lists_kernels
from unbraid.dictionaries.lists import Lists
from unbraid.dictionaries.training import sharded_kernels as kernels
from unbraid.mesh import Mesh


def keep_of_sample(lists: Lists, k: int, mesh: Mesh) -> None:
    """Of the candidates of each sample leave those of this shard that are among the k largest of all shards."""
    if mesh.shards == 1:
        return
    features, values, counts = _arrays(lists)
    lists_kernels.clear_unused(values, features, counts)
    least, ties = cut(torch.from_numpy(values), k, mesh, "candidates")
    kernels.keep_among(features, values, counts, least.numpy(), ties.numpy())


def keep_dense(codes: Float[Tensor, "b n"], k: int, most: int, mesh: Mesh) -> None:
    """The same where every feature has its place, which becomes 0; of a sample a shard has `most` at most."""
    if mesh.shards == 1:
        return
    own = min(most, codes.shape[1])
    candidates = codes.new_zeros(len(codes), most)
    candidates[:, :own] = codes.topk(own, dim=-1, sorted=False).values
    least, ties = (found[0] for found in cut(candidates[None], k, mesh, "dead candidates"))
    equal = codes == least[:, None]
    codes.masked_fill_((codes < least[:, None]) | (equal & (equal.cumsum(-1) > ties[:, None])), 0)


def cut(candidates: Float[Tensor, "m b n"], k: int, mesh: Mesh, what: str) -> tuple[Tensor, Tensor]:
    """The k-th largest of each sample, or 0, and how many of this shard's that equal it fire; both `m b`.

    Candidates are not negative, and 0 where there is none.
    """
    shards = mesh.gather(candidates, "shards", what)
    merged = shards.permute(1, 2, 0, 3).flatten(2)
    least = merged.topk(k, dim=-1, sorted=False).values.amin(-1) if k < merged.shape[-1] else merged.amin(-1)
    left = k - (merged > least[..., None]).sum(-1)
    equal = (shards == least[..., None]).sum(-1)
    return least, (left - equal[: mesh.shard].sum(0)).clamp_min(0)


def keep_of_batch(lists: Lists, k: int, batch: int, mesh: Mesh) -> Float[Tensor, "m one"]:
    """The same of a whole batch: k for each of its samples. Returns the least that fires, or 0."""
    members, samples = lists.counts.shape
    counts = torch.zeros(members, mesh.samples(batch, 0).stop, dtype=torch.int32)
    counts[:, :samples] = torch.as_tensor(lists.counts)
    counts = mesh.gather(counts, "everyone", "counts")
    values = _packed(lists, int(counts.sum(2).max()))
    values = mesh.gather(values, "everyone", "candidates")
    merged = values.transpose(0, 1).flatten(1)
    most = k * batch
    least = torch.zeros(members) if most >= merged.shape[1] else merged.topk(most, dim=1, sorted=False).values.amin(1)
    ties = torch.full((members, samples), batch * lists.width)
    for member in (((merged == least[:, None]) & (merged > 0)).sum(1) > 0).nonzero()[:, 0].tolist():
        left = most - int((merged[member] > least[member]).sum())
        ties[member] = _own_ties(values[:, member] == least[member], counts[:, member], left, mesh)[:samples]
    floor = least[:, None].expand(members, samples).contiguous()
    kernels.keep_among(*_arrays(lists), floor.numpy(), ties.numpy())
    fired = merged.where((merged > 0) & (merged >= least[:, None]), torch.inf).amin(1, keepdim=True)
    return fired.where(fired.isfinite(), 0)


def _arrays(lists: Lists) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, values and counts, for kernels."""
    return np.asarray(lists.features), np.asarray(lists.values), np.asarray(lists.counts)


def _packed(lists: Lists, room: int) -> Float[Tensor, "m n"]:
    """Values in use, sample after sample, and then zeros."""
    _, values, counts = _arrays(lists)
    packed = np.zeros((len(counts), room), np.float32)
    for member, row in enumerate(packed):
        lists_kernels.pack(values[member], counts[member], row)
    return torch.from_numpy(packed)


def _own_ties(equal: Tensor, counts: Int[Tensor, "r b"], left: int, mesh: Mesh) -> Int[Tensor, "b"]:
    """How many of this process's ties fire in each sample: the first so many, by sample and then by shard."""
    ranks, samples = counts.shape
    ties = torch.zeros(ranks, samples, dtype=torch.int64)
    for rank in range(ranks):
        sample = torch.arange(samples).repeat_interleave(counts[rank].long())
        ties[rank].index_add_(0, sample, equal[rank, : len(sample)].long())
    ordered = ties.view(mesh.data, mesh.shards, samples).transpose(1, 2)  # data rank, sample, shard
    before = (ordered.flatten().cumsum(0) - ordered.flatten()).view_as(ordered)
    fires = torch.minimum((left - before).clamp_min(0), ordered)
    return fires[mesh.data_rank, :, mesh.shard]
