"""What every mechanism promises; small dictionaries of three rules are trained to see it."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from unbraid.axes import Tensor
from unbraid.battery.promise import Example, Promise, assert_same
from unbraid.config import check, per_member_fields, to_toml
from unbraid.dictionaries import AuxK, BatchTopK, Dictionary, Relu, TopK
from unbraid.dictionaries.activations import Activation
from unbraid.dictionaries.downstream import Downstream, Said
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import MECHANISMS, Enabled, Mechanism, enabled
from unbraid.dictionaries.mechanisms.mechanism import Mechanisms, gather_signals, penalty_of
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fast_step import fast_step
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State, StepOutput, run_forward, step
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=6, n_features=9, active=2.0)
WIDE = Superposition(dimensions=24, n_features=48, active=2.0)
DICTIONARIES = {
    "relu": Dictionary(d_sae=8),
    "topk": Dictionary(d_sae=8, activation=TopK(k=3, auxk=AuxK(weight=0.5, k=2, dead_after=24)), pre_bias=True),
    "batchtopk": Dictionary(d_sae=8, activation=BatchTopK(k=2, auxk=AuxK(dead_after=24))),
}
TRAINING = Training(steps=12, batch=24, learning_rate=0.02, warmup_steps=2, decay_steps=4, clip=0.5)
ORDER = [3, 0, 7, 1, 6, 2, 5, 4]
Settings = dict[str, Any] | None

_ends: dict[str, dict[str, Tensor]] = {}
"""What several promises train alike, trained once."""


class Readout(Downstream):
    """A model that goes on from a site by one layer and a readout, for what is trained through a model."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        generator = torch.Generator().manual_seed(5)
        self.layer, self.readout = (torch.randn(*size, generator=generator).to(x) for size in ((6, 4), (6, 3)))

    def run(self, rows: Tensor | None) -> Said:
        hidden = (self.x[None] if rows is None else rows)[..., :6] @ self.layer
        return Said(hidden.tanh() @ self.layer.T @ self.readout, [hidden])

    @property
    def right(self) -> Tensor:
        return self.as_it_is.logits[0].argsort(-1)[:, 1]


@dataclass(frozen=True)
class MechanismCase:
    """A mechanism by its name in the registry, an example of its settings, and a dictionary that is trained with it."""

    name: str
    example: Example
    dictionary: Dictionary

    def members(self, settings: Settings, factor: float = 1.0) -> dict[str, Mechanism]:
        """It and those beside it, with every per-member number times this factor; without it where there are none."""
        beside = self.example.beside
        chosen = beside if settings is None else {**beside, self.name: settings}
        kinds = {key: MECHANISMS[key](**values) for key, values in chosen.items()}
        return {
            key: record.model_copy(
                update={field: factor * getattr(record, field) for field in per_member_fields(type(record))}
            )
            for key, record in kinds.items()
        }

    def twice(self) -> dict[str, Mechanism]:
        """It and those beside it, for a stack of two members."""
        return stacked([self.members(self.example.settings)] * 2)

    def end_of_two(self, settings: Settings) -> dict[str, Tensor]:
        """Of two members with these settings, or with what is beside the mechanism alone where there are none."""
        chosen = self.members(settings)
        key = f"{[type(mechanism) for mechanism in chosen.values()]} {self.dictionary!r} {chosen!r}"
        if key not in _ends:
            _ends[key] = end(self.dictionary, stacked([chosen] * 2), [0, 1])
        return _ends[key]


def mechanism_cases(name: str, example: Example) -> dict[str, MechanismCase]:
    """With each of the three rules."""
    return {rule: MechanismCase(name, example, dictionary) for rule, dictionary in DICTIONARIES.items()}


def stacked(members: Sequence[Mapping[str, Mechanism]]) -> dict[str, Mechanism]:
    """The mechanisms of several members as those of their stack."""
    return {key: stack_configs([member[key] for member in members]) for key in members[0]}


def begin(
    dictionary: Dictionary, mechanisms: Mechanisms, seeds: Sequence[int], relabel: Sequence[int] | None = None
) -> State:
    """A start in float64, if asked with the features of every member in another order."""
    stack = State.start(dictionary, WORLD.dimensions, mechanisms, seeds).stack
    stack = stack.with_parameters({name: p.double() for name, p in stack.parameters().items()})
    if relabel is not None:
        stack = stack.with_parameters(relabelled(stack.parameters(), relabel))
    memories = {name: mechanism.start(stack) for name, mechanism in mechanisms.items()}
    return State(stack, Adam.start(stack.parameters()), memories)


