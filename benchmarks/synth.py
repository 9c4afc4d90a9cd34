"""SynthSAEBench's world and scores beside SAELens' own code: the same numbers planted, the same statistics, the same
scores of one dictionary, and how much faster a batch is drawn."""

# pyright: reportMissingImports=false
# (SAELens lives in the environment that `make bench` makes)

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.figure import Figure
from unbraid.metrics import firing, latents, recovery
from unbraid.worlds import Synth

SCALED: dict[str, Any] = {"n_features": 2048, "dimensions": 256}
"""The scaled world: 2,048 features in 256 dimensions, the forest and copula of the full one."""
BATCH, BATCHES, SPEED_REPEATS = 1024, 32, 7


def their_model(world: Synth) -> Any:
    """SAELens' model with the settings of a world."""
    from sae_lens.synthetic import SyntheticModel, SyntheticModelConfig

    return SyntheticModel(SyntheticModelConfig.from_dict(world._saved_config()))


def synth() -> Iterator[Figure]:
    """All of it; prints both sides' statistics before the figures."""
    world = Synth(**SCALED)
    model = their_model(world)
    yield from same_numbers(world, model)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        yield from same_file(Path(folder), model)
        yield from same_statistics(Synth(path=folder, seed=1), model)
    yield from same_scores(world, model)
    yield from sampling_speed()


def same_numbers(world: Synth, model: Any) -> Iterator[Figure]:
    """What the same settings and seed plant."""
    plan, generator = world._planted, model.activation_generator
    factor, diagonal = model.correlation_matrix
    pairs = {
        "directions": (plan.directions, model.feature_dict.feature_vectors),
        "bias": (plan.bias, model.feature_dict.bias),
        "rates drawn with": (plan.drawn, generator.firing_probabilities),
        "factors": (plan.factors, factor),
        "own variance": (plan.own**2, diagonal),
        "mean magnitudes": (plan.mean, generator.mean_firing_magnitudes),
        "deviations": (plan.std, generator.std_firing_magnitudes),
    }
    for name, (ours, theirs) in pairs.items():
        yield Figure(f"synth: largest difference, {name}", _apart(ours, theirs), 1e-3, "lower", "")
    yield Figure("synth: features with another parent or rule", _other_nodes(world, model), 0, "lower", "")


def same_file(folder: Path, model: Any) -> Iterator[Figure]:
    """What SAELens saved, read by us."""
    world = Synth(path=str(folder))
    plan, generator = world._planted, model.activation_generator
    pairs = (
        (plan.directions, model.feature_dict.feature_vectors),
        (plan.bias, model.feature_dict.bias),
        (plan.drawn, generator.firing_probabilities),
        (plan.factors, model.correlation_matrix[0]),
        (plan.mean, generator.mean_firing_magnitudes),
        (plan.std, generator.std_firing_magnitudes),
        (world._sampler.thresholds, generator.correlation_thresholds),
    )
    apart = max(_apart(ours, theirs) for ours, theirs in pairs)
    yield Figure("synth: largest difference, a file of theirs", apart, 1e-4, "lower", "")
    yield Figure("synth: nodes read otherwise from a file", _other_nodes(world, model), 0, "lower", "")


def _apart(ours: Any, theirs: torch.Tensor) -> float:
    return float((torch.as_tensor(ours).double() - theirs.detach().double()).abs().max())


def _other_nodes(world: Synth, model: Any) -> int:
    forest, nodes = world._planted.forest, {}
    waiting = [(root, -1) for root in model.hierarchy.roots]
    while waiting:
        node, parent = waiting.pop()
        nodes[node.feature_index] = parent, node.mutually_exclusive_children, node.scale_children_by_parent
        waiting += [(child, node.feature_index) for child in node.children]
    free = (-1, False, False)
    parents, exclusive = forest.parents.tolist(), forest.exclusive.tolist()
    scaling = (forest.scaling & (forest.sizes > 0)).tolist()  # theirs also marks nodes that got no children
    return sum(
        (parents[f], exclusive[f]) != nodes.get(f, free)[:2] or (scaling[f] and not nodes.get(f, free)[2])
        for f in range(len(parents))
    )


