"""The one place where a constraint may act: a cost per member, of what one layer's heads look at, read and write.

The arguments of `cost` name what it needs; a model that is taught under it records that and nothing else.

| argument  | what                                             | shape       |
|-----------|--------------------------------------------------|-------------|
| `pattern` | what each head looks at (as dropped in training) | `m b h t s` |
| `output`  | what each head reads                             | `m b h t e` |
| `written` | what each head adds to the residual stream       | `m b h t d` |
| `mask`    | which tokens are not padding                     | `b t`       |
| `keys`    | how many keys each query may see                 | `b t`       |
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, Strict, field_validator

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import Knob, Record
from unbraid.errors import Refusal
from unbraid.models.transformer import Passed

EPSILON = 1e-9
HOOKS = {"pattern": "attn.hook_pattern", "output": "attn.hook_z", "written": "attn.hook_result"}

Numbers = Annotated[tuple[Annotated[int, Strict()], ...], Field(strict=False)]
"""Of layers; a TOML file has lists and no tuples."""
NAMED = 'accepted: "last", "all", or a list of different numbers from 0'


class Constraint(Record, ABC):
    """A cost on heads; its fields are its settings. Over several layers it is their mean."""

    weight: Knob = Field(default=1.0, ge=0)
    layers: Literal["last", "all"] | Numbers = "last"

    @field_validator("layers", mode="before")
    @classmethod
    def name_layers(cls, layers: Any) -> Any:
        numbers = isinstance(layers, list | tuple) and all(type(layer) is int for layer in layers)
        if layers not in ("last", "all") and not numbers:
            raise ValueError(NAMED)
        if numbers and len(set(layers)) < len(layers):
            raise ValueError(f"each layer counts once; {NAMED}")
        return layers

    @abstractmethod
    def cost(self, *args: Any, **kwargs: Any) -> Float[Tensor, "m"]:
        """Of one layer, without the weight."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The arguments of `cost`, or those of them that its form uses."""
        return tuple(inspect.signature(self.cost).parameters)

    def chosen(self, layers: int) -> tuple[int, ...]:
        """The layers it acts on, in a model of so many."""
        if isinstance(self.layers, tuple):
            lacking = [layer for layer in self.layers if not 0 <= layer < layers]
            if lacking or not self.layers:
                asked = f"layer {lacking[0]}" if lacking else "no layer"
                raise Refusal(
                    f"{type(self).__name__} was asked for {asked} of a model of {layers} layers; "
                    f'accepted: "last", "all", or numbers from 0 to {layers - 1}'
                )
            return self.layers
        return (layers - 1,) if self.layers == "last" else tuple(range(layers))


Constraints = Mapping[str, Constraint]


def recorded_for(constraints: Constraints, layers: int) -> frozenset[str]:
    """What a model must record so that these can be reckoned."""
    return frozenset(
        f"blocks.{layer}.{HOOKS[need]}"
        for constraint in constraints.values()
        for layer in constraint.chosen(layers)
        for need in constraint.needs
        if need in HOOKS
    )


def costs(constraints: Constraints, passed: Passed, layers: int) -> dict[str, Tensor]:
    """What each constraint costs each member, weight and all."""
    return {name: constraint.weight * _mean(constraint, passed, layers) for name, constraint in constraints.items()}


def _mean(constraint: Constraint, passed: Passed, layers: int) -> Float[Tensor, "m"]:
    own = [constraint.cost(**_given(constraint, passed, layer)) for layer in constraint.chosen(layers)]
    return torch.stack(own).mean(0)


def _given(constraint: Constraint, passed: Passed, layer: int) -> dict[str, Tensor]:
    always = {"mask": passed.sight.mask, "keys": passed.sight.keys()}
    return {
        need: always[need] if need in always else passed.recorded[f"blocks.{layer}.{HOOKS[need]}"]
        for need in constraint.needs
    }


def over_tokens(values: Float[Tensor, "m b h t *rest"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m b h *rest"]:
    """The mean over the tokens of each story that are not padding."""
    share = mask.to(values.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
    return torch.einsum("mbht...,bt->mbh...", values, share)


def pairs(heads: int) -> tuple[Int[Tensor, "p"], Int[Tensor, "p"]]:
    """Every pair of heads once."""
    first, second = torch.triu_indices(heads, heads, 1)
    return first, second
