"""Let language models go on from a text, token by token, by the same pass that training and scores use.

next token ~ softmax(logits / temperature)        at temperature 0 the likeliest; padding is never drawn
"""

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.errors import Refusal
from unbraid.models import Models
from unbraid.randomness import stream
from unbraid.worlds.text import Text


@torch.no_grad()
def continue_text(
    models: Models, world: Text, prompt: str, tokens: int, seed: int = 0, temperature: float = 1.0
) -> list[str]:
    """What each member writes after the prompt; it sees the last tokens that its positions hold.

    A member draws by the seed given here and its own, so its words do not depend on who is beside it.
    """
    if not prompt or tokens < 0 or not temperature >= 0:
        raise Refusal(
            f"{tokens} tokens at temperature {temperature:g} after '{prompt:.20}' were asked for; accepted: a prompt "
            "of at least a character, tokens and temperature of at least 0"
        )
    return [
        _continued(models.member(index), world, prompt, tokens, seed, temperature) for index in range(len(models.seeds))
    ]


def _continued(one: Models, world: Text, prompt: str, tokens: int, seed: int, temperature: float) -> str:
    written = world.made.units.encode(prompt).tolist()
    begun = len(written)
    for draw in stream(seed, "continuing", one.seeds[0]).random(tokens):
        seen = torch.tensor([written[-one.length :]])
        last = torch.tensor([[seen.shape[1] - 1]])
        written.append(_drawn(one.read(one.forward(seen), last)[0, 0, 0], temperature, draw))
    return world.made.units.decode(written[begun:])


def _drawn(logits: Float[Tensor, "v"], temperature: float, draw: float) -> int:
    """The token in whose share of [0, 1) the draw falls."""
    real = logits[1:].double().numpy()
    if temperature == 0:
        return 1 + int(real.argmax())
    shares = np.exp((real - real.max()) / temperature).cumsum()
    return 1 + int(np.searchsorted(shares, draw * shares[-1], side="right").clip(max=len(shares) - 1))
