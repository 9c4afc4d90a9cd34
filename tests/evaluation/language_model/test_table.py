"""`[evaluation.language_model]`: one command captures, trains, evaluates and reports, and does nothing twice."""

import json
import signal

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from unbraid.activations.huggingface import load_model
from unbraid.cli import app, guarded
from unbraid.config import merge, to_toml
from unbraid.pipeline import language_model_stage
from unbraid.progress import Silent
from unbraid.storage.feature_index import FeatureIndex
from unbraid.storage.files import read_arrays
from unbraid.storage.runs import Run
from unbraid.studies.results import Results

pytestmark = pytest.mark.usefixtures("undrawn")  # but the run that tests share is made before, and drawn
SITE = "blocks.0.hook_resid_post"


@pytest.fixture(scope="module")
def config(folder, text, labelled):
    return {
        "world": {"kind": "activations", "capture": {"model": str(folder), "text": str(text), "site": SITE}},
        "dictionary": {"d_sae": 24, "activation": {"kind": "topk", "k": 3}},
        "training": {"steps": 20, "batch": 32},
        "evaluation": {
            "samples": 64,
            "language_model": {
                "text": str(text),
                "labels": [str(labelled / "told.jsonl"), str(labelled / "untold.jsonl")],
                "texts": 150,
                "context": 16,
                "letters": False,
            },
        },
        "checkpoints": {"log_every": 2},
        "sweep": {"dictionary.activation.k": [3, 6], "seed": [0, 1]},
    }


def unbraid(*words):
    return guarded(lambda: app([*map(str, words)]))


def run_of(home, config, *words, name="it"):
    (home / "study.toml").write_text(to_toml(config))
    return unbraid("run", home / "study.toml", "--runs", home / "runs", "--name", name, "-q", *words)


@pytest.fixture(scope="module")
def home(tmp_path_factory, config):
    """A folder with one finished run; shards go where one is."""
    made = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        assert run_of(made, config) == 0
    return made


@pytest.fixture
def here(home, monkeypatch):
    monkeypatch.chdir(home)
    return Run(home / "runs" / "it")


def test_one_command_captures_trains_evaluates_and_reports(here, home, text):
    [shards] = (home / "activations").iterdir()
    assert shards.name.startswith(f"tiny-{SITE}-")
    assert here.config()["world"]["path"] == f"activations/{shards.name}"
    assert here.status()["state"] == "finished"
    report = (here.path / "report.html").read_text()
    assert ">On the language model</h2>" in report
    assert "Loss recovered" in report
    assert "Accuracy of sparse probes against k" in report
    found = here.on_language_model()
    assert (found["site"], found["text"], set(found["probes"])) == (SITE, str(text), {"told", "untold"})
    assert [one["setting"]["dictionary.activation.k"] for one in found["settings"]] == [3, 6]


