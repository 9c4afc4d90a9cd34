"""What a language model loses when something in it is replaced, from its logits; and what counting tokens predicts.

cross-entropy  = mean over tokens of -log p(next token)
divergence     = mean over tokens of KL(as it was ‖ replaced)
loss recovered = (CE ablated - CE replaced) / (CE ablated - CE as it was): 1 for what was there, 0 for the ablation
KL recovered   = 1 - KL replaced / KL ablated

**Counting**, the chance of a language model:

unigram   p(w) = (n(w) + 1) / (n + V)                                V: tokens that can occur, padding not among them
bigram    p(w | v) = (n(v w) + d(v) p(w)) / (n(v ·) + d(v))          d(v): different tokens seen after v

The second is Witten and Bell's (1991): the more different tokens followed, the likelier is one that never did. After a
token that was never followed by any it is the first. Surprise is -log p in nats, in the mean over all tokens but the
first.
"""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor

RESAMPLES = 200


@dataclass(frozen=True)
class Losses:
    """Per window: how many tokens were counted, and the sums over them of cross-entropy and divergence."""

    tokens: Float[np.ndarray, "b"]
    cross_entropy: Float[np.ndarray, "b"]
    divergence: Float[np.ndarray, "b"]


def counted(kept: Bool[Tensor, "b t"]) -> Bool[Tensor, "b u"]:
    """Where a token and the next are both text: what is predicted there is judged."""
    return kept[:, :-1] & kept[:, 1:]


def log_probabilities(logits: Float[Tensor, "b t v"], where: Bool[Tensor, "b u"]) -> Float[Tensor, "p v"]:
    """At the places counted, all windows after one another."""
    return logits[:, :-1][where].log_softmax(-1)


def losses(
    clean: Float[Tensor, "p v"], found: Float[Tensor, "p v"], tokens: Int[Tensor, "b t"], where: Bool[Tensor, "b u"]
) -> Losses:
    """Of log-probabilities as they were and as they are now."""
    following = tokens[:, 1:][where]
    surprise = -found.gather(1, following[:, None])[:, 0]
    divergence = torch.nn.functional.kl_div(found, clean, reduction="none", log_target=True).sum(1)
    window = where.nonzero()[:, 0]

    def total(each: Tensor) -> np.ndarray:
        each, places = each.cpu().double(), window.cpu()
        return torch.zeros(len(where), dtype=torch.double).index_add_(0, places, each).numpy()

    return Losses(total(torch.ones_like(surprise)), total(surprise), total(divergence))


def joined(parts: list[Losses]) -> Losses:
    """Windows after one another."""
    columns = zip(*[(part.tokens, part.cross_entropy, part.divergence) for part in parts], strict=True)
    return Losses(*(np.concatenate(column) for column in columns))


def recovered(clean: Losses, found: Losses, ablated: Losses) -> dict[str, float]:
    """All scores of a replacement; NaN for a share of nothing."""
    once = np.ones((1, len(clean.tokens)))
    return {name: float(value[0]) for name, value in _scores(clean, found, ablated, once).items()}


def errors(clean: Losses, found: Losses, ablated: Losses, rng: np.random.Generator) -> dict[str, float | None]:
    """The standard error of each score from the luck of the text: windows drawn again with replacement.

    Of fewer than two windows in which something is counted there is none to know.
    """
    some = clean.tokens > 0
    windows = int(some.sum())
    if windows < 2:
        return dict.fromkeys(_scores(clean, found, ablated, np.zeros((1, len(some)))))
    often = rng.multinomial(windows, some / windows, RESAMPLES).astype(float)
    return {name: float(value.std(ddof=1)) for name, value in _scores(clean, found, ablated, often).items()}


def _scores(clean: Losses, found: Losses, ablated: Losses, often: Float[np.ndarray, "r b"]) -> dict[str, np.ndarray]:
    """The scores with every window as often as is said, once for each row."""
    tokens = often @ clean.tokens
    was, now, worst = (often @ each.cross_entropy for each in (clean, found, ablated))
    apart, furthest = often @ found.divergence, often @ ablated.divergence
    return {
        "ce": _share(now, tokens),
        "kl": _share(apart, tokens),
        "loss_recovered": _share(worst - now, worst - was),
        "kl_recovered": _share(furthest - apart, furthest),
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole != 0)


def unigram_surprise(training: Int[np.ndarray, "n"], predicted: Int[np.ndarray, "p"], vocabulary: int) -> float:
    """Of every token but the first of what is predicted."""
    return float(-np.log(_unigram(training, vocabulary)[predicted[1:]]).mean())


def bigram_surprise(training: Int[np.ndarray, "n"], predicted: Int[np.ndarray, "p"], vocabulary: int) -> float:
    """Of every token but the first, from the one before it."""
    pairs, counts = np.unique(_pairs(training, vocabulary), return_counts=True)
    before = pairs // vocabulary
    followed = np.bincount(before, counts, vocabulary)
    different = np.bincount(before, minlength=vocabulary)
    given, asked = predicted[:-1], _pairs(predicted, vocabulary)
    place = np.searchsorted(pairs, asked).clip(max=len(pairs) - 1)
    seen = np.where(pairs[place] == asked, counts[place], 0)
    prior = _unigram(training, vocabulary)[predicted[1:]]
    total = followed[given] + different[given]
    likely = np.divide(seen + different[given] * prior, total, out=prior.copy(), where=total > 0)
    return float(-np.log(likely).mean())


def _unigram(training: Int[np.ndarray, "n"], vocabulary: int) -> Float[np.ndarray, "v"]:
    return (np.bincount(training, minlength=vocabulary) + 1) / (len(training) + vocabulary - 1)


def _pairs(tokens: Int[np.ndarray, "n"], vocabulary: int) -> Int[np.ndarray, "p"]:
    """A number for each token and the next."""
    return tokens[:-1].astype(np.int64) * vocabulary + tokens[1:]
