"""Texts are found by name or path, become numbers and back, and are tokenized once, until they change."""

from pathlib import Path

import numpy as np
import pytest

from unbraid.errors import Missing, UserError
from unbraid.worlds.text import tokens as module
from unbraid.worlds.text.tokens import (
    RARE,
    bpe_tokenizer,
    character_tokenizer,
    corpus_files,
    learn_bpe,
    read_corpus,
    tokenize,
)


def test_a_file_keeps_its_last_tenth_from_the_next_line_on(tmp_path: Path):
    lines = [
        f"line {number:03d}\n" for number in range(100)
    ]  # 9 characters each: the last tenth is from 810, where line 90 begins
    (tmp_path / "a.txt").write_text("".join(lines))
    corpus = read_corpus(str(tmp_path / "a.txt"))
    assert corpus.training + corpus.validation == "".join(lines)
    assert corpus.validation == "".join(lines[91:])


def test_a_file_of_one_line_is_cut_at_its_last_tenth(tmp_path: Path):
    (tmp_path / "a.txt").write_text("x" * 99 + "\n")
    corpus = read_corpus(str(tmp_path / "a.txt"))
    assert (len(corpus.training), len(corpus.validation)) == (90, 10)


def test_a_folder_has_both_parts_and_each_may_be_shortened(tmp_path: Path):
    (tmp_path / "train.txt").write_text("\N{BYTE ORDER MARK}abcdef")
    (tmp_path / "valid.txt").write_text("uvwxyz")
    assert (read_corpus(str(tmp_path)).training, read_corpus(str(tmp_path)).validation) == ("abcdef", "uvwxyz")
    short = read_corpus(str(tmp_path), 3, 2)
    assert (short.training, short.validation) == ("abc", "uv")


def test_real_data_that_is_not_there_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Missing, match=r"no text 'real-data/wikitext-2'.*`make real-data` makes it"):
        corpus_files("wikitext-2")


@pytest.mark.parametrize(
    ("content", "sentence"), [(b" \n ", "is empty"), (b"ab\xff\xfe", r"is not UTF-8 .*accepted: a text in UTF-8")]
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, sentence: str):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_corpus(str(tmp_path / "a.txt"))


def test_a_name_that_is_nearly_right_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Missing, match="did you mean 'primer'"):
        read_corpus("primr")
    (tmp_path / "train.txt").write_text("abc")
    with pytest.raises(UserError, match=r"has no valid\.txt"):
        read_corpus(str(tmp_path))


TEXT = "the cat sat on the mat. the dog sat on the cat.\n" * 20 + "naïve “quotes” 日本\n"


def test_characters_are_numbered_and_rare_ones_are_unknown():
    units = character_tokenizer("a" * RARE + "b" * (RARE - 1) + "日" * RARE)
    assert units.vocabulary == ("<padding>", "<unknown>", "a", "日")
    assert units.encode("ab日c").tolist() == [2, 1, 3, 1]
    assert units.decode([2, 1, 3]) == "a\N{REPLACEMENT CHARACTER}日"


def test_a_text_of_rare_characters_alone_is_refused():
    with pytest.raises(UserError, match="no character of the text occurs 10 times"):
        character_tokenizer("abcdefghij")


@pytest.mark.parametrize("text", [TEXT, "  two spaces\n\n\tand a tab \r\n", "never seen: Ж😀 \x00", ""])
def test_byte_pairs_write_everything_back(text: str):
    units = bpe_tokenizer(learn_bpe(TEXT, 280))
    tokens = units.encode(text).tolist()
    assert units.decode(tokens) == text
    assert all(1 <= token <= 280 for token in tokens)
    assert len(units.vocabulary) == 281


def test_a_byte_pair_is_what_stands_together_most_often():
    """In 'abab…' the first pair is ab, then abab: by hand."""
    learned = bpe_tokenizer(learn_bpe("abababab\n" * 5, 258))
    assert learned.vocabulary[257:] == ("ab", "abab")
    assert [learned.vocabulary[token] for token in learned.encode("ababab")] == ["abab", "ab"]


def test_learning_twice_gives_the_same():
    assert learn_bpe(TEXT, 280).to_str() == learn_bpe(TEXT, 280).to_str()


def test_more_pairs_than_the_text_has_are_refused():
    with pytest.raises(
        UserError, match=r"5000 tokens were asked for and the text has pairs for [23]..; accepted: 257 to"
    ):
        learn_bpe(TEXT, 5000)


LINES = "the cat sat on the mat and the dog sat on the cat\n" * 40


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(LINES)
    return "a.txt"


def test_a_text_that_has_changed_is_read_again(text: str):
    first = tokenize(text, None, None, None)
    assert tokenize(text, None, None, None) is first
    Path(text).write_text(LINES + "more of the same, and longer\n" * 20)
    again = tokenize(text, None, None, None)
    assert again.fingerprint != first.fingerprint
    assert len(again.training) > len(first.training)


def test_byte_pairs_are_learned_once(text: str, monkeypatch: pytest.MonkeyPatch):
    first = tokenize(text, 270, None, None)
    (folder,) = Path("tokens").iterdir()
    assert folder.name == f"a-270-{first.fingerprint[:8]}"
    module._tokenize.cache_clear()
    monkeypatch.setattr(module, "learn_bpe", lambda *_: pytest.fail("learned again"))
    again = tokenize(text, 270, None, None)
    np.testing.assert_array_equal(again.training, first.training)
    np.testing.assert_array_equal(again.validation, first.validation)
    assert again.tokenizer.vocabulary == first.tokenizer.vocabulary
    assert again.tokenizer.decode(again.training.tolist()) + again.tokenizer.decode(again.validation.tolist()) == LINES
