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

from unbraid.capture.models import Model
from unbraid.capture.sites import Site
from unbraid.judging.lens import BLOCK, Lens, slots
from unbraid.judging.passage import first_windows, passages, rows
from unbraid.metrics import probing
from unbraid.metrics.first_letter import LetterAbsorption, LetterProbe, Words, absorption_by_letter
from unbraid.progress import Told, unwatched
from unbraid.randomness import stream

SPACES = {"▁": "", "Ġ": " "}
"""How tokenizers write the space before a word, and whether a text needs one to begin so; others mark what goes on."""
WORD = re.compile(r"[a-z]{3,}")
CONTEXT = 8
TEST_SHARE = 0.2
TOGETHER = 8192


def vocabulary_words(model: Model) -> list[str]:
    """Every whole word of the vocabulary, with a space before it where its piece has one."""
    pieces = list(model.tokenizer.get_vocab())
    marked = {mark: [piece[1:] for piece in pieces if piece[:1] == mark] for mark in SPACES}
    mark = max(SPACES, key=lambda one: len(marked[one]))  # the other may be there as a letter
    return sorted(SPACES[mark] + word for word in marked[mark] or pieces if WORD.fullmatch(word))


def read_words(model: Model, site: Site) -> Words:
    """The activations of all words that are one token, one word in five kept for the test."""
    named = vocabulary_words(model)
    chosen = [window for window in first_windows(model, named, CONTEXT) if window.amount == 1] if named else []
    if not chosen:
        return Words(np.zeros((0, 1), np.float32), np.zeros(0, int), np.zeros(0, bool))
    order, parts = [], []
    for passage in passages(model, chosen, TOGETHER):
        order += [chosen[place].document for place in passage.places]
        parts.append(rows(model, site, passage).numpy())
    letters = np.array([ascii_lowercase.index(named[place].strip()[0]) for place in order])
    return Words(np.concatenate(parts), letters, stream(0, "test words").random(len(letters)) >= TEST_SHARE)


def absorption(
    words: Words, probes: list[LetterProbe], lenses: Mapping[str, Lens], told: Told = unwatched
) -> dict[str, list[LetterAbsorption]]:
    """How each dictionary absorbs each letter that a probe can tell; activations are as the dictionary sees them."""
    found: dict[str, list[LetterAbsorption]] = {}
    for name, lens in lenses.items():
        found[name] = _absorption(words, probes, lens) if probes else []
        told(len(found) / len(lenses))
    return found


def _absorption(words: Words, probes: list[LetterProbe], lens: Lens) -> list[LetterAbsorption]:
    x, everything = torch.from_numpy(words.activations), []
    for part in x.split(BLOCK):
        features, values = slots(lens.encode(part))
        alone = np.arange(len(part))
        everything.append(probing.pool(features.numpy(), values.numpy(), alone, len(part), lens.stack.features))
    codes = sparse.csr_array(sparse.vstack(everything))
    seen = Words(lens.centred(x).numpy(), words.letters, words.train)
    return absorption_by_letter(seen, probes, codes, lens.stack.directions[0].numpy())
