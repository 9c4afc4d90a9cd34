"""Hugging Face datasets, saved on the fly: the same documents and activations as of a text with the same content."""

import json
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from tests.test_cli import unbraid
from unbraid.activations.capture import CaptureConfig, capture, capture_command
from unbraid.activations.shards import Shards
from unbraid.activations.text import TextSource
from unbraid.errors import Missing, UserError

WORDS = ["the", "cat", "zebra", "sat", "on", "it", "and", "then", "house"]
SITE = ["--site", "model.layers.1"]


@pytest.fixture
def documents(rng) -> list[str]:
    return [" ".join(rng.choice(WORDS, int(rng.integers(1, 40)))) for _ in range(30)]


@pytest.fixture
def saved(tmp_path: Path, documents: list[str]) -> Path:
    """By `save_to_disk`, with an empty row and one that is missing."""
    rows = {"story": [*documents[:20], "", None], "n": list(range(22))}
    splits = {"train": Dataset.from_dict(rows), "test": Dataset.from_dict({"story": documents[20:], "n": [0] * 10})}
    DatasetDict(splits).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def parquet(tmp_path: Path, documents: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of parquet files, as a dataset on the hub has them."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "parquet"
    folder.mkdir()
    for split, rows in (("train", documents[:20]), ("test", documents[20:])):
        Dataset.from_dict({"text": rows}).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return folder


def jsonl(path: Path, documents: list[str]) -> Path:
    path.write_text("\n".join(json.dumps({"text": document}) for document in documents))
    return path


def test_documents_of_every_form_are_the_same(saved: Path, parquet: Path, documents: list[str], tmp_path: Path):
    assert list(TextSource(str(saved), "story", "train").documents()) == documents[:20]
    assert list(TextSource(str(parquet), split="test").documents()) == documents[20:]
    assert list(TextSource(str(parquet), split="train", streaming=True).documents()) == documents[:20]
    Dataset.from_dict({"text": documents}).save_to_disk(tmp_path / "single")
    assert list(TextSource(str(tmp_path / "single")).documents()) == documents
    assert list(TextSource(str(jsonl(tmp_path / "a.jsonl", documents))).documents()) == documents


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"column": "storey", "split": "train"}, r"has no column 'storey'; did you mean 'story'\? accepted: story, n"),
        ({"split": "train"}, r"has no column 'text'; accepted: story, n"),
        ({"column": "story", "split": "tain"}, r"has no split 'tain'; did you mean 'train'\? accepted: train, test"),
        ({"column": "story"}, r"has the splits train, test; accepted: one of them"),
        ({"column": "n", "split": "train"}, r"the column 'n' of .* holds 0; accepted: a column of texts"),
        ({"column": "story", "split": "train", "subset": "en"}, r"save_to_disk; accepted: without subset"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(saved: Path, asked: dict[str, str], sentence: str):
    with pytest.raises(UserError, match=sentence):
        list(TextSource(str(saved), **asked).documents())


def test_a_name_that_nobody_has(tmp_path: Path):
    with pytest.raises(
        Missing, match=r"there is no folder 'nobody/nothing' here and the hub gave no such dataset \(HF_"
    ):
        list(TextSource("nobody/nothing", split="train").documents())
    with pytest.raises(
        Missing, match=r"there is no such text; accepted: .* or a dataset of Hugging Face, with its split"
    ):
        list(TextSource("nobody/nothing").documents())
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be loaded as a Hugging Face dataset"):
        list(TextSource(str(tmp_path)).documents())


def test_without_the_library_the_extra_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UserError, match=r"accepted: `pip install 'unbraid\[datasets\]'`, or a text file"):
        list(TextSource(str(saved), "story", "train").documents())


def test_a_capture_of_a_dataset_is_that_of_its_texts(folders, saved: Path, documents, tmp_path, capsys):
    model, text = folders["llama"], jsonl(tmp_path / "train.jsonl", documents[:20])
    words = ["capture", model, saved, "--column", "story", "--split", "train", *SITE, "--tokens", 100]
    assert unbraid(capsys, *words, "--out", tmp_path / "a")[0] == 0
    assert unbraid(capsys, "capture", model, text, *SITE, "--tokens", 100, "--out", tmp_path / "b", "-q")[0] == 0
    assert (tmp_path / "a/00000.safetensors").read_bytes() == (tmp_path / "b/00000.safetensors").read_bytes()
    assert Shards.open(tmp_path / "a").manifest.origin.text == f"{saved} · train · story"
    assert unbraid(capsys, *words, "--out", tmp_path / "a")[0] == 0  # it is there: nothing is captured again
    code, _, err = unbraid(capsys, *[word if word != "train" else "test" for word in words], "--out", tmp_path / "a")
    assert (code, "text" in err) == (2, True)


def test_a_stream_reads_no_more_than_is_asked_for(folders, parquet: Path, tmp_path: Path, capsys):
    words = ["capture", folders["llama"], parquet, "--split", "train", *SITE]
    assert unbraid(capsys, *words, "--tokens", 50, "--streaming", "--out", tmp_path / "a", "-q")[0] == 0
    assert not list(tmp_path.glob("cache/**/*.arrow"))
    assert unbraid(capsys, *words, "--tokens", 50, "--out", tmp_path / "b", "-q")[0] == 0
    assert list(tmp_path.glob("cache/**/*.arrow"))
    assert (tmp_path / "a/00000.safetensors").read_bytes() == (tmp_path / "b/00000.safetensors").read_bytes()
    code, _, err = unbraid(capsys, *words, "--streaming", "--out", tmp_path / "c")
    assert code == 2
    assert "streaming is true and tokens was not given; accepted: streaming with a number of tokens" in err


def test_the_table_of_a_world_and_the_command_say_the_same(folders, saved: Path, tmp_path: Path):
    asked = {"model": str(folders["llama"]), "text": str(saved), "site": "model.layers.1", "tokens": 40}
    config = CaptureConfig(**asked, column="story", split="test")
    assert config.folder != CaptureConfig(**asked, column="story", split="train").folder
    assert "--column story --split test" in capture_command(config, tmp_path)
    shards = capture(config, tmp_path / "out")
    assert len(shards) == 40
    assert shards.manifest.origin.tokens == 40
