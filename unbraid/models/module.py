"""One model as a `torch.nn.Module`, with its hooks as modules under TransformerLens' names.

The weights are parameters under the names that they have in a stack (`blocks.0.attn.qkv`), without the member axis;
`forward` is that of a stack of one, so that both forms have the same numbers. Every hook is a module that gives back
what it is given (`blocks.0.attn.hook_z`), so that torch's own forward hooks see and replace activations.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from unbraid.axes import Float, Int, Tensor
from unbraid.config import suggest
from unbraid.errors import UserError
from unbraid.models.attention.attention import Named
from unbraid.models.config import ModelConfig, Transformer
from unbraid.models.models import PADDING, Edit, ForwardOutput, Models
from unbraid.models.registry import models_of, start_models
from unbraid.randomness import stream

NamesFilter = str | Sequence[str] | Callable[[str], bool] | None
"""A hook, several, those for which a function is true, or all."""
STEPS = 1 << 62
"""Dropout is seeded by a number below this, drawn by torch's own generator."""


class HookPoint(nn.Module):
    """A place of a model: gives back what it is given, so that torch's forward hooks can see and replace it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def layer(self) -> int:
        """The number of its block, as TransformerLens tells it."""
        return int(self.name.split(".")[1])

    def edit(self, x: Float[Tensor, "1 *axes"]) -> Tensor:
        """What the hooks on it make of the activations of a stack of one."""
        return self(x[0])[None]

    def look(self, x: Tensor) -> None:
        """Let the hooks on it see activations that nothing can be put in the place of."""
        if self(x) is not x:
            raise UserError(
                f"a hook returned something for {self.name}, which can be looked at only; accepted there: a hook that "
                "returns None, or a hook at a site with one vector a token"
            )


class Model(nn.Module):
    """One transformer as a `torch.nn.Module`: any torch optimiser trains it, and hooks have TransformerLens' names.

    `Models.module` makes one of a member of a stack, `stacked` goes back. A model made from a configuration is
    untrained, and in training mode, where dropout acts; its draws follow `torch.manual_seed`.

    Parameters
    ----------
    settings : Transformer or Gauge
        The architecture.
    vocabulary : int
        Number of token ids; 0 is padding.
    length : int
        Tokens of the longest sequence.
    classes : int, optional
        Number of possible answers; None: the vocabulary, for a language model.
    seed : int, default 0
        Draws the weights, as a stack's member of this seed has them.

    Attributes
    ----------
    settings, length, seed
        As given.
    weights : dict of str to Parameter
        The parameters by their names in a stack, as `blocks.0.attn.qkv`.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> model = ub.Model(ub.Transformer(d_model=8, heads=2, d_ff=8), vocabulary=5, length=6)
    >>> tokens = torch.tensor([[1, 2, 3]])
    >>> model(tokens).shape  # logits: sequence, token, class
    torch.Size([1, 3, 5])
    >>> logits, cache = model.run_with_cache(tokens, "blocks.0.attn.hook_pattern")
    >>> cache["blocks.0.attn.hook_pattern"].shape  # sequence, head, query, key
    torch.Size([1, 2, 3, 3])
    >>> silent = model.run_with_hooks(tokens, [("blocks.1.hook_mlp_out", lambda x, hook: 0 * x)])
    >>> bool((silent == logits).all())
    False
    >>> model.generate(tokens, max_new_tokens=2).shape  # the prompt, and two tokens more
    torch.Size([1, 5])
    >>> optimiser = torch.optim.Adam(model.parameters())
    """

    def __init__(
        self, settings: ModelConfig, vocabulary: int, length: int, classes: int | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.settings, self.length, self.seed = settings, length, seed
        started = start_models(settings, vocabulary, length, vocabulary if classes is None else classes, [seed])
        parts: dict[str, nn.Parameter | nn.Module] = {n: nn.Parameter(w[0].clone()) for n, w in started.weights.items()}
        _attach(self, parts | {name: HookPoint(name) for name in settings.hooks()})

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        return dict(self.named_parameters())

    def forward(self, tokens: Int[Tensor, "b t"], asked: Int[Tensor, "b q"] | None = None) -> Float[Tensor, "b q c"]:
        """The logits at every token, or at the tokens asked for.

        Parameters
        ----------
        tokens : integer Tensor, shape (b, t)
            Token ids; 0 is padding, at the right.
        asked : integer Tensor, shape (b, q), optional
            Positions at which to read logits, as the last tokens of questions. None: at every token. A model that
            reads out the mean over tokens has the same logits everywhere.

        Returns
        -------
        Tensor, shape (b, t, classes) or (b, q, classes)
        """
        return self._run(tokens, asked)[0]

    def run_with_cache(
        self, tokens: Int[Tensor, "b t"], names_filter: NamesFilter = None
    ) -> tuple[Float[Tensor, "b t c"], Named]:
        """Logits at every token, and activations by hook name.

        Parameters
        ----------
        tokens : integer Tensor, shape (b, t)
            Token ids.
        names_filter : str, sequence of str, function of a name, or None
            The hooks to keep; None: all, which makes everything that there is to see.

        Returns
        -------
        logits : Tensor, shape (b, t, classes)
        cache : dict of str to Tensor
            As `Models.forward` records them, without the member axis: heads stand before tokens (b, h, t, e).
        """
        logits, output = self._run(tokens, record=self._named(names_filter))
        return logits, {name: recorded[0] for name, recorded in output.recorded.items()}

    def run_with_costs(
        self, tokens: Int[Tensor, "b t"], asked: Int[Tensor, "b q"] | None = None
    ) -> tuple[Float[Tensor, "b q c"], Named]:
        """Logits, and the model's own costs, such as the load balance of routed heads: scalars to add to the loss."""
        logits, output = self._run(tokens, asked)
        return logits, {name: cost[0] for name, cost in output.costs.items()}

    def run_with_hooks(
        self, tokens: Int[Tensor, "b t"], fwd_hooks: Iterable[tuple[NamesFilter, Callable[..., Any]]]
    ) -> Float[Tensor, "b t c"]:
        """Logits at every token, with functions at hooks; see `hooks`."""
        with self.hooks(fwd_hooks):
            return self(tokens)

    @contextmanager
    def hooks(self, fwd_hooks: Iterable[tuple[NamesFilter, Callable[..., Any]]]) -> Iterator["Model"]:
        """Within this context, every run of the model calls these functions.

        Parameters
        ----------
        fwd_hooks : iterable of (names, function)
            Hooks as in `run_with_cache`, and a function of the activations and the hook (`hook.name`), called as
            `function(activations, hook=hook)`. The model goes on with what it returns, unless that is None.
        """
        with ExitStack() as handles:
            for names, function in fwd_hooks:
                for name in self._named(names):
                    handle = self.get_submodule(name).register_forward_hook(partial(_call, function))
                    handles.callback(handle.remove)
            yield self

    @torch.no_grad()
    def generate(
        self, tokens: Int[Tensor, "b t"], max_new_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> Int[Tensor, "b n"]:
        """Let a language model write on.

        Parameters
        ----------
        tokens : integer Tensor, shape (b, t)
            The prompts, without padding.
        max_new_tokens : int
            Number of tokens to write.
        temperature : float, default 0.0
            0 takes the most likely token; above, tokens are drawn by softmax(logits / temperature).
        seed : int, default 0
            Seeds the draws, together with the model's own seed.

        Returns
        -------
        integer Tensor, shape (b, t + max_new_tokens)
            The prompts and what follows; never padding.
        """
        self._check_generates(tokens, max_new_tokens, temperature)
        last = torch.tensor([[-1]], device=tokens.device).expand(len(tokens), 1)
        for draws in stream(seed, "continuing", self.seed).random((max_new_tokens, len(tokens))):
            seen = tokens[:, -self.length :]
            logits = self(seen, last + seen.shape[1])[:, 0].double().cpu()
            drawn = [_draw(row, temperature, draw) for row, draw in zip(logits, draws, strict=True)]
            tokens = torch.cat([tokens, tokens.new_tensor(drawn)[:, None]], 1)
        return tokens

    def stacked(self) -> Models:
        """The same model as a stack of one, with a copy of the weights."""
        return self._stack_of({name: p.detach().clone() for name, p in self.named_parameters()})

    def _stack_of(self, weights: Mapping[str, Tensor]) -> Models:
        return models_of(self.settings, self.length, [self.seed], {name: w[None] for name, w in weights.items()})

    def _run(
        self, tokens: Int[Tensor, "b t"], asked: Int[Tensor, "b q"] | None = None, record: Iterable[str] = ()
    ) -> tuple[Float[Tensor, "b q c"], ForwardOutput]:
        models, step = self._stack_of(self.weights), None
        if self.training and isinstance(self.settings, Transformer) and self.settings.dropout:
            step = int(torch.randint(STEPS, ()))
        edited, looked_at = self._hooked()
        output = models.forward(tokens, {*record, *(hook.name for hook in looked_at)}, step=step, edit=edited)
        for hook in looked_at:
            hook.look(output.recorded[hook.name][0])
        if asked is None:
            asked = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        return models.read(output, asked)[0], output

    def _hooked(self) -> tuple[dict[str, Edit], list[HookPoint]]:
        """The hooks that somebody uses: those whose activations can be replaced, and those that can be looked at."""
        hooked = [m for m in self.modules() if isinstance(m, HookPoint) and (m._forward_hooks or m._forward_pre_hooks)]
        sites = self.settings.sites() if hooked else []
        return {m.name: m.edit for m in hooked if m.name in sites}, [m for m in hooked if m.name not in sites]

    def _named(self, names: NamesFilter) -> list[str]:
        known = self.settings.hooks()
        if names is None or callable(names):
            return [name for name in known if names is None or names(name)]
        asked = [names] if isinstance(names, str) else list(names)
        for name in asked:
            if name not in known:
                raise UserError(f"there is no hook '{name}'; {suggest(name, known)}")
        return asked

    def _check_generates(self, tokens: Tensor, max_new_tokens: int, temperature: float) -> None:
        classes, words = len(self.weights["answer.weight"]), self._stack_of(self.weights).words
        if classes != words:
            raise UserError(
                f"a model that answers with one of {classes} classes and reads {words} words was to write on; "
                "accepted: a language model, whose answers are its vocabulary"
            )
        if not tokens.shape[1] or bool((tokens == PADDING).any()):
            raise UserError("the prompt is empty or has padding; accepted: prompts of one length, of at least a token")
        if max_new_tokens < 0 or not temperature >= 0:
            raise UserError(
                f"{max_new_tokens} tokens at temperature {temperature:g} were asked for; accepted: 0 or more of both"
            )


def module_of(models: Models, index: int) -> Model:
    """A member of a stack as a module of its own, ready to be used: in evaluation mode, with a copy of the weights."""
    member = models.member(index)
    answer = member.weights["answer.weight"]
    model = Model(member.settings, member.words, member.length, answer.shape[1], member.seeds[0])
    model = model.to(answer.device, answer.dtype)
    model.load_state_dict({name: weight[0] for name, weight in member.weights.items()})
    return model.eval()


def _attach(root: nn.Module, parts: Mapping[str, nn.Parameter | nn.Module]) -> None:
    """Parameters and modules under names with dots, as torch has them: one module below the other."""
    for path, part in parts.items():
        owner, *names = root, *path.split(".")
        for name in names[:-1]:
            if name not in owner._modules:
                owner.add_module(name, nn.ModuleList() if name == "blocks" else nn.Module())
            owner = owner.get_submodule(name)
        (owner.register_parameter if isinstance(part, nn.Parameter) else owner.add_module)(names[-1], part)  # pyright: ignore


def _call(function: Callable[..., Any], hook: HookPoint, _given: object, activations: Tensor) -> Any:
    return function(activations, hook=hook)


def _draw(logits: Float[Tensor, "v"], temperature: float, draw: float) -> int:
    """The token in whose share of [0, 1) the draw falls; the likeliest at temperature 0."""
    real = logits[1:].double().numpy()
    if temperature == 0:
        return 1 + int(real.argmax())
    shares = np.exp((real - real.max()) / temperature).cumsum()
    return 1 + int(np.searchsorted(shares, draw * shares[-1], side="right").clip(max=len(shares) - 1))
