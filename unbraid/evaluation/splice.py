"""Splice a dictionary into a model that runs: its reconstruction in place of activations, its features edited and read.

    z = codes of x at the site        z' = factor · z + amount of each feature that is edited
    error dropped    the model goes on with decode(z')
    error kept       … with y + (z' - z) · decoder: what the dictionary does not explain stays, and without an edit all

y is x, or for a transcoder what stands at its target. The attribution of a scalar to a feature is, to first order, what
the feature's code contributes to it: z' · ∂/∂z'.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import find_site, replace_between
from unbraid.axes import Bool, Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.models import Models
from unbraid.models.models import token_rows


@dataclass(frozen=True)
class _Run:
    """What a run of the model left: codes as encoded and as edited, slot for slot, and which tokens they are of."""

    read: Codes
    written: Codes
    where: Bool[Tensor, "*axes"]

    def spread(self, values: Float[Tensor, "1 n k"]) -> Float[Tensor, "*axes f"]:
        """Values in the slots of the codes as an array; 0 at tokens that were left alone."""
        rows = Codes(self.read.features, values.detach(), self.read.width).to_dense()[0]
        spread = rows.new_zeros(*self.where.shape, self.read.width)
        spread[self.where.to(rows.device)] = rows
        return spread


class Spliced:
    """A dictionary at work inside a model, as `splice` gives it: its features can be edited, read and attributed.

    Edits act on every later run of the model, at every token, until they are changed or `reset`. Codes are in the
    dictionary's units (of `load_stack`: those of the model).

    Parameters
    ----------
    dictionary : Stack
        A single dictionary, of one site: an autoencoder or a transcoder.
    keep_error : bool, default False
        Whether what the dictionary does not explain stays in the model.

    Attributes
    ----------
    codes : Tensor, shape (b, t, f)
        What fired in the last run, before edits.
    mask : boolean Tensor, shape (b, t), or None
        Set this to leave the other tokens of a run alone, as special tokens; None: no token is.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=16), dimensions=8, seeds=[0])
    >>> spliced = ub.Spliced(stack, keep_error=True)
    >>> x = torch.randn(1, 3, 8)
    >>> torch.equal(spliced(x), x)  # nothing is edited, and the error stays
    True
    >>> spliced.add({5: 2.0})
    >>> bool(((spliced(x) - x - 2 * stack.decoder[0, 5]).abs() < 1e-5).all())
    True
    """

    def __init__(self, dictionary: Stack, keep_error: bool = False) -> None:
        if dictionary.members != 1:
            raise UserError(
                f"a stack of {dictionary.members} dictionaries was to be spliced; accepted: stack.member(0)"
            )
        if dictionary.sites is not None:
            raise UserError("a crosscoder was to be spliced; accepted: an autoencoder or a transcoder of one site")
        self.dictionary, self.keep_error = dictionary, keep_error
        self.mask: Bool[Tensor, "*axes"] | None = None
        self._factors: dict[int, float] = {}
        self._amounts: dict[int, float] = {}
        self._run: _Run | None = None

    def ablate(self, *features: int) -> None:
        """Let these features write nothing."""
        self.scale(dict.fromkeys(features, 0.0))
        self._amounts = {feature: amount for feature, amount in self._amounts.items() if feature not in features}

    def scale(self, factors: Mapping[int, float]) -> None:
        """Multiply the codes of these features; a feature's factor replaces the one it had."""
        self._check(factors)
        self._factors |= factors

    def add(self, amounts: Mapping[int, float]) -> None:
        """Add so much to the codes of these features at every token; an amount replaces the one there was."""
        self._check(amounts)
        self._amounts |= amounts

    def reset(self) -> None:
        """Take all edits back."""
        self._factors, self._amounts = {}, {}

    @property
    def codes(self) -> Float[Tensor, "*axes f"]:
        run = self._last_run()
        return run.spread(run.read.values)

    def attribute(self, metric: Tensor) -> Float[Tensor, "*axes f"]:
        """What each feature contributes to a scalar, to first order: gradient times activation.

        Parameters
        ----------
        metric : Tensor, a scalar
            Made from what the last run gave, with gradients: a logit, a difference of two, a loss.

        Returns
        -------
        Tensor, shape (b, t, f)
            By token and feature; 0 where a feature did not fire. Edited codes count as edited.
        """
        run = self._last_run()
        if metric.dim() or not metric.requires_grad or not run.written.values.requires_grad:
            raise UserError(
                f"a metric of shape {tuple(metric.shape)} {'with' if metric.requires_grad else 'without'} gradients "
                "was to be attributed; accepted: a scalar made from a run outside torch.no_grad"
            )
        (gradient,) = torch.autograd.grad(metric, run.written.values, retain_graph=True, allow_unused=True)
        if gradient is None:
            raise UserError("the metric does not depend on the model's last run; accepted: one made from what it gave")
        return run.spread(gradient * run.written.values)

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """What stands in the place of y (or of x itself) in a run of the model; the last axis has the activations."""
        y = x if y is None else y
        heads = y.shape[1] if y.dim() == 4 else 0  # in a model of ours, at hooks with one vector a head
        x, y = (token_rows(part[None])[0] if part.dim() == 4 else part for part in (x, y))
        for found, width, name in ((x, self.dictionary.d_in, "takes"), (y, self.dictionary.d_out, "gives")):
            if found.shape[-1] != width:
                raise UserError(
                    f"the dictionary {name} {width} dimensions and the model has {found.shape[-1]} there; accepted: "
                    "the site it was trained on"
                )
        where = torch.ones(x.shape[:-1], dtype=torch.bool) if self.mask is None else self.mask
        where = where.to(x.device)
        if where.shape != x.shape[:-1]:
            raise UserError(
                f"the mask has the shape {tuple(where.shape)} and the tokens {tuple(x.shape[:-1])}; accepted: the same"
            )
        out = y.clone()
        out[where] = self._rows(x[where], y[where], where)
        return out.unflatten(-1, (heads, -1)).transpose(1, 2) if heads else out

    def _rows(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n o"], where: Tensor) -> Float[Tensor, "n o"]:
        """The rows of tokens that are not left alone, in the type and on the device of the model."""
        inside = x.to(self.dictionary.decoder)
        read = self._encoded(inside)
        written = self._edited(read)
        self._run = _Run(read, written, where)
        if self.keep_error:
            change = Codes(read.features, written.values - read.values, read.width)
            return y + change.decode(self.dictionary.decoder)[0].to(y)
        return self.dictionary.decode(written, inside)[0].to(y)

    def _encoded(self, x: Float[Tensor, "n d"]) -> Codes:
        """What fires, with room for what is added; by the quick way where nothing before it wants gradients."""
        if x.requires_grad:
            codes = self.dictionary.encode(x)
        else:
            with torch.no_grad():
                codes = encode(self.dictionary, x.contiguous())
        if codes.features is None or not self._amounts:
            return codes
        added = codes.features.new_tensor(list(self._amounts)).expand(1, len(x), -1)
        empty = codes.values.new_zeros(added.shape)
        return Codes(torch.cat([codes.features, added], -1), torch.cat([codes.values, empty], -1), codes.width)

    def _edited(self, read: Codes) -> Codes:
        """The same slots with edited values, which gradients can be taken of."""
        factors, amounts = read.values.new_ones(read.width), read.values.new_zeros(read.width)
        for feature, factor in self._factors.items():
            factors[feature] = factor
        for feature, amount in self._amounts.items():
            amounts[feature] = amount
        if read.features is None:
            values = read.values * factors + amounts
        else:
            values = read.values * factors[read.features.long()]
            if self._amounts:
                values[..., -len(self._amounts) :] = amounts[list(self._amounts)]
        if torch.is_grad_enabled() and not values.requires_grad:
            values.requires_grad_()
        return Codes(read.features, values, read.width)

    def _last_run(self) -> _Run:
        if self._run is None:
            raise UserError("no run of the model came to the site yet; accepted: a run of it first")
        return self._run

    def _check(self, edits: Mapping[int, float]) -> None:
        for feature in edits:
            if not 0 <= feature < self.dictionary.features:
                raise UserError(
                    f"feature {feature} was to be edited; accepted: 0 to {self.dictionary.features - 1}, which there "
                    "are"
                )


@contextmanager
def splice(
    model: HuggingFaceModel | nn.Module | Models,
    dictionary: Stack,
    site: str,
    target: str | None = None,
    keep_error: bool = False,
) -> Iterator[Spliced]:
    """Run a model with a dictionary's reconstruction in place of its activations, and edit, read, attribute features.

    Within the context, every run of the model is changed, each token that it generates too. Afterwards, and after an
    error, nothing is left behind.

    Parameters
    ----------
    model : torch.nn.Module
        Any torch model, as one of transformers, or `ub.Model`.
    dictionary : Stack
        A single dictionary in the units of the model, as `load_stack(…).member(0)` gives it.
    site : str
        Where it reads: a module, as `model.layers.3`, or a hook, as `blocks.3.hook_resid_post`.
    target : str, optional
        Of a transcoder, what it predicts and replaces; behind the site. None, for an autoencoder: the site.
    keep_error : bool, default False
        Whether what the dictionary does not explain stays: then the model runs as it is until a feature is edited.

    Returns
    -------
    context manager of Spliced
        Edits, reads and attributes features; see `Spliced`.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> model = ub.Model(ub.Transformer(d_model=8, heads=2, d_ff=8), vocabulary=5, length=6)
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=16), dimensions=8, seeds=[0])
    >>> tokens = torch.tensor([[1, 2, 3]])
    >>> with ub.splice(model, stack, "blocks.0.hook_resid_post", keep_error=True) as spliced:
    ...     logits = model(tokens)
    ...     effects = spliced.attribute(logits[0, -1, 4])  # on the logit of token 4 at the end
    ...     spliced.ablate(3)
    ...     spliced.add({5: 2.0})
    ...     edited = model(tokens)
    ...     written = model.generate(tokens, max_new_tokens=2)
    >>> spliced.codes.shape, effects.shape  # sequence, token, feature
    (torch.Size([1, 4, 16]), torch.Size([1, 3, 16]))
    >>> bool((model(tokens) == logits).all()), bool((edited == logits).all())
    (True, False)
    """
    if isinstance(model, Models):
        raise UserError("a stack of models was to be spliced; accepted: one of them as a module, models.module(0)")
    spliced = Spliced(dictionary, keep_error)
    if dictionary.is_transcoder != (target is not None):
        raise UserError(
            f"{'a transcoder' if dictionary.is_transcoder else 'an autoencoder'} was to be spliced "
            f"{'without a target' if target is None else f'with the target {target!r}'}; accepted: a target for a "
            "transcoder, none for an autoencoder"
        )
    with replace_between(find_site(model, site), None if target is None else find_site(model, target), spliced):
        yield spliced
