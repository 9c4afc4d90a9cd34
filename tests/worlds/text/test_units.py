"""Texts become numbers and back: characters that are rare are unknown, byte pairs write everything."""

import pytest

from unbraid.errors import Refusal
from unbraid.worlds.text.units import RARE, byte_pairs, characters, learn

TEXT = "the cat sat on the mat. the dog sat on the cat.\n" * 20 + "naïve “quotes” 日本\n"


def test_characters_are_numbered_and_rare_ones_are_unknown():
    units = characters("a" * RARE + "b" * (RARE - 1) + "日" * RARE)
    assert units.vocabulary == ("<padding>", "<unknown>", "a", "日")
    assert units.encode("ab日c").tolist() == [2, 1, 3, 1]
    assert units.decode([2, 1, 3]) == "a\N{REPLACEMENT CHARACTER}日"


def test_a_text_of_rare_characters_alone_is_refused():
    with pytest.raises(Refusal, match="no character of the text occurs 10 times"):
        characters("abcdefghij")


@pytest.mark.parametrize("text", [TEXT, "  two spaces\n\n\tand a tab \r\n", "never seen: Ж😀 \x00", ""])
def test_byte_pairs_write_everything_back(text: str):
    units = byte_pairs(learn(TEXT, 280))
    tokens = units.encode(text).tolist()
    assert units.decode(tokens) == text
    assert all(1 <= token <= 280 for token in tokens)
    assert len(units.vocabulary) == 281


def test_a_byte_pair_is_what_stands_together_most_often():
    """In 'abab…' the first pair is ab, then abab: by hand."""
    learned = byte_pairs(learn("abababab\n" * 5, 258))
    assert learned.vocabulary[257:] == ("ab", "abab")
    assert [learned.vocabulary[token] for token in learned.encode("ababab")] == ["abab", "ab"]


def test_learning_twice_gives_the_same():
    assert learn(TEXT, 280).to_str() == learn(TEXT, 280).to_str()


def test_more_pairs_than_the_text_has_are_refused():
    with pytest.raises(
        Refusal, match=r"5000 tokens were asked for and the text has pairs for [23]..; accepted: 257 to"
    ):
        learn(TEXT, 5000)
