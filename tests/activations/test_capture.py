"""What is on disk after a capture is what the model has at the site, token by token, however often it was stopped."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from unbraid.activations import capture as capture_module
from unbraid.activations import shards as shards_module
from unbraid.activations.capture import CaptureConfig, capture_missing, capture_sites
from unbraid.activations.shards import Shards, read_manifest
from unbraid.activations.sites import find_site
from unbraid.activations.text import context_length
from unbraid.config import check
from unbraid.errors import Missing, UserError
from unbraid.progress import Silent, Task
from unbraid.worlds import Activations

SITES = {"llama": "model.layers.1", "gpt2": "blocks.1.hook_mlp_out", "bert": "encoder.layer.1"}
WORDS = ["the", "cat", "zebra", "sat", "on", "it", "and", "then", "house"]


@pytest.fixture
def text(tmp_path, rng):
    """Forty documents of one to sixty words."""
    documents = [" ".join(rng.choice(WORDS, int(rng.integers(1, 60)))) for _ in range(40)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    return tmp_path / "text.txt"


def made(model, text, folder, progress=None, **settings):
    site = find_site(model, SITES[model.model.config.model_type])
    small = {"batch": 128, "shard_bytes": 12_000, **settings}
    config = CaptureConfig(model=model.name, text=str(text), site=site.name, **small)
    return capture_sites(model, [site], config, folder, progress or Silent())


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_every_row_is_what_the_model_has_for_that_token(kind, request, text, tmp_path):
    """Against one document at a time, unpadded, and transformers' own hidden states."""
    model = request.getfixturevalue(kind)
    shards = made(model, text, tmp_path / "out", context=16)
    every = np.arange(len(shards))
    found = shards.activations(every)
    tokens, positions, documents = (shards.column(name, every) for name in ("tokens", "positions", "documents"))
    row = 0
    for number, document in enumerate(text.read_text().split("\n\n")):
        ids = [model.tokenizer.convert_tokens_to_ids(word) for word in document.split()]
        for start in range(0, len(ids), 14):
            window = [1, *ids[start : start + 14], 2]
            inputs = torch.tensor([window])
            if kind == "gpt2":
                kept = {}
                module = model.model.transformer.h[1].mlp
                handle = module.register_forward_hook(lambda m, i, o, kept=kept: kept.update(o=o))
                model.model(input_ids=inputs)
                handle.remove()
                truth = kept["o"][0]
            else:
                truth = model.model(input_ids=inputs, output_hidden_states=True).hidden_states[2][0]
            inside = len(window) - 2
            torch.testing.assert_close(found[row : row + inside], truth[1:-1], rtol=1e-4, atol=1e-5)
            assert tokens[row : row + inside].tolist() == window[1:-1]
            assert positions[row : row + inside].tolist() == list(range(1, inside + 1))
            assert set(documents[row : row + inside]) == {number}
            row += inside
    assert row == len(shards)
    assert len(shards.manifest.shards) > 3


def test_bfloat16_is_the_same_rounded(llama, text, tmp_path):
    whole, half = made(llama, text, tmp_path / "a"), made(llama, text, tmp_path / "b", dtype="bfloat16")
    every = np.arange(len(whole))
    assert torch.equal(whole.activations(every).bfloat16().float(), half.activations(every))
    assert half.manifest.shards[0].tokens > whole.manifest.shards[0].tokens


def test_a_shard_is_an_ordinary_safetensors_file(llama, text, tmp_path):
    shards = made(llama, text, tmp_path / "out")
    read = load_file(tmp_path / "out" / "00001.safetensors")
    rows = np.arange(shards.starts[1], shards.starts[2])
    assert torch.equal(read["activations"], shards.activations(rows))
    assert set(read) == {"activations", "tokens", "positions", "documents"}


