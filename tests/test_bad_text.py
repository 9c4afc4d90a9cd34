"""Whatever is wrong with a run on text, a user reads one sentence, before anything is on disk."""

from pathlib import Path

import pytest

from tests.killing import LANGUAGE_MODELS as CONFIG
from unbraid import cli

REFUSED = {
    "a context longer than the text": (["world.context=5000"], "windows of 5000 tokens and the next were asked for"),
    "no such text": (["world.text=nowhere.txt"], "there is no text 'nowhere.txt'"),
    "an empty text": (["world.text=empty.txt"], "the text empty.txt is empty"),
    "not UTF-8": (["world.text=bytes.txt"], "the text bytes.txt is not UTF-8"),
    "unknown units": (["world.units=words"], "world.units is 'words'; it should be 'characters' or 'bpe'"),
    "too few byte pairs": (
        ["world.units=bpe", "world.tokens=200"],
        "world.tokens is 200; it should be greater than 256",
    ),
    "too many byte pairs": (["world.units=bpe", "world.tokens=90000"], "90000 tokens were asked for and the text has"),
    "seeing what comes": (["model.causal=false"], "model.causal is false, so that a token would see the next one"),
    "a mean over what comes": (["model.readout=mean"], "model.readout is 'mean', so that a token would see the next"),
    "tasks of stories": (["tasks.counting.model.layers=1"], "a world of kind 'text' has none"),
    "a dictionary": (["training.steps=3"], "training was given, and an experiment of kind 'language_models' has none"),
}


@pytest.mark.parametrize(("overrides", "sentence"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_in_one_sentence(
    overrides: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(CONFIG)
    Path("empty.txt").write_text(" \n")
    Path("bytes.txt").write_bytes(b"\xff\xfe\xfa")
    assert cli.guarded(lambda: cli.app(["run", "c.toml", *overrides, "-q"])) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not Path("runs").exists()
