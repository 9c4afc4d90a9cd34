"""One dictionary as a sparse autoencoder of a model's activations, and the batches of tokens it is run on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site, read_site
from unbraid.activations.text import Window, batch_by_length, cut_windows, pad_windows
from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.stack import Stack, Target
from unbraid.errors import UserError

BLOCK = 1024
"""Tokens that are encoded at a time."""
BATCH_TOKENS = 1024
"""Tokens, with padding, that run at a time: the logits of a large vocabulary are large."""


@dataclass(frozen=True)
class SAE:
    """A stack of one, with its normalization folded in: it takes and gives activations in the model's units."""

    stack: Stack

    @property
    def width(self) -> int:
        return self.stack.encoder.shape[-1]

    @property
    def rule_learns(self) -> bool:
        """Whether the activation rule has weights or memory, such as thresholds."""
        return bool(self.stack.rule or self.stack.memory)

    @torch.no_grad()
    def encode(self, x: Float[Tensor, "b d"]) -> Codes:
        return encode(self.stack, x.contiguous())

    @torch.no_grad()
    def decode(self, codes: Codes, x: Float[Tensor, "b d"] | None = None) -> Float[Tensor, "b o"]:
        return self.stack.decode(codes, x)[0]

    def reconstruct(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b o"]:
        blocks = [self.decode(self.encode(block), block) for block in x.split(BLOCK)]
        return torch.cat(blocks)

    def centered(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """What features have to write: x without the pre-bias."""
        return x if self.stack.pre_bias is None else x - self.stack.pre_bias[0].to(x.device)

    def at_random(self, seed: int) -> "SAE":
        """Random directions with the same activation rule and centering: what chance scores.

        A rule that learns keeps its thresholds, and with them what they apply to: the bias and the encoder's norms.
        Decoder rows of free lengths keep these.
        """
        stack = self.stack
        config = Dictionary(d_sae=stack.features, activation=stack.activation, pre_bias=stack.pre_bias is not None)
        target = Target(stack.d_out) if stack.is_transcoder else None
        drawn = Stack.start(config, self.width, [seed], target=target).to(stack.device, stack.precision)
        if stack.decoder_norm == "free":
            drawn = replace(drawn, decoder=drawn.decoder * stack.decoder.norm(dim=-1, keepdim=True))
        if not self.rule_learns:
            return SAE(replace(drawn, pre_bias=stack.pre_bias, decoder_bias=stack.decoder_bias))
        norms = stack.encoder.norm(dim=-1, keepdim=True)
        kept = replace(stack, encoder=norms * drawn.encoder, decoder=drawn.decoder, inhibition={})
        return SAE(replace(kept, skip=None))


def active_features(codes: Codes) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """Features and values of a stack of one, token by token."""
    values = codes.values[0]
    if codes.features is not None:
        return codes.features[0], values
    return torch.arange(codes.width, device=values.device).expand_as(values), values


def check_width(saes: Iterable[SAE], width: int, site: str) -> None:
    for sae in saes:
        if sae.width != width:
            raise UserError(
                f"the dictionary takes {sae.width} dimensions and {site} has {width}; accepted: the model and site "
                "that it was trained on"
            )


@dataclass(frozen=True)
class TokenBatch:
    """Windows that run together: their tokens, their mask, and which tokens are text."""

    windows: tuple[int, ...]
    """The numbers of the windows."""
    tokens: Int[Tensor, "b t"]
    mask: Int[Tensor, "b t"] | None
    kept: Bool[Tensor, "b t"]


def first_windows(model: HuggingFaceModel, texts: Iterable[str], context: int) -> list[Window]:
    """The beginning of every text, as much as the context holds; texts without tokens have none."""
    first: dict[int, Window] = {}
    for window in cut_windows(model, texts, context, None):
        first.setdefault(window.document, window)
    return list(first.values())


def token_batches(
    model: HuggingFaceModel, windows: Sequence[Window], batch_tokens: int = BATCH_TOKENS
) -> Iterator[TokenBatch]:
    for numbers in batch_by_length(windows, batch_tokens):
        chosen = [windows[number] for number in numbers]
        tokens, mask = pad_windows(model, chosen)
        kept = np.zeros(tokens.shape, bool)
        for row, window in enumerate(chosen):
            kept[row, : len(window.tokens)] = window.kept
        yield TokenBatch(tuple(numbers), tokens, mask, torch.from_numpy(kept))


def read_rows(model: HuggingFaceModel, site: Site, batch: TokenBatch) -> Float[Tensor, "p d"]:
    """The activations of the kept tokens, window after window."""
    return read_site(model, site, batch.tokens, batch.mask)[batch.kept]
