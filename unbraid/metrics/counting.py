"""What counting gives: how well the next token is predicted from how often tokens, or pairs of them, occurred.

unigram   p(w) = (n(w) + 1) / (n + V)                                V: tokens that can occur, padding not among them
bigram    p(w | v) = (n(v w) + d(v) p(w)) / (n(v ·) + d(v))          d(v): different tokens seen after v

The second is Witten and Bell's (1991): the more different tokens followed, the likelier is one that never did. After a
token that was never followed by any it is the first. Surprise is -log p in nats, in the mean over all tokens but the
first.
"""

import numpy as np

from unbraid.axes import Float, Int


def unigram_surprise(training: Int[np.ndarray, "n"], predicted: Int[np.ndarray, "p"], vocabulary: int) -> float:
    """Of every token but the first of what is predicted."""
    return float(-np.log(_shares(training, vocabulary)[predicted[1:]]).mean())


def bigram_surprise(training: Int[np.ndarray, "n"], predicted: Int[np.ndarray, "p"], vocabulary: int) -> float:
    """Of every token but the first, from the one before it."""
    pairs, counts = np.unique(_pairs(training, vocabulary), return_counts=True)
    before = pairs // vocabulary
    followed = np.bincount(before, counts, vocabulary)
    different = np.bincount(before, minlength=vocabulary)
    given, asked = predicted[:-1], _pairs(predicted, vocabulary)
    place = np.searchsorted(pairs, asked).clip(max=len(pairs) - 1)
    seen = np.where(pairs[place] == asked, counts[place], 0)
    prior = _shares(training, vocabulary)[predicted[1:]]
    total = followed[given] + different[given]
    likely = np.divide(seen + different[given] * prior, total, out=prior.copy(), where=total > 0)
    return float(-np.log(likely).mean())


def _shares(training: Int[np.ndarray, "n"], vocabulary: int) -> Float[np.ndarray, "v"]:
    return (np.bincount(training, minlength=vocabulary) + 1) / (len(training) + vocabulary - 1)


def _pairs(tokens: Int[np.ndarray, "n"], vocabulary: int) -> Int[np.ndarray, "p"]:
    """A number for each token and the next."""
    return tokens[:-1].astype(np.int64) * vocabulary + tokens[1:]
