"""Shards that say what they are made of: made where they are not there, left alone where they are."""

import pytest

from unbraid.capture import command
from unbraid.capture.manifest import read_manifest
from unbraid.capture.shards import Shards
from unbraid.capture.source import Source, gather
from unbraid.config import check
from unbraid.errors import Missing, Refusal
from unbraid.progress import Silent
from unbraid.worlds import Activations


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(["the cat sat on it and then ran"] * 60))
    return tmp_path / "text.txt"


@pytest.fixture
def source(folders, text):
    return Source(model=str(folders["llama"]), text=str(text), site="model.layers.1", tokens=300)


def test_what_is_not_there_is_captured_and_the_world_reads_it(source, tmp_path):
    gather(source, tmp_path / "acts", Silent())
    assert len(Shards.open(tmp_path / "acts")) == 300
    world = Activations(path=str(tmp_path / "acts"), capture=source)
    assert (world.dimensions, world.site, world.model) == (12, "model.layers.1", source.model)


def test_what_is_there_is_left_alone(source, tmp_path, monkeypatch):
    gather(source, tmp_path / "acts", Silent())
    monkeypatch.setattr(command, "load", lambda name: pytest.fail(f"{name} was loaded"))
    gather(source, tmp_path / "acts", Silent())


def test_a_text_shorter_than_asked_for_is_read_again_and_found_to_be_the_same(source, tmp_path):
    longer = source.model_copy(update={"tokens": 10_000})
    for _ in range(2):
        gather(longer, tmp_path / "acts", Silent())
    assert len(Shards.open(tmp_path / "acts")) == 480


def test_more_tokens_than_a_folder_has_are_another_capture(source, tmp_path):
    gather(source, tmp_path / "acts", Silent())
    with pytest.raises(Refusal, match="holds activations with tokens 300, and 400 was asked for"):
        gather(source.model_copy(update={"tokens": 400}), tmp_path / "acts", Silent())


@pytest.mark.parametrize(("name", "value"), [("site", "model.layers.2"), ("tokens", 200), ("dtype", "bfloat16")])
def test_a_folder_with_something_else_is_refused(source, tmp_path, name, value):
    gather(source, tmp_path / "acts", Silent())
    other = source.model_copy(update={name: value})
    for ask in (
        lambda: gather(other, tmp_path / "acts", Silent()),
        lambda: Activations(path=str(tmp_path / "acts"), capture=other),
    ):
        with pytest.raises(Refusal, match=f"holds activations with {name} .* and world.capture has"):
            ask()


def test_a_capture_that_was_stopped_is_gone_on_with(source, tmp_path):
    gather(source, tmp_path / "acts", Silent())
    manifest = read_manifest(tmp_path / "acts")
    manifest.model_copy(update={"shards": ()}).write(tmp_path / "acts")
    with pytest.raises(Missing, match=r"does not hold the activations of .* yet"):
        Activations(path=str(tmp_path / "acts"), capture=source)
    gather(source, tmp_path / "acts", Silent())
    assert read_manifest(tmp_path / "acts") == manifest


def test_without_a_path_other_settings_have_another_folder(source):
    assert source.folder.parts[0] == "activations"
    assert source.folder.name.startswith("llama-model.layers.1-")
    assert source.folder != source.model_copy(update={"tokens": 301}).folder
    assert source.folder == source.model_copy().folder


def test_without_a_path_or_what_they_are_made_of_there_is_no_world():
    with pytest.raises(Refusal, match=r"world.path was not given; accepted: .*, or world.capture"):
        check(Activations, {"kind": "activations"}, "here")
    with pytest.raises(Refusal, match=r"world.capture: the setting 'site' is required"):
        check(Activations, {"capture": {"model": "m", "text": "t"}}, "here")


@pytest.mark.parametrize("lacking", ["model", "text"])
def test_what_make_fetches_is_said_to_be_fetched_by_it(source, tmp_path, lacking, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = source.model_copy(update={lacking: "real-data/nothing"})
    for ask in (lambda: gather(other, tmp_path / "acts", Silent()), lambda: Activations(path="acts", capture=other)):
        with pytest.raises(Missing, match=r"; `make real-data` makes it$"):
            ask()
    with pytest.raises(Missing) as problem:
        Activations(path="acts", capture=source)
    assert "make" not in str(problem.value)