def files(folder: Path):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class StopsAfter(Silent):
    """As if the process were stopped: an exception out of nowhere, after so many advances."""

    def __init__(self, advances: int) -> None:
        super().__init__()
        self.left = advances

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("advances", [1, 4, 9])
def test_a_stopped_capture_ends_with_the_same_files(llama, text, tmp_path, advances, monkeypatch):
    made(llama, text, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        made(llama, text, tmp_path / "stopped", StopsAfter(advances))
    kept = len(read_manifest(tmp_path / "stopped").shards)
    with pytest.raises(UserError, match="accepted: a finished capture"):
        Shards.open(tmp_path / "stopped")
    written = []
    write = shards_module.write_shard
    monkeypatch.setattr(shards_module, "write_shard", lambda f, n, t: written.append(n) or write(f, n, t))
    made(llama, text, tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")
    assert written[0] == kept


class Recording(Silent):
    """Records the tasks it is given and the steps they reach."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Task] = []
        self.steps: list[int] = []

    def plan(self, tasks: Sequence[Task], workers: int = 1) -> None:
        super().plan(tasks, workers)
        self.tasks = list(tasks)

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        self.steps.append(step)


def test_progress_reaches_the_end(llama, text, tmp_path):
    progress = Recording()
    made(llama, text, tmp_path / "out", progress, batch=64)
    [task] = progress.tasks
    assert progress.steps == sorted(progress.steps)
    assert progress.steps[-1] == task.steps


def test_tokens_are_as_many_as_asked_for(llama, text, tmp_path):
    assert len(made(llama, text, tmp_path / "out", tokens=101)) == 101


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"dtype": "bfloat16"}, "dtype 'float32'"), ({"tokens": 50}, "tokens"), ({"context": 8}, "context 32")],
)
def test_a_folder_with_another_capture_is_refused(llama, text, tmp_path, changed, said):
    made(llama, text, tmp_path / "out")
    with pytest.raises(UserError, match=said):
        made(llama, text, tmp_path / "out", **changed)


def test_a_folder_with_another_model_or_text_is_refused(llama, bert, text, tmp_path):
    made(llama, text, tmp_path / "out")
    with pytest.raises(UserError, match="holds activations with model"):
        made(bert, text, tmp_path / "out")
    text.write_text(text.read_text().replace("cat", "dog"))
    with pytest.raises(UserError, match="holds activations with text_sha256"):
        made(llama, text, tmp_path / "out")


def test_the_same_text_by_another_path_goes_on(llama, text, tmp_path):
    made(llama, text, tmp_path / "out")
    (tmp_path / "out" / "00001.safetensors").unlink()
    before = read_manifest(tmp_path / "out")
    shutil.copy(text, tmp_path / "copied.txt")
    made(llama, tmp_path / "copied.txt", tmp_path / "out")
    assert read_manifest(tmp_path / "out") == before


def test_a_folder_with_other_files_is_refused(llama, text, tmp_path):
    with pytest.raises(UserError, match="holds other files"):
        made(llama, text, tmp_path)


def test_a_full_disk_is_seen_before_starting(llama, text, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(UserError, match="GB free; accepted: fewer --tokens"):
        made(llama, text, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.safetensors"))


@pytest.mark.parametrize("context", [2, 33])
def test_a_context_that_cannot_be_is_refused(llama, text, tmp_path, context):
    """A window of two would hold the beginning and the end of a text and nothing between."""
    with pytest.raises(UserError, match=r"takes 32 tokens at most, 2 of them special; accepted: 3 to 32"):
        made(llama, text, tmp_path / "out", context=context)
    made(llama, text, tmp_path / "out", context=3)
    assert set(Shards.open(tmp_path / "out").column("positions", np.arange(20))) == {1}


def test_a_tokenizer_that_takes_less_than_the_model_decides(llama, monkeypatch):
    monkeypatch.setattr(llama.tokenizer, "model_max_length", 20)
    assert context_length(llama, None) == 20
    with pytest.raises(UserError, match="accepted: 3 to 20"):
        context_length(llama, 21)


def test_a_damaged_shard_is_refused(llama, text, tmp_path):
    made(llama, text, tmp_path / "out")
    path = tmp_path / "out" / "00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    shards = Shards.open(tmp_path / "out")
    shards.activations(np.array([0]))
    with pytest.raises(UserError, match=r"00001.safetensors is damaged"):
        shards.activations(np.array([0, shards.starts[1]]))
    path.write_bytes(content[:-1])
    with pytest.raises(UserError, match="is damaged"):
        Shards.open(tmp_path / "out")
    path.unlink()
    with pytest.raises(UserError, match="is damaged"):
        Shards.open(tmp_path / "out")


def test_what_was_removed_is_made_again(llama, text, tmp_path):
    made(llama, text, tmp_path / "out")
    before = files(tmp_path / "out")
    (tmp_path / "out" / "00001.safetensors").unlink()
    made(llama, text, tmp_path / "out")
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 2}', '{"format": 1, "origin": 3, "shards": []}'])
def test_a_damaged_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"manifest.json"):
        Shards.open(tmp_path)


def test_a_folder_without_shards_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a folder of shards"):
        Shards.open(tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        Shards.open(tmp_path / "nothing")


def test_the_manifest_says_where_the_rows_come_from(llama, text, tmp_path):
    made(llama, text, tmp_path / "out")
    origin = json.loads((tmp_path / "out" / "manifest.json").read_text())["origin"]
    assert origin["model"] == llama.name
    assert (origin["site"], origin["width"], origin["context"]) == ("model.layers.1", 12, 32)


@pytest.fixture
def config(folders, tmp_path):
    """Of a text of 480 tokens."""
    (tmp_path / "short.txt").write_text("\n\n".join(["the cat sat on it and then ran"] * 60))
    text = str(tmp_path / "short.txt")
    return CaptureConfig(model=str(folders["llama"]), text=text, site="model.layers.1", tokens=300)


def test_what_is_not_there_is_captured_and_the_world_reads_it(config, tmp_path):
    capture_missing(config, tmp_path / "acts", Silent())
    assert len(Shards.open(tmp_path / "acts")) == 300
    world = Activations(path=str(tmp_path / "acts"), capture=config)
    assert (world.dimensions, world.site, world.model) == (12, "model.layers.1", config.model)


def test_what_is_there_is_left_alone(config, tmp_path, monkeypatch):
    capture_missing(config, tmp_path / "acts", Silent())
    monkeypatch.setattr(capture_module, "load_model", lambda name: pytest.fail(f"{name} was loaded"))
    capture_missing(config, tmp_path / "acts", Silent())


def test_a_text_shorter_than_asked_for_is_read_again_and_found_to_be_the_same(config, tmp_path):
    longer = config.model_copy(update={"tokens": 10_000})
    for _ in range(2):
        capture_missing(longer, tmp_path / "acts", Silent())
    assert len(Shards.open(tmp_path / "acts")) == 480


def test_more_tokens_than_a_folder_has_are_another_capture(config, tmp_path):
    capture_missing(config, tmp_path / "acts", Silent())
    with pytest.raises(UserError, match="holds activations with tokens 300, and 400 was asked for"):
        capture_missing(config.model_copy(update={"tokens": 400}), tmp_path / "acts", Silent())


@pytest.mark.parametrize(("name", "value"), [("site", "model.layers.2"), ("tokens", 200), ("dtype", "bfloat16")])
def test_a_folder_with_something_else_is_refused(config, tmp_path, name, value):
    capture_missing(config, tmp_path / "acts", Silent())
    other = config.model_copy(update={name: value})
    for ask in (
        lambda: capture_missing(other, tmp_path / "acts", Silent()),
        lambda: Activations(path=str(tmp_path / "acts"), capture=other),
    ):
        with pytest.raises(UserError, match=f"holds activations with {name} .* and world.capture has"):
            ask()


def test_a_capture_that_was_stopped_is_gone_on_with(config, tmp_path):
    capture_missing(config, tmp_path / "acts", Silent())
    manifest = read_manifest(tmp_path / "acts")
    manifest.model_copy(update={"shards": ()}).write(tmp_path / "acts")
    with pytest.raises(Missing, match=r"does not hold the activations of .* yet"):
        Activations(path=str(tmp_path / "acts"), capture=config)
    capture_missing(config, tmp_path / "acts", Silent())
    assert read_manifest(tmp_path / "acts") == manifest


def test_without_a_path_other_settings_have_another_folder(config):
    assert config.folder.parts[0] == "activations"
    assert config.folder.name.startswith("llama-model.layers.1-")
    assert config.folder != config.model_copy(update={"tokens": 301}).folder
    assert config.folder == config.model_copy(update={"batch": 7}).folder


def test_without_a_path_or_what_they_are_made_of_there_is_no_world():
    with pytest.raises(UserError, match=r"world.path was not given; accepted: .*, or world.capture"):
        check(Activations, {"kind": "activations"}, "here")
    with pytest.raises(UserError, match=r"world.capture: the setting 'site' is required"):
        check(Activations, {"capture": {"model": "m", "text": "t"}}, "here")


@pytest.mark.parametrize("lacking", ["model", "text"])
def test_what_make_fetches_is_said_to_be_fetched_by_it(config, tmp_path, lacking, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = config.model_copy(update={lacking: "real-data/nothing"})
    for ask in (
        lambda: capture_missing(other, tmp_path / "acts", Silent()),
        lambda: Activations(path="acts", capture=other),
    ):
        with pytest.raises(Missing, match=r"; `make real-data` makes it$"):
            ask()
    with pytest.raises(Missing) as problem:
        Activations(path="acts", capture=config)
    assert "make" not in str(problem.value)


def test_a_site_and_its_target_are_captured_in_one_pass(llama, text, tmp_path, monkeypatch):
    passes = []
    monkeypatch.setattr(llama.model, "forward", _counted(llama.model.forward, passes))
    both = _captured(llama, text, tmp_path / "both", ["blocks.1.hook_resid_pre", "blocks.1.hook_mlp_out"])
    once = len(passes)
    alone = [
        _captured(llama, text, tmp_path / name, [name]) for name in ("blocks.1.hook_resid_pre", "blocks.1.hook_mlp_out")
    ]
    assert len(passes) == 3 * once
    every = np.arange(len(both))
    torch.testing.assert_close(both.activations(every), torch.cat([one.activations(every) for one in alone], 1))
    world = Activations.model_validate({"path": str(tmp_path / "both")})
    assert (world.dimensions, world.target_dimensions) == (12, 12)
    assert world.site == "blocks.1.hook_resid_pre → blocks.1.hook_mlp_out"
    assert world.batch(0, 5).target.shape == (5, 12)


def _captured(model, text, folder, names):
    sites = [find_site(model, name) for name in names]
    config = CaptureConfig(model=model.name, text=str(text), **dict(zip(("site", "target"), names, strict=False)))
    return capture_sites(model, sites, config, folder, Silent())


def _counted(forward, passes):
    def run(*args, **named):
        passes.append(1)
        return forward(*args, **named)

    return run
