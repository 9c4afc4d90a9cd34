"""`unbraid capture` and `unbraid diagnose` as a user meets them."""

import json
import shutil
import signal

import pytest
import torch

from unbraid import cli
from unbraid.activations.shards import Shards
from unbraid.progress import Silent


def unbraid(capsys, *words):
    code = cli.guarded(lambda: cli.app([str(word) for word in words]))
    return code, *capsys.readouterr()


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(["the cat sat on it and then ran"] * 60))
    return tmp_path / "text.txt"


def test_capture_and_diagnose(folders, text, tmp_path, capsys):
    words = ("capture", folders["llama"], text, "--site", "blocks.1.hook_resid_post", "--out", tmp_path / "out")
    code, out, err = unbraid(capsys, *words)
    assert code == 0, err
    assert out.splitlines()[-1] == str(tmp_path / "out")
    told = " ".join(out.split())
    assert "llama at blocks.1.hook_resid_post" in told
    assert "480 tokens of" in told
    assert "width 12, float32: 1 shard" in told
    code, out, err = unbraid(capsys, "diagnose", tmp_path / "out")
    assert code == 0, err
    for part in ("mean offset", "outlier dimensions", "effective rank", "lengths", "Dead features", "Suggested"):
        assert part in out
    code, out, _ = unbraid(capsys, "diagnose", tmp_path / "out", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["dimensions"], found["rows"]) == (12, 432)


def test_quiet_prints_only_the_folder(folders, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = unbraid(
        capsys, "capture", folders["bert"], text, "--site", "encoder.layer.1", "-q", "--tokens", 50
    )
    assert (code, out, err) == (0, "activations/bert-encoder.layer.1\n", "")
    assert len(Shards.open(tmp_path / "activations" / "bert-encoder.layer.1")) == 50


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--site": "model.layer.1"}, "did you mean 'model.layers.1'?"),
        ({"MODEL": "nowhere/at-all"}, "there is no folder 'nowhere/at-all'"),
        ({"MODEL": "{empty}"}, "is a model without weights"),
        ({"TEXT": "{tmp}/no.txt"}, "there is no such text"),
        ({"TEXT": "{tmp}/empty.txt"}, "is empty"),
        ({"TEXT": "{tmp}/latin.txt"}, "is not UTF-8"),
        ({"--dtype": "float16"}, "dtype is 'float16'"),
        ({"--tokens": "0"}, "tokens is 0"),
        ({"--context": "100"}, "takes 32 tokens at most"),
        ({"--out": "{tmp}/text.txt"}, "is a file"),
        ({"--out": "{tmp}"}, "holds other files"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(folders, text, tmp_path, capsys, change, said):
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "weightless").mkdir()
    shutil.copy(folders["llama"] / "config.json", tmp_path / "weightless")
    asked = {
        "MODEL": str(folders["llama"]),
        "TEXT": str(text),
        "--site": "model.layers.1",
        "--out": "{tmp}/out",
        **change,
    }
    asked = {key: value.format(tmp=tmp_path, empty=tmp_path / "weightless") for key, value in asked.items()}
    options = [word for key, value in asked.items() if key.startswith("--") for word in (key, value)]
    code, out, err = unbraid(capsys, "capture", asked["MODEL"], asked["TEXT"], *options, "-q")
    assert (code, out) == (2, "")
    assert err.startswith("unbraid: ")
    assert len(err.splitlines()) == 1
    assert said in err


def test_diagnosing_what_is_damaged_is_one_sentence_and_exit_2(tmp_path, keep_as_shards, capsys):
    folder = keep_as_shards(tmp_path / "out", torch.randn(300, 4))
    (folder / "00000.safetensors").write_bytes(b"x" * (folder / "00000.safetensors").stat().st_size)
    for path, said in ((folder, "is damaged"), (tmp_path, "is not a folder of shards")):
        code, _, err = unbraid(capsys, "diagnose", path)
        assert code == 2
        assert len(err.splitlines()) == 1
        assert said in err


@pytest.mark.parametrize("command", ["capture", "diagnose"])
def test_help_names_every_option(command, capsys):
    code, out, _ = unbraid(capsys, command, "--help")
    assert code == 0
    expected = {
        "capture": ("MODEL", "TEXT", "--site", "--tokens", "--dtype", "--context", "--batch", "--out", "--quiet"),
        "diagnose": ("SHARDS", "--json"),
    }
    assert all(word in out for word in expected[command])


class Signalled(Silent):
    """Sends a real signal to this process once the third batch has run."""

    batches = 0

    def advance(self, stack: int, step: int) -> None:
        super().advance(stack, step)
        self.batches += 1
        if self.batches == 3:
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_stops_it_and_the_same_command_goes_on(folders, text, tmp_path, capsys, monkeypatch):
    words = ["capture", str(folders["llama"]), str(text), "--site", "model.layers.2", "--batch", "64", "--out"]
    with monkeypatch.context() as patched:
        patched.setattr("unbraid.progress.for_terminal", lambda quiet: Signalled())
        code, _, err = unbraid(capsys, *words, tmp_path / "a")
    assert code == 143
    assert f"go on with: unbraid capture {folders['llama']} {text} --site model.layers.2" in err
    for name in ("a", "b"):
        assert unbraid(capsys, *words, tmp_path / name, "-q")[0] == 0
    found = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("a", "b")]
    assert found[0] == found[1]