def test_the_figures_of_the_language_model_are_drawn_when_asked_for(here, monkeypatch):
    monkeypatch.undo()  # drawn
    assert not (here.path / "figures").exists()
    assert unbraid("report", here.path, "--figures", "png") == 0
    drawn = [path for path in (here.path / "figures").iterdir() if path.name.startswith("probing")]
    assert {path.name for path in drawn} == {"probing.png", "probing-loss_recovered.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    here.verify()


def test_every_feature_is_in_the_index_without_truth(here, folder):
    """Activations that were captured have no concepts; the model's folder gives words and the logit lens."""
    index = FeatureIndex.open(here.stack(0))
    assert index is not None
    assert index.concepts == []
    assert not index.lens_is_exact
    model, weights = load_model(folder).model, read_arrays(here.stack(0) / "weights.safetensors")["decoder"]
    scale = float(read_arrays(here.stack(0) / "normalization.safetensors")["scale"][0])
    logits = (weights * scale * model.model.norm.weight.numpy()) @ model.lm_head.weight.numpy().T
    for member in index.members:
        for feature in range(24):
            record = index.feature(member, feature)
            fires = record.numbers["rate"] > 0
            assert (len(record.contexts["strongest"]) > 0) == (len(record.contexts["even"]) > 0) == fires
            assert bool(record.tokens) == fires
            assert all(context.tokens for context in record.contexts["strongest"])
            assert len(record.neighbours) == 5
            assert record.concept is None
            assert "agree" not in record.contexts
            own = np.sort(logits[member, feature])
            found = [value for _, value in record.answers]
            assert found == pytest.approx([*own[-3:][::-1], *own[:3]], rel=1e-3, abs=1e-4)
            best = index.vocabulary[int(logits[member, feature].argmax())]
            assert record.answers[0][0] == best


def test_it_is_what_the_command_evaluate_writes(here, folder, text, labelled):
    written = here.on_language_model()
    options = [word for name in ("told", "untold") for word in ("--labels", labelled / f"{name}.jsonl")]
    words = ("--texts", 150, "--context", 16, "--no-letters", "--quiet")
    assert unbraid("evaluate", here.path, folder, text, *options, *words) == 0
    again = here.on_language_model()
    for part in ("settings", "differences", "baselines", "probes", "warnings"):
        assert again[part] == written[part]


def as_datasets(text, labelled, folder):
    """The same text and labels, saved as Hugging Face datasets with columns of other names."""
    Dataset.from_dict({"story": text.read_text().split("\n\n")}).save_to_disk(folder / "text")
    for name in ("told", "untold"):
        rows = [json.loads(line) for line in (labelled / f"{name}.jsonl").read_text().splitlines()]
        parts = {split: [row for row in rows if row["split"] == split] for split in ("train", "test")}
        columns = {"said": "text", "mood": "label"}
        tables = {
            split: Dataset.from_dict({column: [row[key] for row in part] for column, key in columns.items()})
            for split, part in parts.items()
        }
        DatasetDict(tables).save_to_disk(folder / name)
    return folder


def test_datasets_give_the_scores_of_their_texts(here, folder, text, labelled, tmp_path):
    written, data = here.on_language_model(), as_datasets(text, labelled, tmp_path)
    options = [word for name in ("told", "untold") for word in ("--labels", data / name)]
    columns = ("--column", "story", "--label-text", "said", "--label-column", "mood")
    words = ("--texts", 150, "--context", 16, "--no-letters", "--quiet")
    assert unbraid("evaluate", here.path, folder, data / "text", *columns, *options, *words) == 0
    again = here.on_language_model()
    for part in ("settings", "differences", "baselines", "probes", "warnings"):
        assert again[part] == written[part]
    assert again["text"] == f"{data / 'text'} · story"


def test_what_is_evaluated_is_not_evaluated_again_but_with_other_settings(here, home, config, monkeypatch):
    evaluate = language_model_stage.evaluate_settings
    calls = []
    monkeypatch.setattr(
        language_model_stage, "evaluate_settings", lambda *given: calls.append(given) or evaluate(*given)
    )
    for number, (tokens, expected) in enumerate(((50, 1), (50, 1), (60, 2))):
        option = f"evaluation.language_model.tokens={tokens}"
        assert run_of(home, config, option, name=f"again-{number}") == 0
        assert len(calls) == expected
        again = Run(home / "runs" / f"again-{number}")
        assert again.on_language_model()["config"]["tokens"] == tokens
        assert again.scores() == here.scores()


def test_claims_see_the_scores_of_both(here):
    found = Results.read(here)
    setting = {"dictionary.activation.k": 6}
    on_model, scored = here.on_language_model()["settings"][1]["metrics"], here.scores()["settings"][1]["metrics"]
    assert list(found.values("probe_1", setting).values()) == on_model["probe_1"]["members"]
    assert found.chance("loss_recovered", setting) == on_model["loss_recovered"]["chance"]
    assert list(found.values("l0", setting).values()) == scored["l0"]["members"]
    assert list(found.values("loss", setting).values()) == scored["loss"]["members"]


class Signalled(Silent):
    """Sends a real signal to this process while it probes."""

    def status(self, words):
        if words.startswith("probing untold"):
            signal.raise_signal(signal.SIGINT)


def test_an_evaluation_that_was_stopped_is_done_on_resuming(config, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("unbraid.progress.for_terminal", lambda quiet: Signalled())
        assert run_of(tmp_path, config) == 130
    run = Run(tmp_path / "runs" / "it")
    assert "go on with: unbraid resume" in capsys.readouterr().err
    assert run.status()["state"] == "stopped"
    assert run.on_language_model() == {}
    weights = list(run.cache.glob("*/weights.safetensors"))
    before = [path.stat().st_mtime_ns for path in weights]
    assert unbraid("resume", run.path, "-q") == 0
    assert run.status()["state"] == "finished"
    assert len(run.on_language_model()["settings"]) == 2
    assert len(weights) == 2
    assert [path.stat().st_mtime_ns for path in weights] == before


class Recording(Silent):
    """Records the tasks, how much of the work is done, and what is being done."""

    def __init__(self):
        super().__init__()
        self.tasks, self.shares, self.words = [], [], []

    def plan(self, tasks, workers=1):
        super().plan(tasks, workers)
        self.tasks = [task.name for task in tasks]

    def advance(self, index, step):
        super().advance(index, step)
        self.shares.append(self._time.share())

    def status(self, words):
        self.words.append(words)


def test_the_evaluation_is_a_part_of_the_whole_work(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watched = Recording()
    monkeypatch.setattr("unbraid.progress.for_terminal", lambda quiet: watched)
    assert run_of(tmp_path, config) == 0
    assert watched.shares == sorted(watched.shares)
    assert watched.shares[-1] == 1
    assert watched.tasks[-1] == "evaluation on the language model"
    assert [name.split(" · ")[-1] for name in watched.tasks[:-1]] == ["training", "evaluation"] * 2
    assert [words for words in watched.words if "splicing" in words or "probing" in words] == [
        "splicing reconstructions in",
        "probing told",
        "probing untold",
    ]


def test_settings_of_one_size_and_rule_share_random_dictionaries(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    swept = {"training.learning_rate": [1e-3, 2e-3], "dictionary.d_sae": [24, 30], "seed": [0, 1]}
    assert run_of(tmp_path, {**config, "sweep": swept}) == 0
    found = Run(tmp_path / "runs" / "it").on_language_model()
    random = {name for name in found["probes"]["told"] if "chance" in name}
    assert random == {"0/chance 0", "0/chance 1", "1/chance 0", "1/chance 1"}
    chances = [one["metrics"]["probe_5"]["chance"] for one in found["settings"]]
    for index, first in ((0, 0), (1, 1), (2, 0), (3, 1)):
        drawn = [
            sum(found["probes"][name][f"{first}/chance {k}"]["5"]["value"] for name in ("told", "untold")) / 2
            for k in range(2)
        ]
        assert chances[index] == pytest.approx(sum(drawn) / 2)


def test_settings_whose_rule_has_learned_have_random_dictionaries_of_their_own(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule = {"d_sae": 24, "activation": {"kind": "batchtopk", "k": 3}}
    swept = {"training.learning_rate": [1e-3, 2e-3]}
    assert run_of(tmp_path, {**config, "dictionary": rule, "sweep": swept}) == 0
    found = Run(tmp_path / "runs" / "it").on_language_model()
    assert {name for name in found["probes"]["told"] if "chance" in name} == {"0/chance 0", "1/chance 0"}


def refused(capsys, home, config, *words):
    assert run_of(home, config, *words) == 2
    message = capsys.readouterr().err.strip()
    assert len(message.splitlines()) == 1
    return message


def test_what_is_wrong_is_said_before_anything_is_captured(config, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "training.steps is 'x'" in refused(capsys, tmp_path, config, "training.steps=x")
    assert "evaluation.language_model: there is no setting 'token'" in refused(
        capsys, tmp_path, config, "evaluation.language_model.token=5"
    )
    absent = refused(capsys, tmp_path, config, "evaluation.language_model.text=real-data/none.txt")
    assert absent.endswith("real-data/none.txt: there is no such text to evaluate on; `make real-data` makes it")
    absent = refused(capsys, tmp_path, config, "world.capture.model=real-data/none")
    assert absent.endswith("there is no folder 'real-data/none' here; `make real-data` makes it")
    assert not (tmp_path / "activations").exists()


def test_what_cannot_be_evaluated_is_refused_before_training(here, config, tmp_path, model, capsys):
    planted = {key: value for key, value in config.items() if key != "world"}
    assert "evaluation.language_model needs a world of a model's activations" in refused(capsys, tmp_path, planted)
    assert "language_model.site is 'model.layers.1'" in refused(
        capsys, tmp_path, config, "evaluation.language_model.site=model.layers.1"
    )
    other = tmp_path / "other"
    model.tokenizer.save_pretrained(other)
    changed = load_model(here.config()["world"]["model"])
    changed.model.model.norm.weight.data.mul_(2)
    changed.model.save_pretrained(other)
    capsys.readouterr()
    assert "has other weights" in refused(capsys, tmp_path, config, f"evaluation.language_model.model={other}")
    run = Run(tmp_path / "runs" / "it")
    assert not (run.stack(0) / "weights.safetensors").is_file()


def test_a_run_on_several_activations_is_not_evaluated_as_one(config, folder, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sites = (SITE, "blocks.1.hook_resid_post")
    cases = {f"at-{i}": {"world": merge(config["world"], {"capture": {"site": one}})} for i, one in enumerate(sites)}
    plain = {key: value for key, value in config.items() if key not in ("world", "evaluation", "sweep")}
    assert run_of(tmp_path, {**plain, "evaluation": {"samples": 64}, "cases": cases}) == 0
    assert len(list((tmp_path / "activations").iterdir())) == 2
    assert unbraid("evaluate", tmp_path / "runs" / "it", folder, text, "-q") == 2
    assert "was trained on activations/" in capsys.readouterr().err
