"""A dictionary shared out among processes learns what one process would have learned."""

import numpy as np
import pytest
import torch

from tests.meshes import in_threads
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Relu, TopK
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import (
    AdaptiveL1,
    AdaptiveTau,
    DynamicPairs,
    PairOrthogonality,
    PAnnealing,
    Sparsity,
)
from unbraid.dictionaries.stack import Dictionary, Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.sharded_step import sharded_step
from unbraid.dictionaries.training.step import State, step
from unbraid.members import stack_configs
from unbraid.mesh import Mesh

F, D, B = 23, 8, 12
"""Uneven in two and in three. Dictionaries begin as `unit`: where encoder and decoder are the same, a feature that
fires alone has a gradient that is nothing but rounding, which Adam divides by its own size."""
MESHES = [(2, 1), (3, 1), (1, 2), (2, 2)]


def batch_of(position: int, target: bool = False) -> Inputs:
    rng = np.random.default_rng(position)
    x = torch.from_numpy(rng.standard_normal((B, D)).astype(np.float32))
    return Inputs(x, target=torch.roll(x, 1, 1)[:, :6].contiguous() if target else None)


def trained(mesh: Mesh | None, dictionary, mechanisms=None, steps=8, target=False, seeds=(0, 1), **settings):
    """The state after some steps, and what every step reported; without a mesh by the readable step."""
    training = stack_configs([Training(steps=steps, batch=B, learning_rate=0.01, **settings)] * len(seeds))
    named = {name: stack_configs([mechanism] * len(seeds)) for name, mechanism in (mechanisms or {}).items()}
    aim = Target(6) if target else None
    rows = None if mesh is None else mesh.features(dictionary.d_sae)
    state, outputs = State.start(dictionary, D, named, seeds, None, aim, rows), []
    for position in range(steps):
        inputs = batch_of(position, target)
        if mesh is None:
            outputs.append(step(state, inputs.x, training, named, inputs.target))
        else:
            outputs.append(sharded_step(state, inputs, training, named, dictionary.d_sae, mesh))
    return state, outputs


def joined(states: list[State], shards: int) -> dict[str, torch.Tensor]:
    """The tensors of the whole, from those of the shards."""
    whole, parts = states[0].tensors(), [state.tensors() for state in states[:shards]]
    f = sum(state.stack.features for state in states[:shards])
    first = states[0].stack.features
    by_feature = {name: t.ndim > 1 and t.shape[1] == first and "pre_bias" not in name for name, t in whole.items()}
    joint = {n: torch.cat([part[n] for part in parts], 1) if by_feature[n] else whole[n] for n in whole}
    assert joint["stack.encoder"].shape[1] == f
    return joint


def agrees(shards, data, dictionary, mechanisms=None, target=False, **settings):
    expected, reports = trained(None, dictionary, mechanisms, target=target, **settings)
    found = in_threads(shards, data, lambda mesh: trained(mesh, dictionary, mechanisms, target=target, **settings))
    whole = joined([state for state, _ in found], shards)
    for name, tensor in expected.tensors().items():
        torch.testing.assert_close(whole[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda words, n=name: f"{n}: {words}")
    for _, outputs in found:
        for report, output in zip(reports, outputs, strict=True):
            assert output.terms.keys() == report.terms.keys()
            for name, cost in report.terms.items():
                torch.testing.assert_close(output.terms[name], cost.float(), rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(output.l0, report.l0)


RULES = {
    "topk": Dictionary(d_sae=F, activation=TopK(k=3), init="unit"),
    "topk auxk": Dictionary(d_sae=F, activation=TopK(k=2, auxk=AuxK(dead_after=20, k=2)), pre_bias=True, init="unit"),
    "topk wide": Dictionary(d_sae=F, activation=TopK(k=12), pre_bias=True, init="unit"),
    "batchtopk": Dictionary(d_sae=F, activation=BatchTopK(k=2, auxk=AuxK(dead_after=20)), init="unit"),
    "batchtopk wide": Dictionary(d_sae=F, activation=BatchTopK(k=9), init="unit"),
    "relu": Dictionary(d_sae=F, activation=Relu(), pre_bias=True, init="unit"),
    "jumprelu": Dictionary(d_sae=F, activation=JumpRelu(threshold=1.2, bandwidth=0.5), init="unit"),
    "gated": Dictionary(d_sae=F, activation=Gated(), init="unit"),
}


@pytest.mark.parametrize(("shards", "data"), MESHES)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns_what_one_process_learns(rule: str, shards: int, data: int):
    counts = isinstance(RULES[rule].activation, Relu | JumpRelu | Gated)
    agrees(shards, data, RULES[rule], {"sparsity": Sparsity(weight=0.05)} if counts else {})


@pytest.mark.parametrize(
    ("dictionary", "mechanisms", "settings"),
    [
        (RULES["topk"], {}, {"clip": 0.5}),
        (RULES["topk auxk"], {}, {"clip": 0.5, "reconstruction_loss": "norm"}),
        (RULES["relu"], {"sparsity": Sparsity(target_l0=3.0), "p_annealing": PAnnealing(end=0.5)}, {}),
        (RULES["jumprelu"], {"sparsity": Sparsity(weight=0.05), "adaptive_l1": AdaptiveL1()}, {}),
        (RULES["relu"], {"sparsity": Sparsity(weigh_by="decoder_norm", cost="tanh")}, {"clip": 1.0}),
        (RULES["topk"], {"pair_orthogonality": PairOrthogonality(share=0.05)}, {}),
        (
            RULES["batchtopk"],
            {
                "pair_orthogonality": PairOrthogonality(share=0.05, tau=0.2),
                "adaptive_tau": AdaptiveTau(share=0.05),
                "dynamic_pairs": DynamicPairs(least=3, form="published"),
            },
            {},
        ),
        (RULES["relu"], {"sparsity": Sparsity(weight=0.3), "pair_orthogonality": PairOrthogonality(share=0.05)}, {}),
    ],
    ids=["clip", "norm", "power", "l1", "weighed", "pairs", "tau", "dense pairs"],
)
@pytest.mark.parametrize(("shards", "data"), [(3, 1), (2, 2)])
def test_settings_and_mechanisms_do_what_they_do_in_one_process(dictionary, mechanisms, settings, shards, data):
    agrees(shards, data, dictionary, mechanisms, **settings)


@pytest.mark.parametrize("free", [False, True])
def test_transcoders(free: bool):
    norm, weigh = ("free", "decoder_norm") if free else ("unit", "code")
    dictionary = Dictionary(d_sae=F, activation=TopK(k=3), init="unit", skip=True, pre_bias=True, decoder_norm=norm)
    agrees(2, 2, dictionary, {"sparsity": Sparsity(weight=0.05, weigh_by=weigh)}, target=True)
