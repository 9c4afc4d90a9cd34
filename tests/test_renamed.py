"""Whoever writes a name of before is answered with the one of today, wherever it stands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import TINY, unbraid
from unbraid.cli.group import COMMANDS, OPTIONS
from unbraid.config import Config, read_toml
from unbraid.config.sweep import at_path, flatten, merge
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds import KINDS
from unbraid.studies.ledger import CLAIMS, find_claims
from unbraid.studies.shipped import CONFIGS, SOURCES, find_config, shipped

KIND = {
    "dictionaries": "",
    "models": "kind = 'models'\n[world]\nkind = 'stories'\n",
    "gauge": "kind = 'models'\n[world]\nkind = 'stories'\n[model]\nkind = 'gauge'\n",
    "pipeline": "kind = 'pipeline'\n[world]\nkind = 'stories'\n",
    "activations": "[world]\nkind = 'activations'\n",
}

SETTINGS = [
    ("dictionaries", "teaching.steps=3", "`teaching` is now `model.training`"),
    ("models", "teaching.steps=3", "`teaching` is now `model.training`"),
    ("models", "examining.stories=8", "`examining` is now `model.evaluation`"),
    ("models", "saving.log_every=8", "`saving` is now `checkpoints`"),
    ("models", "checkpoints.checkpoint_every=8", "`checkpoints.checkpoint_every` is now `checkpoints.every`"),
    ("models", "model.positions=nearness", '`model.positions = "nearness"` is now `model.positions = "alibi"`'),
    ("models", "model.start=torch", "`model.start` is now `model.init`"),
    ("models", "model.start=carrying", '`model.start = "carrying"` is now `model.init = "scaled_attention"`'),
    ("models", "model.init=carrying", '`model.init = "carrying"` is now `model.init = "scaled_attention"`'),
    ("gauge", "model.start=published", "`model.start` is now `model.init`"),
    ("gauge", "model.start=spread", '`model.start = "spread"` is now `model.init = "configured"`'),
    ("gauge", "model.init=spread", '`model.init = "spread"` is now `model.init = "configured"`'),
    ("gauge", "model.nearness=true", "`model.nearness` is now `model.alibi`"),
    ("pipeline", "capture.stories=100", "`capture` is now `activations`"),
    ("pipeline", "activations.seed=3", "`activations.seed` is now `model.seed`"),
    ("pipeline", "activations.normalise=none", "`activations.normalise` is now `activations.normalize`"),
    (
        "pipeline",
        "activations.normalise=both",
        '`activations.normalise = "both"` is now `activations.normalize = "center_and_scale"`',
    ),
    (
        "pipeline",
        "activations.normalize=centre",
        '`activations.normalize = "centre"` is now `activations.normalize = "center"`',
    ),
    ("activations", "world.normalise=scale", "`world.normalise` is now `world.normalize`"),
    (
        "activations",
        "world.normalise=both",
        '`world.normalise = "both"` is now `world.normalize = "center_and_scale"`',
    ),
    ("activations", "world.normalize=centre", '`world.normalize = "centre"` is now `world.normalize = "center"`'),
    ("activations", "judging.text=a.txt", "`judging` is now `evaluation.language_model`"),
    ("dictionaries", "scoring.samples=9", "`scoring` is now `evaluation`"),
    ("dictionaries", "data.samples=9", "`data` is now `samples`"),
    ("dictionaries", "samples.samples=9", "`samples.samples` is now `samples.n`"),
    ("dictionaries", "world.features=9", "`world.features` is now `world.n_features`"),
    ("dictionaries", "dictionary.features=9", "`dictionary.features` is now `dictionary.d_sae`"),
    ("dictionaries", "dictionary.start=tied", "`dictionary.start` is now `dictionary.init`"),
    (
        "dictionaries",
        "training.fidelity=mean_square",
        "`training.fidelity` is now `training.reconstruction_loss`",
    ),
    (
        "dictionaries",
        "baseline={kind='pca', features=9}",
        "`baseline.features` is now `baseline.n_components`",
    ),
    # in cases, tasks and sweeps
    ("models", "cases.a.teaching.steps=3", "`cases.a.teaching` is now `cases.a.model.training`"),
    ("models", "cases.a.model.start=torch", "`model.start` is now `model.init`"),
    ("models", "tasks.one_fact.teaching.steps=3", "`tasks.one_fact.teaching` is now `tasks.one_fact.model.training`"),
    (
        "models",
        "sweep.'teaching.steps'=[3, 4]",
        '`sweep."teaching.steps"` is now `sweep."model.training.steps"`',
    ),
    ("models", "sweep.'model.positions'=['rotary', 'nearness']", "is now `model.positions = "),
    ("pipeline", "sweep.'capture.seed'=[0, 1]", '`sweep."capture.seed"` is now `sweep."model.seed"`'),
    ("pipeline", "sweep.capture.seed=[0, 1]", '`sweep."capture.seed"` is now `sweep."model.seed"`'),
    ("pipeline", "sweep.'capture.site'=['a', 'b']", '`sweep."capture.site"` is now `sweep."activations.site"`'),
    ("dictionaries", "sweep.'data.samples'=[9, 10]", '`sweep."data.samples"` is now `sweep."samples.samples"`'),
    ("dictionaries", "sweep.'dictionary.features'=[9, 10]", "`dictionary.features` is now `dictionary.d_sae`"),
    ("dictionaries", "sweep.baseline=[{kind='pca', features=9}]", "`baseline.features` is now `baseline.n_components`"),
]


@pytest.mark.parametrize(("kind", "override", "sentence"), SETTINGS, ids=[f"{row[0]} {row[1]}" for row in SETTINGS])
def test_an_old_setting_is_answered_with_the_new_one(
    kind: str, override: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "c.toml").write_text(KIND[kind])
    code, out, err = unbraid(capsys, "run", tmp_path / "c.toml", override, "--runs", tmp_path / "runs")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_an_old_setting_of_a_scale_is_answered_with_the_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "c.toml").write_text(TINY + "[scales.small]\nscoring.samples = 9\n")
    code, _, err = unbraid(capsys, "run", tmp_path / "c.toml", "--scale", "small", "--runs", tmp_path / "runs")
    assert (code, "`scoring` is now `evaluation`" in err) == (2, True)


def all_configs() -> Iterator[type[Config]]:
    waiting = [Config]
    while waiting:
        config = waiting.pop()
        waiting += config.__subclasses__()
        if config.__module__.startswith("unbraid."):
            yield config


def test_the_table_has_every_old_setting_and_value():
    said = " ".join(f"{override} {sentence}" for _, override, sentence in SETTINGS)
    renamed = {pair for config in all_configs() for pair in config.renamed.items()}
    values = {pair for config in all_configs() for table in config.renamed_values.values() for pair in table.items()}
    assert len(renamed) >= 17
    assert len(values) >= 5
    for old, new in renamed | values:
        assert re.search(rf"\b{old}\b.* is now .*\b{new}\b", said), (old, new)


def test_no_setting_of_today_has_an_old_name():
    for config in all_configs():
        assert not config.renamed.keys() & config.model_fields.keys(), config
        for name, values in config.renamed_values.items():
            assert not any(f"'{old}'" in str(config.model_fields[name].annotation) for old in values), config


# Whole configurations of before, mended by doing what each sentence says

BEFORE = Path(__file__).parent / "regression/before"
SENTENCE = re.compile(r"`([^`=]+?)(?: = \"(.+?)\")?` is now `([^`=]+?)(?: = \"(.+?)\")?`$")


@pytest.mark.parametrize("path", sorted(BEFORE.glob("*.toml")), ids=lambda path: path.stem)
def test_a_configuration_of_before_is_mended_by_what_the_refusals_say(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretend_to_capture
):
    now, data = read_toml(BEFORE.with_name("configs") / path.name), read_toml(path)
    monkeypatch.chdir(tmp_path)
    pretend_to_capture(now)
    data |= {"kind": now["kind"]} if "kind" in now else {}
    for _ in range(40):
        said = refusal(data)
        if not said:
            break
        sentence = SENTENCE.search(said)
        assert sentence, said
        data = mended(data, *sentence.groups())
    mended_data, stated = as_written(data), as_written(now)
    # More is stated now: defaults of then.
    assert mended_data == {path: _of_before(path, stated[path]) for path in mended_data}


ANOTHER_MEANING = {"independence.form": {"info_nce_bound": "corrected", "club_unit_length": "club"}}
"""Values of before that today mean a better cost: what they meant has a name of its own, and nothing is refused."""


def _of_before(path: str, value: Any) -> Any:
    meanings = [old for end, old in ANOTHER_MEANING.items() if path.endswith(end)]
    return meanings[0].get(value, value) if meanings else value


def refusal(data: dict[str, Any]) -> str:
    """What is said about a configuration; nothing where it is accepted."""
    try:
        expand(data, "here")
    except UserError as problem:
        return str(problem)
    return ""


def mended(data: dict[str, Any], old: str, value: str | None, new: str, value_now: str | None) -> dict[str, Any]:
    """The configuration with one old name replaced wherever it stands."""
    old, new = (re.sub(r"^(sweep|cases\.[^.]+|tasks\.[^.]+)\.", "", name.replace('"', "")) for name in (old, new))

    def leaf(path: str, item: Any) -> Any:
        return value_now if value is not None and (path, item) == (old, value) else item

    def renamed(path: str) -> str:
        return new + path.removeprefix(old) if path == old or path.startswith(f"{old}.") else path

    def tree(table: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for path, item in flatten(table).items():
            result = merge(result, at_path(renamed(path), leaf(path, item)))
        return result

    def swept(path: str, items: list[Any]) -> list[Any]:
        """Values may be tables, whose keys are renamed too."""
        prefix = f"{path}."
        if not (old.startswith(prefix) and all(isinstance(item, dict) for item in items)):
            return [leaf(path, item) for item in items]
        return [{renamed(prefix + key).removeprefix(prefix): item for key, item in table.items()} for table in items]

    parts = {
        kind: {name: tree(part) for name, part in data[kind].items()} for kind in ("cases", "tasks") if kind in data
    }
    sweep = {renamed(path): swept(path, items) for path, items in flatten(data.get("sweep", {})).items()}
    rest = tree({key: table for key, table in data.items() if key not in ("cases", "tasks", "sweep")})
    return {**rest, **parts, "sweep": sweep}


def as_written(data: dict[str, Any]) -> dict[str, Any]:
    """Every path that is written; the seed of a pipeline's model had to be, and is 0 where it is not."""
    return {"model.seed": 0, **flatten(data)}


