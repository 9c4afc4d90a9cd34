"""What a batch of text is: windows of tokens, in which every token is asked for the next."""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Int, Tensor


@dataclass(frozen=True)
class TextBatch:
    tokens: Int[Tensor, "b t"]
    answers: Int[Tensor, "b t"]
    """The token after each."""

    @classmethod
    def of(cls, windows: Int[np.ndarray, "b u"]) -> "TextBatch":
        """Of windows that are a token longer than what is read."""
        whole = torch.from_numpy(windows.astype(np.int64))
        return cls(whole[:, :-1], whole[:, 1:])

    @property
    def asked(self) -> Int[Tensor, "b t"]:
        """Every position."""
        return torch.arange(self.tokens.shape[1]).expand_as(self.tokens)
