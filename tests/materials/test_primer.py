"""The primer in the package is what its grammar tells."""

from materials.primer import told
from unbraid.worlds.text.tokens import NAMED


def test_the_primer_is_what_the_grammar_tells():
    assert NAMED["primer"].read_text(encoding="utf-8") == told()


def test_tales_keep_to_who_and_what():
    for paragraph in told(20_000, seed=1).strip().split("\n\n"):
        assert not ("The " in paragraph and "they were" in paragraph and " he " in paragraph)
        several = " they " in paragraph
        assert ("They were" in paragraph) == several
        assert not (several and ("She was" in paragraph or "He was" in paragraph))