# Commands, options, configurations, claims


@pytest.mark.parametrize(("old", "new"), COMMANDS.items())
def test_an_old_command_is_answered_with_the_new_one(old: str, new: str, capsys: pytest.CaptureFixture[str]):
    assert unbraid(capsys, old, "a", "--b") == (2, "", f"unbraid: `unbraid {old}` is now `unbraid {new}`\n")
    assert unbraid(capsys, new, "--help")[0] == 0


@pytest.mark.parametrize(("old", "new"), OPTIONS.items())
def test_an_old_option_is_answered_with_the_new_one(old: str, new: str, capsys: pytest.CaptureFixture[str]):
    for words in ((old, "f.json"), (f"{old}=f.json",)):
        said = f"unbraid: `unbraid claims {old}` is now `unbraid claims {new}`\n"
        assert unbraid(capsys, "claims", *words) == (2, "", said)


def old_names(names: list[str]) -> dict[str, str]:
    """What each was called before."""
    numbers = {source: number for number, source in SOURCES.items()}
    renamed = {new: old for old, new in CONFIGS.items()}
    old = {name: renamed.get(name) or f"{numbers[name.split('/')[0]]}-{name.split('/')[1]}" for name in names}
    return {before: name for name, before in old.items()}


def test_old_configurations_are_answered_with_the_new_names(capsys: pytest.CaptureFixture[str]):
    names = [name for name in shipped() if name.split("/")[0] in SOURCES.values() or name in CONFIGS.values()]
    old = old_names(names)
    assert len(old) == len(names)
    assert {"002-grid", "003-ladder", "line", "000-strong", "001-irreps"} <= old.keys()
    for before, name in old.items():
        for text in (before, f"{before}.toml", f"configs/{before}.toml"):
            with pytest.raises(UserError, match=rf"^the configuration `{text}` is now `{name}`$"):
                find_config(text)
        assert find_config(name).is_file()
    said = "unbraid: the configuration `line` is now `pipeline/demo`\n"
    assert unbraid(capsys, "run", "line") == (2, "", said)


def test_old_claims_are_answered_with_the_new_ids(capsys: pytest.CaptureFixture[str]):
    old = old_names(list(CLAIMS))
    assert len(old) == len(CLAIMS)
    for before, claim_id in old.items():
        with pytest.raises(UserError, match=rf"^the claim `{before}` is now `{claim_id}`$"):
            find_claims([before])
    said = "unbraid: the claim `002-variational` is now `superposition/variational`\n"
    assert unbraid(capsys, "claims", "002-variational", "--list") == (2, "", said)


def test_what_never_was_a_name_is_answered_as_ever(capsys: pytest.CaptureFixture[str]):
    for words in (("run", "002-nothing"), ("run", "line-"), ("claims", "002-nothing"), ("jugde", "x")):
        code, _, err = unbraid(capsys, *words)
        assert (code, "is now" in err, len(err.splitlines())) == (2, False, 1)


def test_kinds_all_know_the_old_tables():
    for kind in KINDS.values():
        assert {"teaching", "examining", "capture", "scoring", "judging", "saving", "data"} <= kind.renamed.keys()