def same_statistics(world: Synth, model: Any) -> Iterator[Figure]:
    """Rates, L0, pairs, exclusivity and magnitudes of as many samples of both; and superposition."""
    from sae_lens.synthetic import compute_superposition_stats

    ours = torch.cat([world.batch(i, BATCH).truth.to_dense()[0] for i in range(BATCHES)])
    theirs = torch.cat([model.activation_generator.sample(BATCH) for _ in range(BATCHES)])
    parents = world.parents
    print(f"{'of ' + format(len(ours), ',') + ' samples':44}{'ours':>12}{'SAELens':>12}")
    for name, measure in STATISTICS.items():
        print(f"{name:44}{measure(ours, parents):12.5g}{measure(theirs, parents):12.5g}", flush=True)
    cosine = (world.directions @ world.directions.T).abs().fill_diagonal_(0)
    overlap = compute_superposition_stats(model.feature_dict).mean_max_abs_cos_sim
    print(f"{'superposition: mean largest |cos|':44}{float(cosine.amax(1).mean()):12.5g}{overlap:12.5g}")
    yield Figure("synth: rates, mean square of z", _mean_square(ours > 0, theirs > 0), 1.15, "lower", "")
    pairs = [(t[:, :64] > 0).float() for t in (ours, theirs)]
    together = [(p[:, :, None] * p[:, None, :]).flatten(1)[:, _upper(64)] for p in pairs]
    yield Figure("synth: pairs of the first 64, mean square of z", _mean_square(*together), 1.3, "lower", "")
    l0 = [(t > 0).sum(1).double() for t in (ours, theirs)]
    gap = float((l0[0].mean() - l0[1].mean()).abs() / (l0[0].var() / len(ours) * 2).sqrt())
    yield Figure("synth: L0, difference in standard errors", gap, 3.5, "lower", "")
    broken = STATISTICS["exclusive siblings together, times"](ours, parents)
    broken += STATISTICS["children without their parent, times"](ours, parents)
    yield Figure("synth: siblings together, children alone", broken, 0, "lower", "")


def _upper(n: int) -> torch.Tensor:
    return torch.ones(n, n).triu(1).flatten().nonzero()[:, 0]


