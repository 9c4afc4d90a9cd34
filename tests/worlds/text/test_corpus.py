"""Texts are found by name or path, cut where a line begins, and refused in one sentence."""

from pathlib import Path

import pytest

from unbraid.errors import Missing, Refusal
from unbraid.worlds.text.corpus import files, read


def test_a_file_keeps_its_last_tenth_from_the_next_line_on(tmp_path: Path):
    lines = [
        f"line {number:03d}\n" for number in range(100)
    ]  # 9 characters each: the last tenth is from 810, where line 90 begins
    (tmp_path / "a.txt").write_text("".join(lines))
    corpus = read(str(tmp_path / "a.txt"))
    assert corpus.training + corpus.validation == "".join(lines)
    assert corpus.validation == "".join(lines[91:])


def test_a_file_of_one_line_is_cut_at_its_last_tenth(tmp_path: Path):
    (tmp_path / "a.txt").write_text("x" * 99 + "\n")
    corpus = read(str(tmp_path / "a.txt"))
    assert (len(corpus.training), len(corpus.validation)) == (90, 10)


def test_a_folder_has_both_parts_and_each_may_be_shortened(tmp_path: Path):
    (tmp_path / "train.txt").write_text("\N{BYTE ORDER MARK}abcdef")
    (tmp_path / "valid.txt").write_text("uvwxyz")
    assert (read(str(tmp_path)).training, read(str(tmp_path)).validation) == ("abcdef", "uvwxyz")
    short = read(str(tmp_path), 3, 2)
    assert (short.training, short.validation) == ("abc", "uv")


def test_real_data_that_is_not_there_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Missing, match=r"no text 'real-data/wikitext-2'.*`make real-data` makes it"):
        files("wikitext-2")


@pytest.mark.parametrize(
    ("content", "sentence"), [(b" \n ", "is empty"), (b"ab\xff\xfe", r"is not UTF-8 .*accepted: a text in UTF-8")]
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, sentence: str):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(Refusal, match=sentence):
        read(str(tmp_path / "a.txt"))


def test_a_name_that_is_nearly_right_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Missing, match="did you mean 'primer'"):
        read("primr")
    (tmp_path / "train.txt").write_text("abc")
    with pytest.raises(Refusal, match=r"has no valid\.txt"):
        read(str(tmp_path))
