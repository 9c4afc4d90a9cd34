"""The ledger end to end: a tiny study is run, reused, resumed after a stop; the page and the JSON say the same."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from unbraid import cli
from unbraid.files import read_json
from unbraid.progress import Silent
from unbraid.reports.canvas import Picture, Plate
from unbraid.runs import Run, all_runs
from unbraid.studies import ledger
from unbraid.studies.claims import Claim, Part
from unbraid.studies.kept import read_kept, with_kept
from unbraid.studies.measures import Difference, Level
from unbraid.studies.plans import fingerprint
from unbraid.studies.rules import Above, Within

TINY = """
title = "A tiny study"
[world]
dimensions = 8
features = 12
active = 2.0
[dictionary]
features = 12
[training]
steps = 60
batch = 64
learning_rate = 1e-2
[mechanisms.sparsity]
weight = 0.1
[scoring]
samples = 256
[saving]
log_every = 10
checkpoint_every = 20
[sweep]
"mechanisms.sparsity.weight" = [0.01, 30.0]
seed = [0, 1, 2, 3, 4]
[scales.small]
[scales.standard]
training.steps = 61
"""
WEAK, STRONG = {"mechanisms.sparsity.weight": 0.01}, {"mechanisms.sparsity.weight": 30.0}


@pytest.fixture(scope="module")
def two_claims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Claim]:
    """About one study: a cost that silences everything leaves fewer firing, and recovery beyond chance."""
    study = tmp_path_factory.mktemp("study") / "tiny.toml"
    study.write_text(TINY)
    fires = Part(
        what="L0, weak minus strong", statistic=Difference(metric="l0", of=WEAK, minus=STRONG), rule=Above(margin=0.5)
    )
    chance = Part(what="MMCS beyond chance", statistic=Level(metric="mmcs", of=STRONG), rule=Within(margin=1e-6))
    made = [
        Claim(id="000-sparser", seed="000", statement="L1 <b>silences</b>.", published="none & so", study=str(study),
              parts=(fires,), figures=("score-mmcs",)),
        Claim(id="000-nothing", seed="000", statement="It recovers nothing.", published="0.2", study=str(study),
              parts=(fires, chance), figures=("score-mmcs",)),
    ]  # fmt: skip
    return {claim.id: claim for claim in made}


@pytest.fixture
def claims(two_claims: dict[str, Claim], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CLAIMS", dict(two_claims))


@pytest.fixture(autouse=True, scope="module")
def quickly_drawn() -> Iterator[None]:
    """Reports with one picture, which is not a picture."""
    plate = Plate("Scores", "A caption", [Picture("score-mmcs", b"dots", "dots")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbraid.reports.page.draw", lambda findings: [plate])
        yield


def unbraid(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.guarded(lambda: cli.app([str(word) for word in words]))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def finished(two_claims: dict[str, Claim], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run that both claims share, trained once."""
    folder = tmp_path_factory.mktemp("finished") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "CLAIMS", two_claims)
        assert cli.guarded(lambda: cli.app(["claims", "-q", "--runs", str(folder)])) == 0
    return folder


@pytest.fixture
def trained(finished: Path, runs: Path) -> Path:
    """The folder of runs with a copy of it: nothing has to be trained to judge the two claims."""
    return Path(shutil.copytree(finished, runs))


def entries(out: str) -> dict[str, dict]:
    return {entry["id"]: entry for entry in json.loads(out)["claims"]}


def test_claims_share_a_run_and_reuse_it(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert code == 0, err
    assert "study 1 of 1" in err
    [run] = all_runs(runs)
    found = entries(out)
    assert [entry["verdict"] for entry in found.values()] == ["holds", "fails"]
    scores = {card["label"]: card["metrics"]["l0"] for card in run.scores()["settings"]}
    expected = scores["weight 0.01"]["value"] - scores["weight 30"]["value"]
    assert found["000-sparser"]["parts"][0]["value"] == pytest.approx(expected)
    written = (run.path / "scores.json").stat().st_mtime_ns
    code, again, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert (code, again) == (0, out)
    assert "study" not in err
    assert (run.path / "scores.json").stat().st_mtime_ns == written


def test_another_scale_is_another_run(claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]):
    for scale in ("small", "standard"):
        code, _, err = unbraid(capsys, "claims", "000-sparser", "-q", "--scale", scale, "--runs", runs)
        assert code == 0, err
    names = sorted(run.name for run in all_runs(runs))
    assert [name.rpartition("-")[0] for name in names] == ["claims-tiny-small", "claims-tiny-standard"]
    assert [Run(runs / name).config()["training"]["steps"] for name in names] == [60, 61]


def test_a_stopped_study_goes_on(
    claims: None, runs: Path, finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupt(watcher: Silent, stack: int, line: dict) -> None:
        if line["step"] == 30:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Silent, "show", interrupt)
        code, _, err = unbraid(capsys, "claims", "000-sparser", "-q", "--runs", runs)
    assert code == 130
    assert f"go on with: unbraid claims 000-sparser --scale small --runs {runs}" in err
    [run] = all_runs(runs)
    assert run.status()["state"] == "stopped"
    assert not (run.stack(0) / "scores.json").is_file()
    assert unbraid(capsys, "claims", "000-sparser", "-q", "--runs", runs)[0] == 0
    assert run.scores() == Run(finished / run.name).scores()


