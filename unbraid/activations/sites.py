"""Where in a model to look: a module by its path, or a place of a block by the name TransformerLens gives it.

    model.layers.3              what this module gives out
    blocks.3.hook_resid_pre     what block 3 takes in             blocks.3.hook_resid_post   what it gives out
    blocks.3.hook_attn_out      what its attention adds           blocks.3.hook_mlp_out      what its MLP adds
    blocks.3.attn.hook_z        what its heads read, side by side, before the output matrix

`read_site` runs a model as far as a site and no further; within `replace_at_site` every run of the model has the
activations there replaced.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

Change = Callable[[Float[Tensor, "b t d"]], Float[Tensor, "b t d"]]


@dataclass(frozen=True)
class Site:
    """A module of a model, which side of it is read, and the name it was asked for by."""

    name: str
    path: str
    module: nn.Module
    side: Side


def find_site(model: HuggingFaceModel, name: str) -> Site:
    """The site of this name; for a name that does not exist the error lists the nearest."""
    modules = dict(model.model.named_modules())
    if name and name in modules and not isinstance(modules[name], nn.ModuleList):
        return Site(name, name, modules[name], "output")
    if hook := _hook_site(modules, _blocks(model, modules), name):
        return hook
    sites = site_names(model)
    close = difflib.get_close_matches(name, sites, n=SUGGESTIONS, cutoff=0.0)
    raise UserError(f"{model.name} has no site '{name}'; {suggest(name, close)}, … ({len(sites)} in all)")


def site_names(model: HuggingFaceModel) -> list[str]:
    """Every name that `find_site` accepts."""
    modules = dict(model.model.named_modules())
    blocks = _blocks(model, modules)
    hooks = [f"blocks.{index}.{hook}" for index in range(_n_blocks(modules, blocks)) for hook in HOOKS]
    paths = [path for path, module in modules.items() if path and not isinstance(module, nn.ModuleList)]
    return [hook for hook in hooks if _hook_site(modules, blocks, hook)] + paths


@torch.no_grad()
def read_site(
    model: HuggingFaceModel, site: Site, tokens: Int[Tensor, "b t"], mask: Int[Tensor, "b t"] | None = None
) -> Float[Tensor, "b t d"]:
    """The activations at a site; the model runs as far as there and no further."""

    def keep(value: Tensor) -> Tensor:
        raise _Reached(value)

    try:
        with replace_at_site(site, keep):
            model.model(input_ids=tokens, attention_mask=mask)
    except _Reached as reached:
        return _checked(reached.value, site, tokens)
    raise UserError(f"the model {model.name} ran and never came to '{site.name}'; accepted: a site that it uses")


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


class _Reached(Exception):
    """Ends a run of the model where nothing more of it is needed."""

    def __init__(self, value: Tensor) -> None:
        super().__init__("reached")
        self.value = value


def _checked(value: object, site: Site, tokens: Tensor) -> Tensor:
    if isinstance(value, Tensor) and value.ndim == 3 and value.shape[:2] == tokens.shape and value.is_floating_point():
        return value
    content = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise UserError(
        f"'{site.name}' holds {content}, not one row a token; accepted: a site as model.layers.3 or "
        "blocks.3.hook_resid_post"
    )


def _blocks(model: HuggingFaceModel, modules: Mapping[str, nn.Module]) -> str:
    """The path of the list that holds the model's blocks; the first as long as its configuration says."""
    layers = getattr(model.model.config, "num_hidden_layers", None)
    lists = [path for path, module in modules.items() if isinstance(module, nn.ModuleList) and len(module) == layers]
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
    path = next((path for path in paths if path in modules), None)
    return Site(name, path, modules[path], side) if path else None
