"""The speed of a transformer step against torch's own layers, of recording nothing, and of models trained together."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.figure import Figure, medians
from unbraid.models import Transformer, Transformers, start_models
from unbraid.models.training import ModelState, ModelTraining, train_step

WORDS, CLASSES, LENGTH, QUESTIONS, BATCH, REPEATS = 25, 6, 95, 5, 64, 25
TRAINING = ModelTraining(batch=BATCH)
SMALL = Transformer(positions="learned")
LARGE = Transformer(d_model=256, heads=8, d_ff=1024, positions="learned")
TOGETHER = 16


@dataclass(frozen=True)
class Stories:
    """Words and questions of the right shapes; what they say does not matter to the clock."""

    tokens: Tensor
    asked: Tensor
    answers: Tensor

    @classmethod
    def drawn(cls, seed: int, batch: int = BATCH) -> "Stories":
        rng = torch.Generator().manual_seed(seed)
        tokens = torch.randint(1, WORDS, (batch, LENGTH), generator=rng)
        asked = torch.randint(LENGTH, (batch, QUESTIONS), generator=rng)
        return cls(tokens, asked, torch.randint(CLASSES, (batch, QUESTIONS), generator=rng))


def batches(size: int = BATCH) -> Iterator[Stories]:
    return itertools.cycle([Stories.drawn(seed, size) for seed in range(4)])


class Torch(nn.Module):
    """The same transformer of torch's own layers."""

    def __init__(self, settings: Transformer) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, settings.d_model)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, settings.d_model))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                settings.d_model, settings.heads, settings.d_ff, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(settings.layers)
        )
        self.norm, self.answer = nn.LayerNorm(settings.d_model), nn.Linear(settings.d_model, CLASSES)
        self.register_buffer("ahead", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: Tensor, asked: Tensor) -> Tensor:
        x = self.embed(tokens) + self.positions
        for layer in self.layers:
            x = layer(x, src_mask=self.ahead, is_causal=True)
        return self.answer(self.norm(x).gather(1, asked[..., None].expand(-1, -1, x.shape[-1])))


def our_step(settings: Transformer, members: int = 1, batch: int = BATCH) -> Callable[[], object]:
    state = ModelState.of(start_models(settings, WORDS, LENGTH, CLASSES, range(members)))
    turns = batches(batch)
    return lambda: train_step(state, next(turns), TRAINING, {})


def torch_step(settings: Transformer) -> Callable[[], object]:
    model = Torch(settings)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01, fused=True)
    turns = batches()

    def step() -> None:
        stories = next(turns)
        logits = model(stories.tokens, stories.asked)
        loss = functional.cross_entropy(logits.flatten(0, 1), stories.answers.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        (logits.argmax(-1) == stories.answers).float().mean()

    return step


def plain_pass(models: Transformers, tokens: Tensor) -> Tensor:
    """The same pass with nothing in it that could record."""
    own = {name: weight.squeeze(0) for name, weight in models.weights.items()}
    settings = models.settings
    width = (settings.d_model,)
    x = functional.embedding(tokens, own["embed"]) + own["positions"][:LENGTH]
    for layer in range(settings.layers):
        place = f"blocks.{layer}."
        normed = functional.layer_norm(x, width, own[f"{place}norm_1.weight"], own[f"{place}norm_1.bias"])
        qkv = functional.linear(normed, own[f"{place}attn.qkv"]).unflatten(-1, (3, settings.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + functional.linear(z.transpose(1, 2).flatten(2), own[f"{place}attn.out"])
        normed = functional.layer_norm(x, width, own[f"{place}norm_2.weight"], own[f"{place}norm_2.bias"])
        hidden = functional.linear(normed, own[f"{place}mlp.in.weight"], own[f"{place}mlp.in.bias"])
        x = x + functional.linear(functional.gelu(hidden), own[f"{place}mlp.out.weight"], own[f"{place}mlp.out.bias"])
    return functional.layer_norm(x, width, own["final_norm.weight"], own["final_norm.bias"])


def backward_through(make: Callable[[Transformers, Tensor], Tensor], settings: Transformer) -> Callable[[], object]:
    """A pass and its gradients."""
    models, turns = start_models(settings, WORDS, LENGTH, CLASSES, [0]), batches()
    assert isinstance(models, Transformers), models

    def work() -> object:
        leaves = models.requires_grad_copy()
        return torch.autograd.grad(make(leaves, next(turns).tokens).sum(), list(leaves.weights.values())[:-2])

    return work


def models() -> Iterator[Figure]:
    """Steps against torch's layers, passes that record nothing against bare ones, many members against one by one."""
    for settings in (SMALL, LARGE):
        ours, theirs = medians(our_step(settings), torch_step(settings), REPEATS)
        name = f"transformer step / torch's own layers, d={settings.d_model}"
        yield Figure(name, ours / theirs, 1.1, "lower", "×")
    for settings in (SMALL, LARGE):
        ours, theirs = medians(
            backward_through(lambda models, tokens: models.forward(tokens).resid, settings),
            backward_through(plain_pass, settings),
            2 * REPEATS,
        )
        yield Figure(f"recording nothing / plain attention, d={settings.d_model}", ours / theirs, 1.02, "lower", "×")
    for settings, batch in ((Transformer(d_model=16, heads=2, d_ff=64, positions="learned"), 16), (SMALL, BATCH)):
        together, alone = our_step(settings, TOGETHER, batch), our_step(settings, 1, batch)
        ours, one = medians(together, alone, REPEATS // 5)
        name = f"{TOGETHER} together / one by one, d={settings.d_model}, batch {batch}"
        yield Figure(name, ours / (TOGETHER * one), 1.0, "lower", "×")
