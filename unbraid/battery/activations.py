"""What every activation rule promises, in a dictionary of three members in general position and in training."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch

from unbraid.activations.normalization import Normalization
from unbraid.axes import Tensor
from unbraid.battery.promise import Example, Promise
from unbraid.config import check, to_toml
from unbraid.dictionaries import ACTIVATIONS, Dictionary, Stack
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Mechanism, Reset, Signals, Sparsity
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanisms, Memory
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, fit
from unbraid.dictionaries.training.step import State, run_forward, step
from unbraid.errors import UserError
from unbraid.worlds import Superposition

FEATURES, DIMENSIONS = 10, 6
TRAINING = Training(steps=12, batch=32, learning_rate=0.03)
WORLD = Superposition(dimensions=DIMENSIONS, n_features=12, active=2.0)
MECHANISMS: Mechanisms = {"sparsity": Sparsity(weight=0.1)}


@dataclass(frozen=True)
class RuleCase:
    """A rule by its name in the registry, an example of its settings, with a pre-bias or without."""

    name: str
    example: Example
    pre_bias: bool

    @property
    def dictionary(self) -> Dictionary:
        rule = ACTIVATIONS[self.name](**self.example.settings)
        return Dictionary(d_sae=FEATURES, activation=rule, pre_bias=self.pre_bias)

    @cached_property
    def stack(self) -> Stack:
        """Three members in general position, in float64: nothing is zero, encoder and decoder differ, memories too."""
        rng = np.random.default_rng(3)
        start = Stack.start(self.dictionary, DIMENSIONS, [0, 1, 2])
        changed = {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
        stack = start.with_parameters(changed)
        stack.normalize()
        stack.remember({name: torch.tensor([0.2, 0.3, 0.4]) for name in stack.memory if name == "threshold"})
        return stack

    @cached_property
    def trained(self) -> Stack:
        training = Training(steps=15, batch=64, learning_rate=0.03)
        return fit(WORLD, self.dictionary, training=training, seeds=[0, 1, 2])


def rule_cases(name: str, example: Example) -> dict[str, RuleCase]:
    """With a pre-bias, and without."""
    return {"plain": RuleCase(name, example, False), "with a pre-bias": RuleCase(name, example, True)}


@cache
def inputs() -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).standard_normal((9, DIMENSIONS)))


def survives_toml(case: RuleCase) -> None:
    dictionary = case.dictionary
    assert check(Dictionary, tomllib.loads(to_toml(dictionary.to_dict())), "here") == dictionary


def fires(case: RuleCase) -> None:
    codes = case.stack.encode(inputs())
    assert codes.to_dense().shape == (3, 9, FEATURES), f"codes are {tuple(codes.to_dense().shape)}, not (3, 9, 10)"
    assert codes.to_dense().isfinite().all(), "a code is not finite"
    assert (codes.to_dense() != 0).any((1, 2)).all(), "nothing fires in some member"


def is_the_same_alone(case: RuleCase) -> None:
    x, together = inputs(), case.stack.encode(inputs())
    for member in range(3):
        alone = case.stack.member(member)
        torch.testing.assert_close(alone.encode(x).to_dense()[0], together.to_dense()[member])
        torch.testing.assert_close(alone.decode(alone.encode(x))[0], case.stack.decode(together)[member])


def relabelling_relabels(case: RuleCase) -> None:
    stack, x = case.stack, inputs()
    order = torch.randperm(FEATURES, generator=torch.Generator().manual_seed(0))
    relabelled = stack.with_parameters(
        {name: p if name == "pre_bias" else p[:, order] for name, p in stack.parameters().items()}
    )
    before, after = stack.encode(x), relabelled.encode(x)
    torch.testing.assert_close(after.to_dense(), before.to_dense()[..., order])
    torch.testing.assert_close(relabelled.decode(after), stack.decode(before))


def gradients_in_use_are_right(case: RuleCase) -> None:
    parameters, x = case.stack.parameters(), inputs()

    def reconstruct(*values: Tensor) -> tuple[Tensor, ...]:
        changed = case.stack.with_parameters(dict(zip(parameters, values, strict=True)))
        codes = changed.encode(x)
        return changed.decode(codes), codes.l1()

    assert torch.autograd.gradcheck(reconstruct, [p.clone().requires_grad_() for p in parameters.values()])


def gradients_in_training_are_right(case: RuleCase) -> str | None:
    if not case.example.exact_gradients:
        return "declared: its gradients in training are estimates (`exact_gradients`)"
    parameters, x = case.stack.parameters(), inputs()

    def costs(*values: Tensor) -> tuple[Tensor, ...]:
        changed = case.stack.with_parameters(dict(zip(parameters, values, strict=True)))
        forward = run_forward(changed, x, {}, Signals())
        own = forward.fired.costs.values() if forward.fired else ()
        return changed.decode(forward.codes), forward.counted(), *own

    leaves = [p.clone().requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(costs, leaves, fast_mode=True)
    return None


def can_be_saved(case: RuleCase) -> None:
    trained, x = case.trained, inputs().float()
    restored = Stack.of({name: tensor.clone() for name, tensor in trained.tensors().items()}, trained.activation)
    assert torch.equal(restored.encode(x).to_dense(), trained.encode(x).to_dense()), "restored, it fires otherwise"
    assert restored.tensors().keys() == trained.tensors().keys()


def probabilities_agree(case: RuleCase) -> None:
    x = inputs()
    fired, probabilities = case.stack.encode(x).to_dense() != 0, case.stack.probabilities(x)
    assert ((probabilities >= 0) & (probabilities <= 1)).all(), "a probability is not between 0 and 1"
    assert (probabilities[fired] > 0.5).all(), "what fires has a probability below one half"


def begin(dictionary: Dictionary, seeds: Sequence[int], mechanisms: Mechanisms = MECHANISMS) -> State:
    return State.start(dictionary, DIMENSIONS, mechanisms, seeds)


@cache
def batch(position: int) -> Tensor:
    return WORLD.batch(position, TRAINING.batch).x


def go(state: State, until: int, mechanisms: Mechanisms = MECHANISMS) -> dict[str, Tensor]:
    while state.step < until:
        step(state, batch(state.step), TRAINING, mechanisms)
    return state.tensors()


def training_changes_it(case: RuleCase) -> None:
    before = {name: tensor.clone() for name, tensor in begin(case.dictionary, [0, 1]).stack.tensors().items()}
    after = go(begin(case.dictionary, [0, 1]), TRAINING.steps)
    unmoved = [name for name, tensor in before.items() if torch.equal(tensor, after[f"stack.{name}"])]
    assert unmoved in ([], ["noise_seed"]), f"training leaves {unmoved} as it was"


def resuming_is_exact(case: RuleCase) -> None:
    whole = go(begin(case.dictionary, [0, 1]), TRAINING.steps)
    saved = {name: tensor.clone() for name, tensor in go(begin(case.dictionary, [0, 1]), 6).items()}
    resumed = begin(case.dictionary, [8, 9])
    for name, tensor in resumed.tensors().items():
        tensor.copy_(saved[name])
    resumed.step = 6
    ended = go(resumed, TRAINING.steps)
    assert whole.keys() == ended.keys(), "other tensors are there when it was resumed"
    differing = [name for name, tensor in whole.items() if not torch.equal(tensor, ended[name])]
    assert not differing, f"{differing[0]} has other bits when it was resumed"


def company_does_not_matter(case: RuleCase) -> None:
    together = go(begin(case.dictionary, [7, 4, 1]), TRAINING.steps)
    for name, tensor in go(begin(case.dictionary, [4]), TRAINING.steps).items():
        torch.testing.assert_close(together[name][1:2], tensor, rtol=1e-3, atol=1e-4)
    apart = (together["stack.encoder"][0] - together["stack.encoder"][1]).abs().max()
    assert apart > 0.01, "members with other seeds end alike"


def fast_is_reference(case: RuleCase) -> None:
    """The step that training takes, and the codes that scores are made of, against the readable ones."""
    states = [begin(case.dictionary, [0, 1]) for _ in range(2)]
    for position in range(6):
        advance(states[0], Inputs(batch(position)), TRAINING, MECHANISMS)
        step(states[1], batch(position), TRAINING, MECHANISMS)
    for name, tensor in states[0].tensors().items():
        torch.testing.assert_close(tensor, states[1].tensors()[name], rtol=1e-3, atol=1e-4)
    x, stack = inputs().float(), states[0].stack
    torch.testing.assert_close(encode(stack, x).to_dense(), stack.encode(x).to_dense(), rtol=1e-4, atol=1e-5)


def scales_with_its_inputs(case: RuleCase) -> str | None:
    """So that the scale of captured activations can be folded into weights."""
    try:
        fold(case.stack, Normalization(torch.zeros(DIMENSIONS).double(), 3.0))
    except UserError:
        return "its codes do not grow with pre-activations, so a scale cannot be folded into its weights"
    return None


class Renew(Mechanism):
    """Starts feature 3 of member 1 anew after every step."""

    def edit(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Reset:
        features = torch.zeros(stack.members, FEATURES, dtype=torch.bool)
        features[1, 3] = True
        rows = torch.ones(*features.shape, DIMENSIONS)
        return Reset(features, rows, rows)


def a_reset_feature_is_new(case: RuleCase) -> str | None:
    weights = case.dictionary.activation.parameters(2, FEATURES)
    if not weights:
        return "it has no weights of its own"
    mechanisms = {**MECHANISMS, "renew": Renew()}
    state = begin(case.dictionary, [0, 1], mechanisms)
    go(state, 4, mechanisms)
    for name, beginning in weights.items():
        assert state.stack.rule[name][1, 3] == beginning[1, 3], f"{name} of a reset feature is not what it began as"
        assert (state.stack.rule[name] != beginning).any()
        assert state.adam.age[name][1, 3] == 0
        assert state.adam.age[name][0, 3] == 4
    return None


PROMISES: tuple[Promise[RuleCase], ...] = (
    Promise("settings survive TOML", survives_toml),
    Promise("something fires, all finite", fires),
    Promise("a member fires alone as in its stack", is_the_same_alone),
    Promise("relabelling features relabels codes", relabelling_relabels),
    Promise("gradients in use are those of finite differences", gradients_in_use_are_right),
    Promise("gradients in training are those of finite differences", gradients_in_training_are_right),
    Promise("saved and restored it is the same", can_be_saved),
    Promise("probabilities agree with what fires", probabilities_agree),
    Promise("training changes all its weights", training_changes_it),
    Promise("resuming gives the same bits", resuming_is_exact),
    Promise("company does not matter", company_does_not_matter),
    Promise("the fast step is the readable one", fast_is_reference),
    Promise("the scale of activations can be folded in", scales_with_its_inputs),
    Promise("a reset feature is new to it", a_reset_feature_is_new),
)
