"""The interface of a constraint: a cost per member, of what one layer's heads attend to, read and write.

The arguments of `cost` name what it needs; a model that is trained under it records that and nothing else.

| argument  | what                                             | shape       |
|-----------|--------------------------------------------------|-------------|
| `pattern` | attention weights (as dropped in training)        | `m b h t s` |
| `output`  | what each head reads                             | `m b h t e` |
| `written` | what each head adds to the residual stream       | `m b h t d` |
| `mask`    | which tokens are not padding                     | `b t`       |
| `keys`    | how many keys each query may attend to           | `b t`       |
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, Strict, field_validator

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import Config, PerMemberFloat
from unbraid.config.plugins import returned
from unbraid.errors import UserError
from unbraid.models.models import ForwardOutput

EPSILON = 1e-9
HOOKS = {"pattern": "attn.hook_pattern", "output": "attn.hook_z", "written": "attn.hook_result"}

Numbers = Annotated[tuple[Annotated[int, Strict()], ...], Field(strict=False)]
"""Of layers; a TOML file has lists and no tuples."""
NAMED = 'accepted: "last", "all", or a list of different numbers from 0'


class Constraint(Config, ABC):
    """The base class of constraints: loss terms on what a layer's heads attend to, read and write.

    A subclass declares its settings as fields and implements `cost`, the cost (m,) of one layer without its weight. The
    names of the arguments of `cost` say what it needs:

        pattern   (m, b, h, t, s)   attention weights
        output    (m, b, h, t, e)   what each head reads
        written   (m, b, h, t, d)   what each head adds to the residual stream
        mask      (b, t)            false at padding
        keys      (b, t)            how many keys each query may attend to

    Over several layers the cost is their mean.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> class SmallOutput(ub.Constraint):
    ...     def cost(self, written):
    ...         return written.square().mean((1, 2, 3, 4))
    >>> SmallOutput(weight=0.1).cost(written=torch.ones(2, 5, 4, 3, 8)).tolist()
    [1.0, 1.0]
    >>> SmallOutput().needs
    ('written',)
    """

    weight: PerMemberFloat = Field(default=1.0, ge=0)
    """Factor of the cost in the loss; raising it enforces the constraint more strongly."""
    layers: Literal["last", "all"] | Numbers = "last"
    """Layers it acts on: the last, all, or a list of numbers from 0."""

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

    def chosen_layers(self, layers: int) -> tuple[int, ...]:
        """The layers it acts on, in a model of so many."""
        if isinstance(self.layers, tuple):
            lacking = [layer for layer in self.layers if not 0 <= layer < layers]
            if lacking or not self.layers:
                asked = f"layer {lacking[0]}" if lacking else "no layer"
                raise UserError(
                    f"{type(self).__name__} was asked for {asked} of a model of {layers} layers; "
                    f'accepted: "last", "all", or numbers from 0 to {layers - 1}'
                )
            return self.layers
        return (layers - 1,) if self.layers == "last" else tuple(range(layers))


Constraints = Mapping[str, Constraint]


def recorded_for(constraints: Constraints, layers: int) -> frozenset[str]:
    """The hooks that a model must record for these constraints."""
    return frozenset(
        f"blocks.{layer}.{HOOKS[need]}"
        for constraint in constraints.values()
        for layer in constraint.chosen_layers(layers)
        for need in constraint.needs
        if need in HOOKS
    )


def costs(constraints: Constraints, output: ForwardOutput, layers: int) -> dict[str, Tensor]:
    """The weighted cost of each constraint, `m`."""
    return {name: constraint.weight * _mean(constraint, output, layers) for name, constraint in constraints.items()}


def _mean(constraint: Constraint, output: ForwardOutput, layers: int) -> Float[Tensor, "m"]:
    by_layer = [constraint.cost(**_arguments(constraint, output, layer)) for layer in constraint.chosen_layers(layers)]
    members = len(output.resid)
    for cost in by_layer:
        if not isinstance(cost, Tensor) or cost.shape != (members,):
            found = f"a tensor of shape {tuple(cost.shape)}" if isinstance(cost, Tensor) else type(cost).__name__
            raise returned(constraint.cost, f"{found}; accepted: a cost per member, ({members},)")
    return torch.stack(by_layer).mean(0)


def _arguments(constraint: Constraint, output: ForwardOutput, layer: int) -> dict[str, Tensor]:
    always = {"mask": output.attention_mask.token_mask, "keys": output.attention_mask.key_counts()}
    return {
        need: always[need] if need in always else output.recorded[f"blocks.{layer}.{HOOKS[need]}"]
        for need in constraint.needs
    }


def over_tokens(values: Float[Tensor, "m b h t *rest"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m b h *rest"]:
    """The mean over the tokens of each story that are not padding."""
    share = mask.to(values.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
    return torch.einsum("mbht...,bt->mbh...", values, share)


def pairs(heads: int, device: torch.device) -> tuple[Int[Tensor, "p"], Int[Tensor, "p"]]:
    """Every pair of heads once."""
    first, second = torch.triu_indices(heads, heads, 1).to(device)
    return first, second
