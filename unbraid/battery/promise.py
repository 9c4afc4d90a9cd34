"""A promise: a sentence, and a check of it that raises AssertionError where it is broken."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from torch import Tensor

from unbraid.config import Config
from unbraid.config.plugins import fault
from unbraid.errors import UserError

Case = TypeVar("Case")


@dataclass(frozen=True)
class Example:
    """Settings under which a plugin acts, settings that turn it off (None if none do), and what is on beside it.

    A plugin's file says its own as `EXAMPLES = {"name": [Example(...)]}`; without, it is checked at its defaults, and
    `weight = 0` is taken to turn it off, where it has a weight.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    off: dict[str, Any] | None = None
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Mechanisms by name, as readers of the signals that it writes."""
    exact_gradients: bool = True
    """Of an activation rule: whether its gradients in training are true ones, and no estimate across a jump."""


@dataclass(frozen=True)
class Promise(Generic[Case]):
    """What is promised, and how that is checked: a word of why where it does not apply."""

    sentence: str
    check: Callable[[Case], str | None]


@dataclass(frozen=True)
class Verdict:
    """What became of a promise."""

    sentence: str
    state: Literal["kept", "broken", "does not apply"]
    why: str = ""


def examples_of(name: str, cls: type[Config]) -> Sequence[Example]:
    """What the module of a class says of it, or its defaults."""
    told = vars(sys.modules.get(cls.__module__, None) or object).get("EXAMPLES", {})
    if isinstance(told, Mapping) and name in told:
        return list(told[name])
    return [Example({}, {"weight": 0.0} if "weight" in cls.model_fields else None)]


def judge(promises: Sequence[Promise[Case]], cases: Mapping[str, Case]) -> Iterator[Verdict]:
    """Each promise in every case: broken in one is broken, and applying in none does not apply."""
    for promise in promises:
        why: list[str] = []
        broken = None
        for name, case in cases.items():
            try:
                if (reason := promise.check(case)) is not None:
                    why.append(reason)
            except UserError as problem:
                broken = f"{name}: {problem}"
            except AssertionError as problem:
                broken = f"{name}: {_first_lines(problem)}"
            except Exception as problem:
                broken = f"{name}: {fault(problem) or f'{type(problem).__name__}: {problem}'}"
            if broken is not None:
                break
        if broken is not None:
            yield Verdict(promise.sentence, "broken", broken)
        elif len(why) == len(cases):
            yield Verdict(promise.sentence, "does not apply", why[0])
        else:
            yield Verdict(promise.sentence, "kept")


def _first_lines(problem: AssertionError) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return " ".join(lines[:4])[:200] or "it is not so"


def assert_same(tensors: Mapping[str, Tensor], others: Mapping[str, Tensor], tolerance: float = 1e-9) -> None:
    """The same tensors by name, as close as this."""
    assert tensors.keys() == others.keys(), f"{sorted(tensors.keys() ^ others.keys())} is in one alone"
    for name, tensor in tensors.items():
        np.testing.assert_allclose(
            tensor.detach().numpy(), others[name].detach().numpy(), rtol=0, atol=tolerance, err_msg=name
        )
