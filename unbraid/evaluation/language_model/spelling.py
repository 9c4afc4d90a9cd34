"""The first-letter task on a model: words are pieces of its vocabulary, read one at a time.

A word is a piece that stands for a whole lower-case word of at least three letters (with the space before it, where the
tokenizer writes one); the model reads it alone, after its beginning token, and its activation is that of the piece.
"""

import re
from collections.abc import Mapping
from string import ascii_lowercase

import numpy as np
import torch
from scipy import sparse

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site
from unbraid.evaluation.language_model.sae import BLOCK, SAE, active_features, first_windows, read_rows, token_batches
from unbraid.metrics import probing
from unbraid.metrics.absorption import LetterAbsorption, LetterProbe, Words, absorption_by_letter
from unbraid.progress import ReportShare, ignore_share
from unbraid.randomness import stream

SPACES = {"▁": "", "Ġ": " "}
"""How tokenizers write the space before a word, and what a text must begin with to get it."""
WORD = re.compile(r"[a-z]{3,}")
CONTEXT = 8
TEST_SHARE = 0.2
BATCH_TOKENS = 8192


def vocabulary_words(model: HuggingFaceModel) -> list[str]:
    """Every whole word of the vocabulary, with a space before it where its piece has one."""
    pieces = list(model.tokenizer.get_vocab())
    marked = {mark: [piece[1:] for piece in pieces if piece[:1] == mark] for mark in SPACES}
    mark = max(SPACES, key=lambda mark: len(marked[mark]))  # the other may be there as a letter
    return sorted(SPACES[mark] + word for word in marked[mark] or pieces if WORD.fullmatch(word))


def read_words(model: HuggingFaceModel, site: Site) -> Words:
    """The activations of all words that are one token, one word in five kept for the test."""
    words = vocabulary_words(model)
    windows = [window for window in first_windows(model, words, CONTEXT) if window.n_kept == 1] if words else []
    if not windows:
        return Words(np.zeros((0, 1), np.float32), np.zeros(0, int), np.zeros(0, bool))
    order, activations = [], []
    for batch in token_batches(model, windows, BATCH_TOKENS):
        order += [windows[number].document for number in batch.windows]
        activations.append(read_rows(model, site, batch).numpy())
    letters = np.array([ascii_lowercase.index(words[index].strip()[0]) for index in order])
    return Words(np.concatenate(activations), letters, stream(0, "test words").random(len(letters)) >= TEST_SHARE)


def absorption(
    words: Words, probes: list[LetterProbe], saes: Mapping[str, SAE], progress: ReportShare = ignore_share
) -> dict[str, list[LetterAbsorption]]:
    """How each dictionary absorbs each letter that has a good probe; activations are as the dictionary sees them."""
    by_sae: dict[str, list[LetterAbsorption]] = {}
    for name, sae in saes.items():
        by_sae[name] = _absorption(words, probes, sae) if probes else []
        progress(len(by_sae) / len(saes))
    return by_sae


def _absorption(words: Words, probes: list[LetterProbe], sae: SAE) -> list[LetterAbsorption]:
    x, blocks = torch.from_numpy(words.activations), []
    for block in x.split(BLOCK):
        features, values = active_features(sae.encode(block))
        rows = np.arange(len(block))
        blocks.append(probing.pool(features.numpy(), values.numpy(), rows, len(block), sae.stack.features))
    codes = sparse.csr_array(sparse.vstack(blocks))
    centered = Words(sae.centered(x).numpy(), words.letters, words.train)
    return absorption_by_letter(centered, probes, codes, sae.stack.directions[0].cpu().numpy())
