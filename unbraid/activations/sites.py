"""Where in a model to look: a module by its path, or a place of a block by the name TransformerLens gives it.

    model.layers.3              what this module gives out
    blocks.3.hook_resid_pre     what block 3 takes in             blocks.3.hook_resid_post   what it gives out
    blocks.3.hook_attn_out      what its attention adds           blocks.3.hook_mlp_out      what its MLP adds
    blocks.3.attn.hook_z        what its heads read, side by side, before the output matrix

`read_site` runs a model as far as a site and no further, `read_sites` as far as the last of several; within
`replace_at_site` every run of the model has the activations there replaced, within `replace_between` by something made
of those at another site.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.axes import Float, Int, Tensor
from unbraid.config import suggest
from unbraid.errors import UserError

Side = Literal["input", "output"]

HOOKS: dict[str, tuple[Side, tuple[str, ...]]] = {
    "hook_resid_pre": ("input", ("",)),
    "hook_resid_post": ("output", ("",)),
    "hook_attn_out": (
        "output",
        ("attention.output.dense", "attention.out_lin", "self_attn", "attn", "self_attention", "attention"),
    ),
    "attn.hook_z": (
        "input",
        (
            *("self_attn.o_proj", "self_attn.out_proj", "self_attn.dense", "attn.c_proj", "attn.out_proj"),
            *("attn.attention.out_proj", "attention.output.dense", "attention.out_lin", "attention.dense"),
            "self_attention.dense",
        ),
    ),
    "hook_mlp_out": ("output", ("mlp", "feed_forward", "ffn", "fc2", "output.dense")),
}
"""For each name: the side of the module, and its path within a block in families of models, tried in order."""
BLOCKS = re.compile(r"blocks\.(\d+)\.(.+)")
SUGGESTIONS = 5

AnyTorchModel = HuggingFaceModel | nn.Module
Change = Callable[[Float[Tensor, "b t d"]], Float[Tensor, "b t d"]]
Prediction = Callable[[Float[Tensor, "*axes d"], Float[Tensor, "*axes o"]], Float[Tensor, "*axes o"]]


@dataclass(frozen=True)
class Site:
    """A module of a model, which side of it is read, and the name it was asked for by."""

    name: str
    path: str
    module: nn.Module
    side: Side


def find_site(model: AnyTorchModel, name: str) -> Site:
    """The site of this name; for a name that does not exist the error lists the nearest."""
    modules = dict(torch_module(model).named_modules())
    if name and name in modules and _runs(modules[name]):
        return Site(name, name, modules[name], "output")
    if hook := _hook_site(modules, _blocks(model, modules), name):
        return hook
    sites, called = site_names(model), model.name if isinstance(model, HuggingFaceModel) else type(model).__name__
    close = difflib.get_close_matches(name, sites, n=SUGGESTIONS, cutoff=0.0)
    raise UserError(f"{called} has no site '{name}'; {suggest(name, close)}, … ({len(sites)} in all)")


def site_names(model: AnyTorchModel) -> list[str]:
    """Every name that `find_site` accepts."""
    modules = dict(torch_module(model).named_modules())
    blocks = _blocks(model, modules)
    hooks = [f"blocks.{index}.{hook}" for index in range(_n_blocks(modules, blocks)) for hook in HOOKS]
    paths = [path for path, module in modules.items() if path and _runs(module)]
    return [hook for hook in hooks if hook not in paths and _hook_site(modules, blocks, hook)] + paths


def torch_module(model: AnyTorchModel) -> nn.Module:
    """The module that runs."""
    return model.model if isinstance(model, HuggingFaceModel) else model


@torch.no_grad()
def read_site(
    model: HuggingFaceModel, site: Site, tokens: Int[Tensor, "b t"], mask: Int[Tensor, "b t"] | None = None
) -> Float[Tensor, "b t d"]:
    """The activations at a site; the model runs as far as there and no further."""
    return read_sites(model, [site], tokens, mask)[0]


@torch.no_grad()
def read_sites(
    model: HuggingFaceModel, sites: Sequence[Site], tokens: Int[Tensor, "b t"], mask: Int[Tensor, "b t"] | None = None
) -> list[Float[Tensor, "b t _"]]:
    """The activations at several sites, of one pass; the model runs as far as the last of them and no further.

    It runs where it is, in its precision; what it gives is float32, on the device of the tokens.
    """
    kept: dict[int, Tensor] = {}

    def keep(number: int, value: Tensor) -> Tensor:
        kept[number] = value
        if len(kept) == len(sites):
            raise _Reached
        return value

    with ExitStack() as hooks, suppress(_Reached):
        for number, site in enumerate(sites):
            hooks.enter_context(replace_at_site(site, partial(keep, number)))
        there = None if mask is None else mask.to(model.device)
        model.model(input_ids=tokens.to(model.device), attention_mask=there)
    for number, site in enumerate(sites):
        if number not in kept:
            raise UserError(f"the model {model.name} ran and never came to '{site.name}'; accepted: a site it uses")
    rows = [_checked(kept[number], site, tokens) for number, site in enumerate(sites)]
    return [each.float().to(tokens.device) for each in rows]


@contextmanager
def replace_at_site(site: Site, change: Change) -> Iterator[None]:
    """Within this context, every run of the model has `change` applied to the activations at the site."""

    def on_output(_module: nn.Module, _given: object, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    def on_input(_module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if given:
            return (change(given[0]), *given[1:]), named
        return given, {**named, "hidden_states": change(named["hidden_states"])}

    if site.side == "output":
        handle = site.module.register_forward_hook(on_output)
    else:
        handle = site.module.register_forward_pre_hook(on_input, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replace_between(site: Site, target: Site | None, predict: Prediction) -> Iterator[None]:
    """Within this context, every run of the model goes on with `predict(x, y)` at the target, for x at the site.

    y is what stands at the target; without a target that is the site.
    """
    if target is None:
        with replace_at_site(site, lambda x: predict(x, x)):
            yield
        return
    read: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        read[:] = [x]
        return x

    def put(y: Tensor) -> Tensor:
        if not read:
            raise UserError(
                f"the model came to '{target.name}' before '{site.name}'; accepted: a target behind its site"
            )
        return predict(read.pop(), y)

    with replace_at_site(site, keep), replace_at_site(target, put):
        yield


class _Reached(Exception):
    """Ends a run of the model where nothing more of it is needed."""


def _checked(value: object, site: Site, tokens: Tensor) -> Tensor:
    if isinstance(value, Tensor) and value.ndim == 3 and value.shape[:2] == tokens.shape and value.is_floating_point():
        return value
    content = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise UserError(
        f"'{site.name}' holds {content}, not one row a token; accepted: a site as model.layers.3 or "
        "blocks.3.hook_resid_post"
    )


def _runs(module: nn.Module) -> bool:
    """Whether it is called in a run, and not a mere list or table of modules."""
    return type(module).forward is not nn.Module.forward


def _blocks(model: AnyTorchModel, modules: Mapping[str, nn.Module]) -> str:
    """The path of the list that holds the model's blocks; the first as long as its configuration, if any, says."""
    layers = getattr(getattr(torch_module(model), "config", None), "num_hidden_layers", None)
    lists = [
        path for path, module in modules.items() if isinstance(module, nn.ModuleList) and layers in (None, len(module))
    ]
    return min(lists, key=lambda path: path.count("."), default="")


def _n_blocks(modules: Mapping[str, nn.Module], blocks: str) -> int:
    return sum(path.rpartition(".")[0] == blocks for path in modules) if blocks else 0


def _hook_site(modules: Mapping[str, nn.Module], blocks: str, name: str) -> Site | None:
    match = BLOCKS.fullmatch(name)
    if not blocks or not match or match[2] not in HOOKS:
        return None
    side, suffixes = HOOKS[match[2]]
    block = f"{blocks}.{int(match[1])}"
    paths = (f"{block}.{suffix}" if suffix else block for suffix in suffixes)
    path = next((path for path in paths if path in modules and _runs(modules[path])), None)
    return Site(name, path, modules[path], side) if path else None
