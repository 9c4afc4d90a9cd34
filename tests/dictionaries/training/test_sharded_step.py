"""A dictionary shared out among processes learns what one process would have learned."""

import re

import numpy as np
import pytest
import torch

from tests.meshes import in_threads
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Relu, TopK
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.lists import Inputs, encode_lists
from unbraid.dictionaries.mechanisms import (
    MECHANISMS,
    AdaptiveL1,
    AdaptiveTau,
    DynamicPairs,
    Mechanism,
    PairOrthogonality,
    PAnnealing,
    Sparsity,
)
from unbraid.dictionaries.stack import Dictionary, Stack, Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.sharded_step import _fire, sharded_step
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import NotFinite, UserError
from unbraid.members import stack_configs
from unbraid.mesh import Mesh, part
from unbraid.pipeline.expand import expand

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


@pytest.mark.parametrize(("shards", "data"), [(2, 1), (3, 1), (2, 2)])
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


def exact(rng: np.random.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    """Small whole numbers, whose products and sums are exact: many of them are equal."""
    return torch.from_numpy(rng.integers(-2, 3, shape).astype(np.float32))


@pytest.mark.parametrize(("shards", "data"), MESHES)
@pytest.mark.parametrize("rule", [TopK(k=3), BatchTopK(k=1), BatchTopK(k=3)])
def test_of_ties_the_first_fire_as_in_one_process(rng, rule, shards: int, data: int):
    """By feature in a sample; in a batch by sample and then by feature."""
    encoder, x = exact(rng, (1, F, D)), exact(rng, (B, D))
    pre = torch.einsum("bd,mfd->mbf", x, encoder).relu()[0]
    groups = [pre] if isinstance(rule, BatchTopK) else list(pre)
    expected = torch.zeros_like(pre)
    for sample, values in enumerate(groups):
        flat = values.flatten()
        order = sorted(range(len(flat)), key=lambda place: (-flat[place], place))
        chosen = [place for place in order if flat[place] > 0][: rule.k * (B if values is pre else 1)]
        target = expected.view(-1) if values is pre else expected[sample]
        target[chosen] = flat[chosen]
    assert (expected != pre).any()

    def fires(mesh: Mesh) -> tuple[torch.Tensor, slice, slice]:
        rows, some = mesh.features(F), mesh.samples(B)
        n = rows.stop - rows.start
        part = encoder[:, rows].contiguous(), torch.zeros(1, n), torch.zeros(1, n, D)
        stack = Stack(*part, None, rule, memory=rule.memory([0]))
        return _fire(stack, Inputs(x[some]), B, mesh)[0].codes.to_dense()[0], some, rows

    found = torch.zeros_like(pre)
    for codes, some, rows in in_threads(shards, data, fires):
        found[some, rows] = codes
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_one_process_keeps_the_first_of_ties_too(rng):
    encoder, x = exact(rng, (1, 70, D)), exact(rng, (40, D))
    stack = Stack(encoder, torch.zeros(1, 70), torch.zeros(1, 70, D), None, TopK(k=4))
    lists = encode_lists(stack, Inputs(x))
    assert lists is not None
    pre = (x @ encoder[0].T).tolist()
    for sample, values in enumerate(pre):
        first = sorted(range(70), key=lambda feature: (-values[feature], feature))[:4]
        fires = sorted(feature for feature in first if values[feature] > 0)
        assert lists.features[0, sample, : lists.counts[0, sample]].tolist() == fires


@pytest.mark.parametrize("init", ["tied", "unit", "published", "data"])
@pytest.mark.parametrize("target", [None, Target(6)])
def test_a_shard_begins_as_its_rows_of_the_whole(init, target, monkeypatch):
    monkeypatch.setattr("unbraid.dictionaries.stack.PIECE", 4)
    dictionary = Dictionary(d_sae=F, activation=JumpRelu(), init=init, pre_bias=True)
    x = batch_of(0).x
    whole = Stack.start(dictionary, D, [3, 4], x, target).tensors()
    for shard in range(3):
        rows = part(F, 3, shard)
        for name, tensor in Stack.start(dictionary, D, [3, 4], x, target, rows).tensors().items():
            expected = whole[name] if name in ("pre_bias", "decoder_bias") else whole[name][:, rows]
            assert torch.equal(tensor, expected), name


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workers": 3, "shards": 2}, "shards is 2 of 3 workers; accepted: a number that divides workers"),
        ({"workers": 30}, "30 workers in 30 shards are too many for 23 features"),
        ({"workers": 2, "dictionary": {"activation": {"kind": "variational"}}}, "draws at random for all features"),
        ({"workers": 2, "mechanisms": {"matryoshka": {}}}, "mechanisms.matryoshka sums up every prefix"),
        ({"workers": 2, "mechanisms": {"lateral_inhibition": {}}}, "lets a feature silence those of other processes"),
        ({"workers": 2, "mechanisms": {"sparsity": {"form": "published"}}}, "by the number of all features"),
        ({"workers": 2, "baseline": {"kind": "pca"}, "dictionary": None}, "a baseline is fitted in one process"),
    ],
)
def test_what_cannot_be_split_is_refused_before_anything_starts(settings, words: str):
    tree = {"dictionary": {"d_sae": F}, **settings}
    for name in [name for name, value in tree.items() if value is None]:
        del tree[name]
    if "dictionary" in tree:
        tree["dictionary"] = {"d_sae": F, **tree["dictionary"]}
    with pytest.raises(UserError, match=re.escape(words)):
        expand(tree, "config.toml")


def test_every_mechanism_says_whether_it_can_be_split():
    reasons = {name: kind().needs_whole() for name, kind in MECHANISMS.items()}
    can = {"sparsity", "pair_orthogonality", "adaptive_tau", "dynamic_pairs", "adaptive_l1", "p_annealing"}
    assert {name for name, reason in reasons.items() if reason is None} == can
    assert Mechanism.whole_because not in reasons.values()


def test_a_loss_that_is_not_finite_stops_everybody_before_anything_changes():
    def stopped(mesh: Mesh) -> tuple[str, bool]:
        state, _ = trained(mesh, RULES["topk"], steps=1)
        before = {name: tensor.clone() for name, tensor in state.tensors().items()}
        training = stack_configs([Training(steps=9, batch=B)] * 2)
        x = torch.full((B, D), 1e30)
        with pytest.raises(NotFinite) as problem:
            sharded_step(state, Inputs(x), training, {}, F, mesh)
        return str(problem.value), all(torch.equal(before[name], t) for name, t in state.tensors().items())

    for words, unchanged in in_threads(2, 1, stopped):
        assert "loss term 'reconstruction' of member 0 is not finite at step 1" in words
        assert unchanged


def test_batch_top_k_where_nearly_everything_is_a_candidate(monkeypatch):
    monkeypatch.setattr("unbraid.dictionaries.lists._first_slots", lambda stack, samples: 1)
    agrees(2, 1, RULES["batchtopk wide"])