def test_the_page_has_every_claim_and_needs_nothing_else(
    claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, _ = unbraid(capsys, "claims", "--runs", runs)
    assert code == 0
    assert "✓ holds" in out
    assert "✗ fails" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert "2 claims: 1 hold, 1 fail." in out
    page = Path(out.splitlines()[-1])
    text = page.read_text()
    assert page == runs / "claims-small.html"
    assert "L1 &lt;b&gt;silences&lt;/b&gt;." in text
    assert "none &amp; so" in text
    assert text.count("data:image/png") == 1  # the second claim points at the first one's figure
    assert "http" not in text.replace('http-equiv="', "")
    [run] = all_runs(runs)
    assert f'href="{run.name}/report.html"' in text


def test_a_figure_that_was_not_drawn_is_said_to_be_missing(
    claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    changed = ledger.CLAIMS["000-nothing"].model_copy(update={"figures": ("score-mmcs", "score-none")})
    monkeypatch.setitem(ledger.CLAIMS, "000-nothing", changed)
    unbraid(capsys, "claims", "-q", "--runs", runs)
    text = (runs / "claims-small.html").read_text()
    assert "Figure score-none was not drawn." in text
    assert "Figure score-mmcs was not drawn." not in text


def test_a_claim_not_yet_run_is_said_to_be_so(
    claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    changed = ledger.CLAIMS["000-nothing"].model_copy(update={"overrides": {"small": ("training.steps=33",)}})
    monkeypatch.setitem(ledger.CLAIMS, "000-nothing", changed)
    unbraid(capsys, "claims", "000-sparser", "-q", "--runs", runs)
    assert "– not run" in (runs / "claims-small.html").read_text()
    assert len(all_runs(runs)) == 1


@pytest.fixture
def absent(claims: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Claim:
    """A claim about a study of a model that is not on this machine, before the two others."""
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "model.toml"
    study.write_text(
        TINY.replace(
            "[world]\ndimensions = 8\nfeatures = 12\nactive = 2.0\n",
            '[world]\nkind = "activations"\n'
            '[world.capture]\nmodel = "real-data/none"\ntext = "real-data/none.txt"\nsite = "model.layers.1"\n',
        )
    )
    made = ledger.CLAIMS["000-sparser"].model_copy(update={"id": "000-model", "study": str(study)})
    monkeypatch.setattr(ledger, "CLAIMS", {made.id: made, **ledger.CLAIMS})
    return made


def test_a_study_whose_model_is_not_here_is_not_run_and_says_how_to_get_it(
    absent: Claim, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert code == 0, err
    found = entries(out)
    assert [entry["verdict"] for entry in found.values()] == ["not run", "holds", "fails"]
    assert found["000-model"]["why"].endswith("; `make real-data` makes it")
    assert found["000-model"]["title"] == "A tiny study"
    assert found["000-sparser"]["why"] == ""
    assert len(all_runs(runs)) == 1
    code, out, _ = unbraid(capsys, "claims", "--runs", runs)
    assert code == 0
    assert "make real-data" in " ".join(out.split())
    assert "3 claims: 1 hold, 1 fail, 1 not run." in out
    assert "make real-data" in (runs / "claims-small.html").read_text()


def test_listing_needs_no_models(absent: Claim, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = unbraid(capsys, "claims", "--list", "--runs", runs)
    assert code == 0
    assert "000-model" in out
    assert "`make real-data` makes it" in " ".join(out.split())
    assert not runs.exists()
    assert not Path("activations").exists()


def test_listing_runs_nothing(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = unbraid(capsys, "claims", "--list", "--runs", runs)
    assert code == 0
    assert "000-sparser" in out
    assert "It recovers nothing." in out
    assert not runs.exists()


def test_refusals(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = unbraid(capsys, "claims", "000-sparse", "--runs", runs)
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no claim '000-sparse'; did you mean '000-sparser'?" in err
    code, _, err = unbraid(capsys, "claims", "--scale", "smal", "--runs", runs)
    assert code == 2
    assert "did you mean 'small'?" in err
    assert not runs.exists()


def test_the_fingerprint_knows_every_setting_but_the_title():
    assert fingerprint({"title": "a", "seed": 1}) == fingerprint({"seed": 1, "title": "b"})
    assert fingerprint({"seed": 1}) != fingerprint({"seed": 2})


def test_a_claim_its_study_cannot_answer_is_refused(
    claims: None, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    wrong = Part(what="x", statistic=Level(metric="mmcs", of={"seed": 9}), rule=Above())
    changed = ledger.CLAIMS["000-sparser"].model_copy(update={"parts": (wrong,)})
    monkeypatch.setitem(ledger.CLAIMS, "000-sparser", changed)
    code, _, err = unbraid(capsys, "claims", "000-sparser", "-q", "--runs", runs)
    assert code == 2
    assert "claim 000-sparser cannot be judged" in err
    assert read_json(all_runs(runs)[0].path / "status.json")["state"] == "finished"


def test_the_table_in_markdown_says_what_the_page_says(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert code == 0, err
    [run] = all_runs(runs)
    table = (runs / "claims-small.md").read_text()
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `000")]
    found = entries(out)
    assert [row[0].strip("|` ") for row in rows] == list(found)
    assert ["holds" in rows[0][-1], "fails" in rows[1][-1]] == [True, True]
    assert f"`{fingerprint(run.config())}`" in table
    assert run.facts()["began"][:10] in table
    assert "2 claims: 1 hold, 1 fail." in table


def test_what_a_kept_ledger_has_is_not_run_again(claims: None, trained: Path, tmp_path: Path, capsys):
    kept, other = tmp_path / "docs" / "kept.json", tmp_path / "other"
    code, first, err = unbraid(capsys, "claims", "--json", "--runs", trained, "--kept", kept)
    assert code == 0, err
    code, second, err = unbraid(capsys, "claims", "--json", "--runs", other, "--kept", kept)
    assert code == 0, err
    assert "study 1" not in err
    assert all_runs(other) == []
    assert [entry["parts"] for entry in entries(second).values()] == [one["parts"] for one in entries(first).values()]
    assert str(tmp_path) not in kept.read_text().replace(str(Path(ledger.CLAIMS["000-sparser"].study)), "")
    table = kept.with_suffix(".md").read_text()
    assert table == (trained / "claims-small.md").read_text() == (other / "claims-small.md").read_text()
    assert "2 claims: 1 hold, 1 fail." in table
    assert "its run is not here" in (other / "claims-small.html").read_text()


def test_a_kept_verdict_by_another_rule_is_not_taken(claims: None, trained: Path, tmp_path: Path, capsys, monkeypatch):
    kept = tmp_path / "kept.json"
    assert unbraid(capsys, "claims", "-q", "--runs", trained, "--kept", kept)[0] == 0
    before, claim = read_kept(kept, "small"), ledger.CLAIMS["000-sparser"]
    [part] = claim.parts
    stricter = claim.model_copy(update={"parts": (part.model_copy(update={"rule": Above(margin=5.0)}),)})
    monkeypatch.setitem(ledger.CLAIMS, claim.id, stricter)
    found = with_kept(ledger.ledger(ledger.plan_claims("small", tmp_path / "other")), before)
    assert [entry["verdict"] for entry in found] == ["not run", "fails"]


def test_a_kept_ledger_of_another_scale_is_refused(claims: None, trained: Path, tmp_path: Path, capsys):
    kept = tmp_path / "kept.json"
    assert unbraid(capsys, "claims", "-q", "--runs", trained, "--kept", kept)[0] == 0
    code, _, err = unbraid(capsys, "claims", "--scale", "standard", "--runs", trained, "--kept", kept)
    assert code == 2
    assert "is a ledger of scale 'small'" in err


def test_without_its_model_a_kept_verdict_is_not_lost():
    """There is no hash of a configuration that cannot be resolved here."""
    told = {"id": "x", "study": "s", "rules": ["r"], "why": "no model", "verdict": "not run"}
    here = {**told, "run": "runs/claims-s-small"}
    old = {**told, "run": "claims-s-small-0123abcd", "verdict": "holds"}
    assert with_kept([here], {"x": old}) == [old]
    assert with_kept([{**here, "why": ""}], {"x": old}) == [{**here, "why": ""}]
    assert with_kept([{**here, "run": "runs/claims-s-small-99999999"}], {"x": old})[0]["verdict"] == "not run"


def test_a_table_of_what_was_not_run_has_no_numbers(claims: None, runs: Path):
    from unbraid.reports.ledger_table import ledger_table

    table = ledger_table(ledger.ledger(ledger.plan_claims("small", runs)), "small")
    assert table.count("– not run") == 2
    assert "| – | – | – | – |" in table


def test_a_ledger_trains_only_what_its_claims_read(claims: None, tmp_path: Path, runs: Path, monkeypatch):
    more = TINY.replace("[0.01, 30.0]", "[0.01, 0.3, 30.0]") + "[cases.a]\n[cases.b]\ntraining.batch = 65\n"
    (tmp_path / "more.toml").write_text(more)

    def config(**changes) -> dict:
        study = {"study": str(tmp_path / "more.toml"), **changes}
        made = {name: claim.model_copy(update=study) for name, claim in ledger.CLAIMS.items()}
        monkeypatch.setattr(ledger, "CLAIMS", made)
        [planned] = {id(study): study for _, study in ledger.plan_claims("small", runs)}.values()
        return planned.config

    asked = config()
    assert asked["sweep"] == {"mechanisms.sparsity.weight": [0.01, 30.0], "seed": [0, 1, 2, 3, 4]}
    assert list(asked["cases"]) == ["a", "b"], "no claim names a case, so all are read"
    level = Level(metric="mmcs", of={"case": "b", **STRONG})
    asked = config(parts=(Part(what="one", statistic=level, rule=Above()),))
    assert list(asked["cases"]) == ["b"]
    assert asked["sweep"]["mechanisms.sparsity.weight"] == [30.0]
