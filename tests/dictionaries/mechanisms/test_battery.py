"""What every mechanism promises, over the registry: list a mechanism here and it is tested."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from unbraid.config import check, per_member_fields, to_toml
from unbraid.dictionaries import AuxK, BatchTopK, Dictionary, Relu, TopK
from unbraid.dictionaries.downstream import Downstream, Said
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import MECHANISMS, Enabled, Mechanism, Signals, enabled
from unbraid.dictionaries.mechanisms.mechanism import gather_signals
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fast_step import fast_step
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State, run_forward, step
from unbraid.members import stack_configs
from unbraid.worlds import Superposition


@dataclass(frozen=True)
class Example:
    """Settings under which it acts, settings that turn it off (None if none do), and what must be on beside it."""

    settings: dict[str, Any]
    off: dict[str, Any] | None
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)


class Readout(Downstream):
    """A model that goes on from a site by one layer and a readout, for what is trained through a model."""

    def __init__(self, x):
        self.x = x
        generator = torch.Generator().manual_seed(5)
        self.layer, self.readout = (torch.randn(*size, generator=generator).to(x) for size in ((6, 4), (6, 3)))

    def run(self, rows):
        hidden = (self.x[None] if rows is None else rows)[..., :6] @ self.layer
        return Said(hidden.tanh() @ self.layer.T @ self.readout, [hidden])

    @property
    def right(self):
        return self.as_it_is.logits[0].argsort(-1)[:, 1]


SPARSITY = {"sparsity": {"weight": 0.4}}
EXAMPLES = {
    "end_to_end": [
        Example({"weight": 3.0}, off={"weight": 0.0}),
        Example({"weight": 3.0, "loss": "cross_entropy"}, off={"weight": 0.0, "loss": "cross_entropy"}),
        Example({"weight": 3.0, "downstream": 2.0, "reconstruction": 0.0}, off=None, beside=SPARSITY),
    ],
    "sparsity": [
        Example({"weight": 0.4}, off={"weight": 0.0}),
        Example({"weight": 2.0, "form": "published"}, off={"weight": 0.0, "form": "published"}),
        Example({"weight": 0.4, "weigh_by": "decoder_norm"}, off={"weight": 0.0, "weigh_by": "decoder_norm"}),
        Example({"weight": 0.4, "cost": "tanh", "sharpness": 2.0}, off={"weight": 0.0, "cost": "tanh"}),
        Example({"weight": 0.4, "target_l0": 2.0}, off={"weight": 0.0, "target_l0": 2.0}),
    ],
    "p_annealing": [
        Example({"end": 0.3, "begin": 0.0}, off={"end": 1.0}, beside=SPARSITY),
        Example(
            {"end": 0.3, "begin": 0.1, "until": 0.5},
            off={"end": 1.0},
            beside={"sparsity": {"weight": 0.4, "weigh_by": "decoder_norm"}},
        ),
    ],
    "matryoshka": [
        Example({"weight": 0.5}, off={"weight": 0.0}),
        Example({"prefixes": [0.3, 0.6]}, off={"weight": 0.0}, beside={"sparsity": {"weight": 0.1}}),
    ],
    "adaptive_l1": [
        Example({"target": 0.1}, off={"rate": 0.0}, beside=SPARSITY),
        Example({"momentum": 0.5, "form": "published"}, off={"lowest": 1.0, "highest": 1.0}, beside=SPARSITY),
    ],
    "lateral_inhibition": [
        Example({"radius": 4, "every": 3}, off={"strength": 0.0}),
        Example({"radius": 4, "every": 3, "in_use": True}, off={"strength": 0.0}),
        Example({"radius": 4, "form": "published"}, off={"strength": 0.0, "form": "published"}, beside=SPARSITY),
    ],
    "adaptive_neighbourhoods": [
        Example({"share": 0.3}, off={"radius": 0}, beside={"lateral_inhibition": {"radius": 2}}),
        Example(
            {"share": 0.1, "radius": 3, "form": "published"},
            off={"radius": 0, "form": "published"},
            beside={"lateral_inhibition": {"form": "published", "radius": 4}},
        ),
    ],
    "reallocation": [
        Example({"every": 5, "threshold": 0.95}, off={"every": 5, "threshold": 0.0}, beside=SPARSITY),
        Example({"every": 5, "threshold": 0.95, "encoder_scale": 1.0}, off={"every": 5, "until": 0.0}),
        Example(
            {"every": 5, "threshold": 0.3, "form": "published"},
            off={"every": 5, "threshold": 0.0, "form": "published"},
        ),
    ],
    "pair_orthogonality": [
        Example({"weight": 20.0, "share": 0.3}, off={"tau": 0.0}),
        Example({"weight": 2.0, "tau": 1.0, "threshold": 0.1, "share": 0.3}, off={"weight": 0.0}),
        Example({"share": 0.3, "form": "published"}, off={"weight": 0.0, "form": "published"}),
        Example({"share": 0.3, "tau": 1.0, "form": "decoder_cosine"}, off={"weight": 0.0, "form": "decoder_cosine"}),
    ],
    "adaptive_tau": [
        Example(
            {"share": 1.0, "target": 0.05},
            off={"momentum": 1.0},
            beside={"pair_orthogonality": {"weight": 20.0, "share": 1.0}},
        ),
        Example(
            {"share": 0.3, "form": "published"},
            off={"momentum": 1.0, "form": "published"},
            beside={"pair_orthogonality": {"share": 0.3, "form": "published"}},
        ),
    ],
    "dynamic_pairs": [
        Example({"least": 2}, off={"least": 28}, beside={"pair_orthogonality": {"weight": 20.0, "share": 1.0}}),
        Example(
            {"least": 2, "form": "published"},
            off={"least": 28, "form": "published"},
            beside={"pair_orthogonality": {"share": 1.0, "form": "published"}},
        ),
    ],
    "correlation_pruning": [
        Example(
            {"threshold": 0.3, "every": 5, "least": 2, "directions": "random_orthogonal"},
            off={"threshold": 1.0, "every": 5, "least": 2},
        ),
        Example({"threshold": 0.3, "every": 5, "least": 2}, off={"threshold": 1.0, "every": 5, "least": 2}),
        Example(
            {"threshold": 0.3, "every": 5, "form": "published"},
            off={"threshold": 1.0, "every": 5, "form": "published"},
        ),
    ],
    "momentum_importance": [
        Example({}, off={"momentum": 1.0}, beside={"correlation_pruning": {"threshold": 0.2, "every": 5, "least": 2}}),
        Example(
            {"form": "published", "every": 3},
            off={"momentum": 1.0, "form": "published", "every": 3},
            beside={"correlation_pruning": {"threshold": 0.5, "every": 3, "form": "published"}},
        ),
    ],
}
WORLD = Superposition(dimensions=6, n_features=9, active=2.0)
DICTIONARIES = [
    Dictionary(d_sae=8),
    Dictionary(d_sae=8, activation=TopK(k=3, auxk=AuxK(weight=0.5, k=2, dead_after=24)), pre_bias=True),
    Dictionary(d_sae=8, activation=BatchTopK(k=2, auxk=AuxK(dead_after=24))),
]
TRAINING = Training(steps=12, batch=24, learning_rate=0.02, warmup_steps=2, decay_steps=4, clip=0.5)
CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]

SWITCHED = [(name, example) for name, example in CASES if example.off is not None]
COSTLY = [(name, example) for name, example in CASES if MECHANISMS[name].penalty is not Mechanism.penalty]
ENDS: dict[str, dict[str, torch.Tensor]] = {}
"""What several tests train alike, trained once."""

over_examples = pytest.mark.parametrize(("name", "example"), CASES)
over_dictionaries = pytest.mark.parametrize("dictionary", DICTIONARIES, ids=["relu", "topk", "batchtopk"])


def records(name, example, settings, factor=1.0):
    """The mechanism and those beside it, with every knob times this factor; without it where settings are None."""
    chosen = example.beside if settings is None else {**example.beside, name: settings}
    kinds = {key: MECHANISMS[key](**values) for key, values in chosen.items()}
    return {
        key: record.model_copy(
            update={knob: factor * getattr(record, knob) for knob in per_member_fields(type(record))}
        )
        for key, record in kinds.items()
    }


def stacked(members):
    return {key: stack_configs([member[key] for member in members]) for key in members[0]}


def begin(dictionary, mechanisms, seeds, relabel=None):
    """A start in float64, if asked with the features of every member in another order."""
    stack = State.start(dictionary, WORLD.dimensions, mechanisms, seeds).stack
    stack = stack.with_parameters({name: p.double() for name, p in stack.parameters().items()})
    if relabel is not None:
        stack = stack.with_parameters(relabelled(stack.parameters(), relabel))
    memories = {name: mechanism.start(stack) for name, mechanism in mechanisms.items()}
    return State(stack, Adam.start(stack.parameters()), memories)


def relabelled(tensors, order):
    """The tensors with features in another order; without lists of features, whose order is their own."""
    kept = {name: t for name, t in tensors.items() if t.ndim < 3 or not name.startswith("memory.")}
    return {name: t[:, order].clone() if t.ndim > 1 and "pre_bias" not in name else t for name, t in kept.items()}


@cache
def batch(position, samples):
    return WORLD.batch(position, samples).x


def go(state, training, mechanisms, until=TRAINING.steps):
    dtype = state.stack.encoder.dtype
    while state.step < until:
        x = batch(state.step, training.batch).to(dtype)
        step(state, x, training, mechanisms, downstream=Readout(x))
    return state.tensors()


def end(dictionary, mechanisms, seeds, rates=None, relabel=None):
    training = stack_configs(
        [TRAINING.model_copy(update={"learning_rate": rate}) for rate in rates or [0.02] * len(seeds)]
    )
    return go(begin(dictionary, mechanisms, seeds, relabel), training, mechanisms)


def end_of_two(name, example, settings, dictionary):
    """Of two members with these settings, or with what is beside the mechanism alone where they are None."""
    chosen = records(name, example, settings)
    trained = f"{dictionary!r} {chosen!r}"
    if trained not in ENDS:
        ENDS[trained] = end(dictionary, stacked([chosen] * 2), [0, 1])
    return ENDS[trained]


def assert_same(tensors, others, tolerance=1e-9):
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor.numpy(), others[name].numpy(), rtol=0, atol=tolerance, err_msg=name)


def test_every_registered_mechanism_has_an_example():
    assert set(EXAMPLES) == set(MECHANISMS)


@over_examples
def test_its_settings_survive_toml_and_its_presence_switches_it_on(name, example):
    record = MECHANISMS[name](**example.settings)
    tree = tomllib.loads(to_toml({name: record.to_dict()}))
    assert enabled(check(Enabled, tree, "here")) == {name: record}


@over_dictionaries
@over_examples
def test_it_does_something(name, example, dictionary):
    a, b = (end_of_two(name, example, settings, dictionary) for settings in (example.settings, None))
    changed = (a["stack.encoder"] - b["stack.encoder"]).abs().amax((1, 2))
    assert (changed > 1e-3).all()


@over_dictionaries
@pytest.mark.parametrize(("name", "example"), SWITCHED)
def test_off_is_identity(name, example, dictionary):
    ours, theirs = (end_of_two(name, example, settings, dictionary) for settings in (example.off, None))
    assert_same({key: t for key, t in ours.items() if key in theirs}, theirs, tolerance=1e-12)


@over_dictionaries
@over_examples
def test_company_does_not_matter(name, example, dictionary):
    """A member among others with other seeds, per_member_fields and rates ends where it ends alone."""
    members = [records(name, example, example.settings, factor) for factor in (3.0, 1.0, 0.5)]
    together = end(dictionary, stacked(members), [7, 4, 1], rates=[0.05, 0.02, 0.01])
    alone = end(dictionary, stacked(members[1:2]), [4], rates=[0.02])
    assert_same({key: t[1:2] for key, t in together.items()}, alone)
    assert (together["stack.encoder"][0] - together["stack.encoder"][1]).abs().max() > 1e-3


@over_dictionaries
@over_examples
def test_relabelling_features_commutes_with_training_unless_it_says_otherwise(name, example, dictionary):
    mechanisms, order = stacked([records(name, example, example.settings)] * 2), [3, 0, 7, 1, 6, 2, 5, 4]
    plain = end_of_two(name, example, example.settings, dictionary)
    other = relabelled(end(dictionary, mechanisms, [0, 1], relabel=order), range(8))
    if any(mechanism.ordered for mechanism in mechanisms.values()):
        assert (relabelled(plain, order)["stack.encoder"] - other["stack.encoder"]).abs().max() > 1e-3
    else:
        assert_same(relabelled(plain, order), other)


@over_dictionaries
@over_examples
def test_stopping_half_way_and_going_on_ends_with_the_same_bits(name, example, dictionary):
    mechanisms, seeds = stacked([records(name, example, example.settings)] * 2), [0, 1]
    whole = go(State.start(dictionary, WORLD.dimensions, mechanisms, seeds), TRAINING, mechanisms)

    stopped = State.start(dictionary, WORLD.dimensions, mechanisms, seeds)
    saved = {key: tensor.clone() for key, tensor in go(stopped, TRAINING, mechanisms, until=6).items()}
    resumed = State.start(dictionary, WORLD.dimensions, mechanisms, [8, 9])
    for key, tensor in resumed.tensors().items():
        tensor.copy_(saved[key])
    resumed.step = 6
    ended = go(resumed, TRAINING, mechanisms)

    assert whole.keys() == ended.keys()
    assert all(torch.equal(tensor, ended[key]) for key, tensor in whole.items())


@over_dictionaries
@pytest.mark.parametrize(("name", "example"), COSTLY)
def test_gradients_of_its_penalty_are_those_of_finite_differences(name, example, dictionary, rng):
    mechanisms = stacked([records(name, example, example.settings), records(name, example, example.settings, 2.0)])
    state = begin(dictionary, mechanisms, [0, 1])
    parameters = {
        key: p + 0.1 * torch.from_numpy(rng.standard_normal(p.shape)) for key, p in state.stack.parameters().items()
    }
    signals, x = gather_signals(mechanisms, state.memories, state.stack), WORLD.batch(0, 6).x.double()

    def cost(*values):
        stack = state.stack.with_parameters(dict(zip(parameters, values, strict=True)))
        return mechanisms[name].penalty(run_forward(stack, x, mechanisms, signals, None, Readout(x)), stack, signals)

    leaves = [p.requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(cost, leaves, fast_mode=True)


@pytest.mark.parametrize("activation", [Relu(), TopK(k=4)], ids=str)
@over_examples
def test_the_fast_step_is_the_readable_one_where_pairs_go_by_lists(name, example, activation):
    """In float32 on sparse codes, and wide enough that pairs go by lists."""
    mechanisms, ends = stacked([records(name, example, example.settings)] * 2), []
    world, training = Superposition(dimensions=24, n_features=48, active=2.0), Training(batch=96, learning_rate=1e-4)
    for take in (advance, lambda state, inputs, *rest: step(state, inputs.x, *rest, downstream=inputs.downstream)):
        state = State.start(Dictionary(d_sae=64, activation=activation), 24, mechanisms, [0, 1])
        state.stack.encoder_bias.fill_(-0.2)
        given = [Inputs(x, downstream=Readout(x)) for x in (world.batch(i, 96).x for i in range(6))]
        costs = [take(state, inputs, training, mechanisms).terms for inputs in given]
        ends.append(
            {**state.tensors(), **{f"{i}.{key}": cost for i, terms in enumerate(costs) for key, cost in terms.items()}}
        )
    assert_same(ends[0], ends[1], tolerance=1e-4)


@over_dictionaries
@over_examples
def test_encode_only_lowers_or_silences_what_would_fire(name, example, dictionary):
    mechanisms = stacked([records(name, example, example.settings)] * 2)
    state = begin(dictionary, mechanisms, [0, 1])
    go(state, TRAINING, mechanisms, until=6)
    signals, x = gather_signals(mechanisms, state.memories, state.stack), WORLD.batch(6, 24).x.double()
    would_fire, fires = (run_forward(state.stack, x, some, signals).codes for some in ({}, mechanisms))
    assert would_fire.features is fires.features or torch.equal(would_fire.features, fires.features)
    assert (fires.values <= would_fire.values).all()
    assert (fires.values >= 0).all()


@pytest.mark.parametrize("bias", [0.1, -0.4], ids=["dense", "sparse"])
@pytest.mark.parametrize("activation", [Relu(), TopK(k=4, auxk=AuxK(k=3, dead_after=64))], ids=["relu", "topk"])
@pytest.mark.parametrize(("name", "example"), [case for case in CASES if not MECHANISMS[case[0]].needs_model])
def test_the_fast_step_is_the_readable_one(name, example, activation, bias):
    mechanisms = stacked([records(name, example, example.settings), records(name, example, example.settings, 2.0)])
    fast, slow = (State.start(Dictionary(d_sae=40, activation=activation), 6, mechanisms, [0, 1]) for _ in range(2))
    for state in (fast, slow):
        state.stack.encoder_bias.copy_(bias + 0.01 * torch.arange(40).expand(2, 40) / 40)  # no ties where x is 0
    training = TRAINING.model_copy(update={"learning_rate": 0.002})
    for position in range(7):  # noise, since features that restart together fire alike where x is 0, and tie
        x = batch(position, 64) + 0.01 * torch.randn(64, 6, generator=torch.Generator().manual_seed(position))
        ours, theirs = fast_step(fast, Inputs(x), training, mechanisms), step(slow, x, training, mechanisms)
        for key, cost in theirs.terms.items():
            torch.testing.assert_close(ours.terms[key], cost, rtol=1e-5, atol=1e-5)
    assert_same(relabelled(fast.tensors(), range(40)), relabelled(slow.tensors(), range(40)), tolerance=1e-4)


@over_examples
def test_what_it_reads_and_writes_are_signals(name, example):
    assert MECHANISMS[name].reads | MECHANISMS[name].writes <= set(Signals.__dataclass_fields__)