def relabelled(tensors: Mapping[str, Tensor], order: Sequence[int]) -> dict[str, Tensor]:
    """The tensors with features in another order; without lists of features, whose order is their own."""
    kept = {name: t for name, t in tensors.items() if t.ndim < 3 or not name.startswith("memory.")}
    return {name: t[:, order].clone() if t.ndim > 1 and "pre_bias" not in name else t for name, t in kept.items()}


@cache
def batch(position: int, samples: int) -> Tensor:
    return WORLD.batch(position, samples).x


def go(state: State, training: Training, mechanisms: Mechanisms, until: int = TRAINING.steps) -> dict[str, Tensor]:
    """The tensors of a state that has gone on to this step."""
    dtype = state.stack.encoder.dtype
    while state.step < until:
        x = batch(state.step, training.batch).to(dtype)
        step(state, x, training, mechanisms, downstream=Readout(x))
    return state.tensors()


def end(
    dictionary: Dictionary,
    mechanisms: Mechanisms,
    seeds: Sequence[int],
    rates: Sequence[float] | None = None,
    relabel: Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """The tensors at the end of a training."""
    training = stack_configs(
        [TRAINING.model_copy(update={"learning_rate": rate}) for rate in rates or [0.02] * len(seeds)]
    )
    return go(begin(dictionary, mechanisms, seeds, relabel), training, mechanisms)


def survives_toml(case: MechanismCase) -> None:
    record = MECHANISMS[case.name](**case.example.settings)
    tree = tomllib.loads(to_toml({case.name: record.to_dict()}))
    assert enabled(check(Enabled, tree, "here")) == {case.name: record}, "settings are others after TOML"


def does_something(case: MechanismCase) -> None:
    with_it, without = case.end_of_two(case.example.settings), case.end_of_two(None)
    changed = (with_it["stack.encoder"] - without["stack.encoder"]).abs().amax((1, 2))
    assert (changed > 1e-3).all(), f"twelve steps with it end {float(changed.min()):.1g} from those without"


def off_is_identity(case: MechanismCase) -> str | None:
    if case.example.off is None:
        return "no settings turn it off"
    ours, theirs = case.end_of_two(case.example.off), case.end_of_two(None)
    assert_same({key: t for key, t in ours.items() if key in theirs}, theirs, tolerance=1e-12)
    return None


def company_does_not_matter(case: MechanismCase) -> None:
    """A member among others with other seeds, per-member settings and rates ends where it ends alone."""
    members = [case.members(case.example.settings, factor) for factor in (3.0, 1.0, 0.5)]
    together = end(case.dictionary, stacked(members), [7, 4, 1], rates=[0.05, 0.02, 0.01])
    alone = end(case.dictionary, stacked(members[1:2]), [4], rates=[0.02])
    assert_same({key: t[1:2] for key, t in together.items()}, alone)
    apart = float((together["stack.encoder"][0] - together["stack.encoder"][1]).abs().max())
    assert apart > 1e-3, "members with other seeds end alike"


def relabelling_commutes(case: MechanismCase) -> str | None:
    mechanisms = case.twice()
    plain = case.end_of_two(case.example.settings)
    other = relabelled(end(case.dictionary, mechanisms, [0, 1], relabel=ORDER), range(8))
    if any(mechanism.ordered for mechanism in mechanisms.values()):
        apart = (relabelled(plain, ORDER)["stack.encoder"] - other["stack.encoder"]).abs().max()
        assert apart > 1e-3, "it says that the order of features matters, and that does not"
        return "declared: the order of features means something (`ordered`)"
    assert_same(relabelled(plain, ORDER), other)
    return None


def resuming_is_exact(case: MechanismCase) -> None:
    mechanisms, seeds = case.twice(), [0, 1]
    whole = go(State.start(case.dictionary, WORLD.dimensions, mechanisms, seeds), TRAINING, mechanisms)

    stopped = State.start(case.dictionary, WORLD.dimensions, mechanisms, seeds)
    saved = {key: tensor.clone() for key, tensor in go(stopped, TRAINING, mechanisms, until=6).items()}
    resumed = State.start(case.dictionary, WORLD.dimensions, stacked([case.members(case.example.settings)] * 2), [8, 9])
    for key, tensor in resumed.tensors().items():
        tensor.copy_(saved[key])
    resumed.step = 6
    ended = go(resumed, TRAINING, mechanisms)

    assert whole.keys() == ended.keys(), "other tensors are there when it was resumed"
    differing = [key for key, tensor in whole.items() if not torch.equal(tensor, ended[key])]
    assert not differing, f"{differing[0]} has other bits when it was resumed"


def gradients_are_right(case: MechanismCase) -> str | None:
    if MECHANISMS[case.name].penalty is Mechanism.penalty:
        return "it adds no cost"
    settings, rng = case.example.settings, np.random.default_rng(0)
    mechanisms = stacked([case.members(settings), case.members(settings, 2.0)])
    state = begin(case.dictionary, mechanisms, [0, 1])
    parameters = {
        key: p + 0.1 * torch.from_numpy(rng.standard_normal(p.shape)) for key, p in state.stack.parameters().items()
    }
    signals, x = gather_signals(mechanisms, state.memories, state.stack), WORLD.batch(0, 6).x.double()

    def cost(*values: Tensor) -> Tensor | None:
        stack = state.stack.with_parameters(dict(zip(parameters, values, strict=True)))
        forward = run_forward(stack, x, mechanisms, signals, memories=state.memories, downstream=Readout(x))
        found = penalty_of(case.name, mechanisms[case.name], forward, state.memories[case.name], stack, signals)
        return torch.zeros(2, dtype=x.dtype) + found if found is not None else None

    leaves = [p.requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(cost, leaves, fast_mode=True)  # pyright: ignore[reportArgumentType]
    return None


def fast_is_reference(case: MechanismCase) -> None:
    """On few features whose codes are dense or sparse, and on so many that pairs go by lists."""
    topk = isinstance(case.dictionary.activation, TopK)
    fast_on_lists(case, TopK(k=4) if topk else Relu())
    for bias in (0.1, -0.4):
        fast_on_few(case, TopK(k=4, auxk=AuxK(k=3, dead_after=64)) if topk else Relu(), bias)


def fast_on_few(case: MechanismCase, activation: Activation, bias: float) -> None:
    if MECHANISMS[case.name].needs_model:
        return  # it always takes the readable step
    settings = case.example.settings
    mechanisms = stacked([case.members(settings), case.members(settings, 2.0)])
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


def fast_on_lists(case: MechanismCase, activation: Activation) -> None:
    """In float32 on sparse codes, and wide enough that pairs go by lists."""
    mechanisms, training = case.twice(), Training(batch=96, learning_rate=1e-4)
    ends: list[dict[str, Tensor]] = []
    takes: list[Callable[[State, Inputs], StepOutput]] = [
        lambda state, inputs: advance(state, inputs, training, mechanisms),
        lambda state, inputs: step(state, inputs.x, training, mechanisms, downstream=inputs.downstream),
    ]
    for take in takes:
        state = State.start(Dictionary(d_sae=64, activation=activation), 24, mechanisms, [0, 1])
        state.stack.encoder_bias.fill_(-0.2)
        given = [Inputs(x, downstream=Readout(x)) for x in (WIDE.batch(i, 96).x for i in range(6))]
        costs = [take(state, inputs).terms for inputs in given]
        terms = {f"{i}.{key}": cost for i, terms in enumerate(costs) for key, cost in terms.items()}
        ends.append({**state.tensors(), **terms})
    assert_same(ends[0], ends[1], tolerance=1e-4)


def encode_only_lowers(case: MechanismCase) -> str | None:
    if MECHANISMS[case.name].encode is Mechanism.encode:
        return "it does not act on codes"
    mechanisms = case.twice()
    state = begin(case.dictionary, mechanisms, [0, 1])
    go(state, TRAINING, mechanisms, until=6)
    signals, x = gather_signals(mechanisms, state.memories, state.stack), WORLD.batch(6, 24).x.double()
    would_fire = run_forward(state.stack, x, {}, signals).codes
    fires = run_forward(state.stack, x, mechanisms, signals, memories=state.memories).codes
    assert would_fire.features is fires.features or torch.equal(would_fire.features, fires.features)  # pyright: ignore
    raised = float((fires.values - would_fire.values).max())
    assert raised <= 0, f"it raises a code by {raised:.1g}"
    assert (fires.values >= 0).all(), "it makes a code negative"
    return None


PROMISES: tuple[Promise[MechanismCase], ...] = (
    Promise("settings survive TOML, and presence switches it on", survives_toml),
    Promise("does something", does_something),
    Promise("off is identity", off_is_identity),
    Promise("company does not matter", company_does_not_matter),
    Promise("relabelling features commutes with training", relabelling_commutes),
    Promise("resuming gives the same bits", resuming_is_exact),
    Promise("gradients are those of finite differences", gradients_are_right),
    Promise("the fast step is the readable one", fast_is_reference),
    Promise("codes are only lowered or silenced", encode_only_lowers),
)