def _mean_square(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The mean square over columns of the difference of two means in standard errors: 1 where laws are the same."""
    a, b, samples = ours.double().mean(0), theirs.double().mean(0), len(ours)
    pooled = (a + b) / 2
    kept = pooled * samples >= 10
    z = (a - b) / (2 * pooled * (1 - pooled) / samples).sqrt()
    return float(z[kept].square().mean())


def _siblings(values: torch.Tensor, parents: torch.Tensor) -> float:
    child = (parents >= 0).nonzero()[:, 0]
    counts = torch.zeros(len(values), len(parents)).index_add_(1, parents[child], (values[:, child] > 0).float())
    return float((counts > 1).sum())


def _orphans(values: torch.Tensor, parents: torch.Tensor) -> float:
    child = (parents >= 0).nonzero()[:, 0]
    return float(((values[:, child] > 0) & (values[:, parents[child]] == 0)).sum())


def _parent_correlation(values: torch.Tensor, parents: torch.Tensor) -> float:
    """Of strengths of children and parents, where both fire."""
    child = (parents >= 0).nonzero()[:, 0]
    below, above = values[:, child], values[:, parents[child]]
    both = below > 0
    return float(torch.corrcoef(torch.stack([below[both], above[both]]))[0, 1])


STATISTICS: dict[str, Callable[[torch.Tensor, torch.Tensor], float]] = {
    "L0, mean": lambda v, _: float((v > 0).sum(1).double().mean()),
    "L0, deviation": lambda v, _: float((v > 0).sum(1).double().std()),
    "rate of the first feature": lambda v, _: float((v[:, 0] > 0).double().mean()),
    "rate, mean of features 100 to 200": lambda v, _: float((v[:, 100:200] > 0).double().mean()),
    "rate, mean of features 1,000 to 2,000": lambda v, _: float((v[:, 1000:2000] > 0).double().mean()),
    "strength where it fires, mean": lambda v, _: float(v[v > 0].double().mean()),
    "strength where it fires, deviation": lambda v, _: float(v[v > 0].double().std()),
    "correlation of first 64, root mean square": lambda v, _: float(
        torch.corrcoef((v[:, :64] > 0).double().T).fill_diagonal_(0).square().mean().sqrt()
    ),
    "correlation of child's and parent's strength": _parent_correlation,
    "exclusive siblings together, times": _siblings,
    "children without their parent, times": _orphans,
}


def same_scores(world: Synth, model: Any) -> Iterator[Figure]:
    """Our functions and SAELens' evaluator on a dictionary that holds some truths, some mixtures, and noise."""
    from sae_lens.synthetic import eval_sae_on_synthetic_data

    sae, samples = half_found(world, model), 4096
    torch.manual_seed(0)
    theirs = eval_sae_on_synthetic_data(sae, model.feature_dict, model.activation_generator, samples)
    torch.manual_seed(0)
    ours = our_scores(sae, model, samples)
    found = {**theirs.to_dict(), **theirs.to_dict()["classification"]}
    for name, value in ours.items():
        print(f"{name:44}{value:12.6f}{found[name]:12.6f}", flush=True)
    apart = max(abs(value - found[name]) / max(abs(found[name]), 1) for name, value in ours.items())
    yield Figure("synth: largest difference of a score", apart, 1e-5, "lower", "")


def half_found(world: Synth, model: Any) -> Any:
    """A top-k autoencoder of SAELens': truths, sums of two, opposites and random rows."""
    from sae_lens.saes.topk_sae import TopKSAE, TopKSAEConfig

    sae = TopKSAE(TopKSAEConfig(d_in=world.dimensions, d_sae=512, k=11))
    truth, generator = model.feature_dict.feature_vectors.detach(), torch.Generator().manual_seed(3)
    rows = torch.randn(512, world.dimensions, generator=generator)
    rows[:200] = truth[:200]
    rows[200:300] = truth[200:300] + truth[300:400]
    rows[300:330] = -truth[400:430]
    rows /= rows.norm(dim=1, keepdim=True)
    sae.load_state_dict({**sae.state_dict(), "W_dec": rows, "W_enc": rows.T.contiguous()})
    return sae


@torch.no_grad()
def our_scores(sae: Any, model: Any, samples: int) -> dict[str, float]:
    """What our functions say of an SAE of SAELens' on samples of its generator, under SAELens' names."""
    truth = model.activation_generator.sample(samples)
    x = model.feature_dict(truth)
    codes = sae.encode(x)
    output = sae.decode(codes)
    cosine = recovery.cosines(model.feature_dict.feature_vectors, sae.W_dec[None])
    nearest = latents.nearest_truth(cosine)
    counts = latents.count_latents(None, codes[None] != 0, truth > 0, nearest)
    fired = (codes[None] != 0).sum(1)
    scores = {
        "mcc": latents.absolute_mcc(cosine),
        "uniqueness": latents.uniqueness(nearest),
        "precision": counts.precision().mean(-1),
        "recall": counts.recall().mean(-1),
        "f1_score": counts.f1().mean(-1),
        "accuracy": counts.accuracy().mean(-1),
        "dead_latents": firing.dead(fired),
        "sae_l0": firing.l0(fired, samples),
        "true_l0": firing.l0((truth[None] != 0).sum(1), samples),
        "shrinkage": latents.Shrinkage.of(x, output[None]).mean(),
        "explained_variance": firing.Moments.of(x, output[None]).explained_variance(),
    }
    return {name: float(value) for name, value in scores.items()}


def sampling_speed() -> Iterator[Figure]:
    """A batch of 1,024 with its features, at both sizes; the quickest of several, taken in turns with theirs."""
    sizes = ("16,384 in 768", {}, (False,)), ("2,048 in 256", SCALED, (False, True))  # sparse at 16,384: 40 s a batch
    for name, settings, kinds in sizes:
        world = Synth(**settings, orthogonal_steps=0)
        model = their_model(world)
        for sparse in kinds:
            model.use_sparse_tensors = sparse
            ours, theirs = _quickest(world, model)
            kind = "sparse" if sparse else "dense"
            print(f"{name}: ours {1e3 * ours:.1f} ms, SAELens {1e3 * theirs:.1f} ms ({kind} tensors)", flush=True)
            yield Figure(f"synth: sampling, SAELens ({kind}) / ours, {name}", theirs / ours, 10, "higher", "×")


def _quickest(world: Synth, model: Any) -> tuple[float, float]:
    taken = np.full(2, np.inf)
    for repeat in range(SPEED_REPEATS):
        for side, draw in enumerate((lambda at: world.batch(at, BATCH), lambda _: model.sample_with_features(BATCH))):
            start = time.perf_counter()
            draw(repeat)
            taken[side] = min(taken[side], time.perf_counter() - start)
    return float(taken[0]), float(taken[1])
