"""The ledger end to end: a tiny study is run, reused, resumed after a stop; the page and the JSON say the same."""

import base64
import gzip
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy.stats import false_discovery_control

import unbraid as ub
from unbraid import cli
from unbraid.errors import UserError
from unbraid.progress import Silent
from unbraid.report.ledger import deciding, ledger_table, marks
from unbraid.storage.files import read_json
from unbraid.storage.runs import Run, all_runs
from unbraid.studies import ledger
from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Difference, Level
from unbraid.studies.plans import fingerprint
from unbraid.studies.verdicts import Above, Within

TINY = """
title = "A tiny study"
[world]
dimensions = 8
n_features = 12
active = 2.0
[dictionary]
d_sae = 12
[training]
steps = 60
batch = 64
learning_rate = 1e-2
[mechanisms.sparsity]
weight = 0.1
[evaluation]
samples = 256
[checkpoints]
log_every = 10
every = 20
[sweep]
"mechanisms.sparsity.weight" = [0.01, 30.0]
replicate = [0, 1, 2, 3, 4, 5, 6, 7]
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
        what="L0, weak minus strong",
        measure=Difference(metric="l0", of=WEAK, minus=STRONG),
        rule=Above(margin=0.5),
        smallest=0.1,
    )
    chance = Part(what="MMCS beyond chance", measure=Level(metric="mmcs", of=STRONG), rule=Within(margin=1e-6))
    made = [
        Claim(id="tiny/sparser", statement="L1 <b>silences</b>.", quote="Hush <i>now</i>.", published="none & so",
              study=str(study), parts=(fires,)),
        Claim(id="tiny/nothing", statement="It recovers nothing.", quote="Nothing & less.", published="0.2",
              exploratory="its margin", study=str(study), parts=(fires, chance)),
    ]  # fmt: skip
    return {claim.id: claim for claim in made}


@pytest.fixture
def claims(two_claims: dict[str, Claim], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CLAIMS", dict(two_claims))


@pytest.fixture(autouse=True, scope="module")
def quickly_drawn() -> Iterator[None]:
    """Reports without sections: drawing takes time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbraid.report.page.draw", lambda results: [])
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
    verdicts = entries(out)
    assert [entry["verdict"] for entry in verdicts.values()] == ["holds", "opposite"]
    scores = {setting["label"]: setting["metrics"]["l0"] for setting in run.scores()["settings"]}
    expected = scores["weight 0.01"]["value"] - scores["weight 30"]["value"]
    assert verdicts["tiny/sparser"]["parts"][0]["value"] == pytest.approx(expected)
    written = (run.path / "scores.json").stat().st_mtime_ns
    code, again, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert (code, again) == (0, out)
    assert "study" not in err
    assert (run.path / "scores.json").stat().st_mtime_ns == written


def test_python_has_the_ledger_as_a_data_frame(claims: None, trained: Path, capsys: pytest.CaptureFixture[str]):
    told = entries(unbraid(capsys, "claims", "--json", "--runs", trained)[1])
    before = {path: path.stat().st_mtime_ns for path in trained.glob("claims-*.*")}
    frame = ub.claims(runs=trained, run=False).set_index("id")
    assert {path: path.stat().st_mtime_ns for path in trained.glob("claims-*.*")} == before
    assert list(frame.index) == list(told)
    for claim, entry in told.items():
        part = deciding(entry)
        assert part is not None
        row = frame.loc[claim]
        assert [row["value"], row["low"], row["high"]] == [part["value"], *part["interval"]]
        assert [row["verdict"], row["p"], row["q"]] == [entry["verdict"], entry["p"], entry["q"]]
    assert ub.claims("tiny/sparser", runs=trained, quiet=True)["id"].to_list() == ["tiny/sparser"]
    assert (trained / "claims-small.html").stat().st_mtime_ns > before[trained / "claims-small.html"]
    with pytest.raises(UserError, match="--scale is 'huge'"):
        ub.claims(scale="huge")


def test_another_scale_is_another_run(claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]):
    for scale in ("small", "standard"):
        code, _, err = unbraid(capsys, "claims", "tiny/sparser", "-q", "--scale", scale, "--runs", runs)
        assert code == 0, err
    names = sorted(run.name for run in all_runs(runs))
    assert [name.rpartition("-")[0] for name in names] == ["claims-tiny-small", "claims-tiny-standard"]
    assert [Run(runs / name).config()["training"]["steps"] for name in names] == [60, 61]


def test_a_stopped_study_goes_on(
    claims: None, runs: Path, finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupt(progress: Silent, index: int, line: dict) -> None:
        if line["step"] == 30:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Silent, "log", interrupt)
        code, _, err = unbraid(capsys, "claims", "tiny/sparser", "-q", "--runs", runs)
    assert code == 130
    assert f"go on with: unbraid claims tiny/sparser --scale small --runs {runs}" in err
    [run] = all_runs(runs)
    assert run.status()["state"] == "stopped"
    assert not (run.stack(0) / "scores.json").is_file()
    assert unbraid(capsys, "claims", "tiny/sparser", "-q", "--runs", runs)[0] == 0
    assert run.scores() == Run(finished / run.name).scores()


def test_the_page_has_every_claim_and_needs_nothing_else(
    claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, _ = unbraid(capsys, "claims", "--runs", runs)
    assert code == 0
    assert "✓ holds" in out
    assert "✗ opposite" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert "2 claims: 1 hold, 1 opposite." in out
    page = Path(out.splitlines()[-1])
    text = page.read_text()
    assert page == runs / "claims-small.html"
    assert "L1 &lt;b&gt;silences&lt;/b&gt;." in text
    assert "none &amp; so" in text
    packed = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1]
    charts = json.loads(gzip.decompress(base64.b64decode(packed)))
    tables = [rows for chart in charts for rows in chart["datasets"].values()]
    means = [row["value"] for rows in tables for row in rows if "low" in row]
    replicates = [row["value"] for rows in tables for row in rows if "low" not in row and "value" in row]
    parts = [part for entry in json.loads(unbraid(capsys, "claims", "--json", "--runs", runs)[1])["claims"]
             for part in entry["parts"]]  # fmt: skip
    assert len(parts) == 3
    assert len(charts) == 2
    assert sorted(means) == pytest.approx(sorted(part["value"] for part in parts), rel=1e-4)
    drawn = sorted(value for part in parts for value in part["replicates"])
    assert sorted(replicates) == pytest.approx(drawn, rel=1e-4)
    assert not re.search(r'(?:src|href)="https?:', text)
    [run] = all_runs(runs)
    assert f'href="{run.name}/report.html"' in text


def test_a_claim_not_yet_run_is_said_to_be_so(
    claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    changed = ledger.CLAIMS["tiny/nothing"].model_copy(update={"overrides": {"small": ("training.steps=33",)}})
    monkeypatch.setitem(ledger.CLAIMS, "tiny/nothing", changed)
    unbraid(capsys, "claims", "tiny/sparser", "-q", "--runs", runs)
    assert "– not run" in (runs / "claims-small.html").read_text()
    assert len(all_runs(runs)) == 1


@pytest.fixture
def absent(claims: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Claim:
    """A claim about a study of a model that is not on this machine, before the two others."""
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "model.toml"
    study.write_text(
        TINY.replace(
            "[world]\ndimensions = 8\nn_features = 12\nactive = 2.0\n",
            '[world]\nkind = "activations"\n'
            '[world.capture]\nmodel = "real-data/none"\ntext = "real-data/none.txt"\nsite = "model.layers.1"\n',
        )
    )
    made = ledger.CLAIMS["tiny/sparser"].model_copy(update={"id": "tiny/model", "study": str(study)})
    monkeypatch.setattr(ledger, "CLAIMS", {made.id: made, **ledger.CLAIMS})
    return made


def test_a_study_whose_model_is_not_here_is_not_run_and_says_how_to_get_it(
    absent: Claim, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert code == 0, err
    verdicts = entries(out)
    assert [entry["verdict"] for entry in verdicts.values()] == ["not run", "holds", "opposite"]
    assert verdicts["tiny/model"]["why"].endswith("; `make real-data` makes it")
    assert verdicts["tiny/model"]["title"] == "A tiny study"
    assert verdicts["tiny/sparser"]["why"] == ""
    assert len(all_runs(runs)) == 1
    code, out, _ = unbraid(capsys, "claims", "--runs", runs)
    assert code == 0
    assert "make real-data" in " ".join(out.split())
    assert "3 claims: 1 hold, 1 opposite, 1 not run." in out
    assert "make real-data" in (runs / "claims-small.html").read_text()


def test_listing_needs_no_models(absent: Claim, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = unbraid(capsys, "claims", "--list", "--runs", runs)
    assert code == 0
    assert "tiny/model" in out
    assert "`make real-data` makes it" in " ".join(out.split())
    assert not runs.exists()
    assert not Path("activations").exists()


def test_listing_runs_nothing(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = unbraid(capsys, "claims", "--list", "--runs", runs)
    assert code == 0
    assert "tiny/sparser" in out
    assert "It recovers nothing." in out
    assert not runs.exists()
    text = " ".join(out.split())
    assert "source: “Hush <i>now</i>.”" in text
    assert "replicates: 8 (at least 8); one part" in text
    assert "replicates: 8 (at least 8); needs all of 2 parts" in text
    assert "- L0, weak minus strong: holds if above 0.5 and opposite if below" in text
    assert "smallest effect 0.1" in text
    assert "Exploratory: its margin" in text


def test_refusals(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = unbraid(capsys, "claims", "tiny/sparse", "--runs", runs)
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no claim 'tiny/sparse'; did you mean 'tiny/sparser'?" in err
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
    wrong = Part(what="x", measure=Level(metric="mmcs", of={"seed": 9}), rule=Above())
    changed = ledger.CLAIMS["tiny/sparser"].model_copy(update={"parts": (wrong,)})
    monkeypatch.setitem(ledger.CLAIMS, "tiny/sparser", changed)
    code, _, err = unbraid(capsys, "claims", "tiny/sparser", "-q", "--runs", runs)
    assert code == 2
    assert "claim tiny/sparser cannot be judged" in err
    assert read_json(all_runs(runs)[0].path / "status.json")["state"] == "finished"


def test_the_table_in_markdown_says_what_the_page_says(claims: None, runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = unbraid(capsys, "claims", "--json", "--runs", runs)
    assert code == 0, err
    [run] = all_runs(runs)
    table = (runs / "claims-small.md").read_text()
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `tiny/")]
    verdicts = entries(out)
    assert [row[0].strip("|` ") for row in rows] == list(verdicts)
    assert ["holds" in rows[0][-1], "opposite" in rows[1][-1]] == [True, True]
    assert f"`{fingerprint(run.config())}`" in table
    assert run.facts()["began"][:10] in table
    assert "2 claims: 1 hold, 1 opposite." in table


def test_what_a_ledger_file_has_is_not_run_again(claims: None, trained: Path, tmp_path: Path, capsys):
    path, other = tmp_path / "docs" / "ledger.json", tmp_path / "other"
    code, first, err = unbraid(capsys, "claims", "--json", "--runs", trained, "--ledger", path)
    assert code == 0, err
    code, second, err = unbraid(capsys, "claims", "--json", "--runs", other, "--ledger", path)
    assert code == 0, err
    assert "study 1" not in err
    assert all_runs(other) == []
    assert [entry["parts"] for entry in entries(second).values()] == [
        entry["parts"] for entry in entries(first).values()
    ]
    assert str(tmp_path) not in path.read_text().replace(str(Path(ledger.CLAIMS["tiny/sparser"].study)), "")
    table = path.with_suffix(".md").read_text()
    assert table == (trained / "claims-small.md").read_text() == (other / "claims-small.md").read_text()
    assert "2 claims: 1 hold, 1 opposite." in table
    assert "its run is not here" in (other / "claims-small.html").read_text()


def test_an_earlier_verdict_by_another_rule_is_not_taken(
    claims: None, trained: Path, tmp_path: Path, capsys, monkeypatch
):
    path = tmp_path / "ledger.json"
    assert unbraid(capsys, "claims", "-q", "--runs", trained, "--ledger", path)[0] == 0
    before, claim = ledger.earlier_verdicts(path, "small"), ledger.CLAIMS["tiny/sparser"]
    [part] = claim.parts
    stricter = claim.model_copy(update={"parts": (part.model_copy(update={"rule": Above(margin=5.0)}),)})
    monkeypatch.setitem(ledger.CLAIMS, claim.id, stricter)
    verdicts = ledger.reuse_verdicts(ledger.ledger_entries(ledger.plan_claims("small", tmp_path / "other")), before)
    assert [entry["verdict"] for entry in verdicts] == ["not run", "opposite"]


def test_an_earlier_verdict_on_parts_that_combine_otherwise_is_not_taken(
    claims: None, trained: Path, tmp_path: Path, capsys, monkeypatch
):
    path = tmp_path / "ledger.json"
    assert unbraid(capsys, "claims", "-q", "--runs", trained, "--ledger", path)[0] == 0
    before, claim = ledger.earlier_verdicts(path, "small"), ledger.CLAIMS["tiny/nothing"]
    monkeypatch.setitem(ledger.CLAIMS, claim.id, claim.model_copy(update={"combine": "any"}))
    verdicts = ledger.reuse_verdicts(ledger.ledger_entries(ledger.plan_claims("small", tmp_path / "other")), before)
    assert [entry["verdict"] for entry in verdicts] == ["holds", "not run"]


def test_verdicts_of_an_older_format_are_shown_and_not_taken(tmp_path: Path):
    content = {name: value for name, value in read_json(DOCS / "claims.json").items() if name not in ("note", "sha256")}
    path = tmp_path / "ledger.json"
    path.write_bytes(ledger._file_bytes(content))
    assert ledger.read_ledger_file(path)["claims"]
    with pytest.raises(UserError, match="is a ledger of format 1, of verdicts by other rules"):
        ledger.earlier_verdicts(path, "small")


def test_p_is_of_the_sign_flips_and_q_is_over_all_claims_that_were_run(
    claims: None, trained: Path, runs: Path, capsys: pytest.CaptureFixture[str]
):
    _, out, _ = unbraid(capsys, "claims", "--json", "--runs", runs)
    sparser, nothing = entries(out).values()
    assert sparser["p"] == sparser["parts"][0]["p"] == 2 / 256  # eight of one sign
    assert nothing["p"] == 2 * nothing["parts"][1]["p"] == 4 / 256  # by Holm's rule, the worse of two parts
    assert [sparser["q"], nothing["q"]] == [pytest.approx(4 / 256), pytest.approx(4 / 256)]


def entry(verdict: str, p: float | None, q: float | None = None, **more: object) -> dict:
    return {"id": "x/y", "source": "x", "statement": "S.", "published": "", "study": "s", "run": "r", "made": {},
            "verdict": verdict, "p": p, "q": q, "why": "", "parts": [], **more}  # fmt: skip


def test_q_leaves_out_what_was_not_run_and_is_scipys():
    p = [0.008, 0.03, 0.2, 1.0]
    given = [entry("holds", p[0]), entry("not run", None), *(entry("undecided", one) for one in p[1:])]
    q = [one["q"] for one in ledger.with_q(given)]
    assert q[1] is None
    assert [one for one in q if one is not None] == pytest.approx(false_discovery_control(p).tolist())
    assert ledger.with_q([entry("not run", None)])[0]["q"] is None


def test_a_decided_claim_with_a_large_q_is_marked():
    assert marks(entry("holds", 0.04, 0.12)) == ["Marked: q is 0.12, above 0.1."]
    assert marks(entry("opposite", 0.04, 0.12, exploratory="its margin.")) == [
        "Marked: q is 0.12, above 0.1.",
        "Exploratory: its margin.",
    ]
    assert marks(entry("holds", 0.04, 0.09)) == marks(entry("undecided", 0.3, 0.5)) == []
    assert "S. Marked: q is 0.12, above 0.1. |" in ledger_table([entry("holds", 0.04, 0.12)], "small")


def test_the_row_shows_the_part_that_decides():
    words = ("holds", "undecided", "no effect", "opposite")
    parts = [{"verdict": word} for word in words]
    assert [deciding(entry("", 1.0, combine=how, parts=parts)) for how in ("all", "any")] == [parts[3], parts[0]]
    assert deciding(entry("", 1.0, combine="all", parts=parts[:3])) == parts[2]
    assert deciding(entry("", 1.0, combine="any", parts=parts[1:])) == parts[1]


def test_a_ledger_file_of_another_scale_is_refused(claims: None, trained: Path, tmp_path: Path, capsys):
    path = tmp_path / "ledger.json"
    assert unbraid(capsys, "claims", "-q", "--runs", trained, "--ledger", path)[0] == 0
    code, _, err = unbraid(capsys, "claims", "--scale", "standard", "--runs", trained, "--ledger", path)
    assert code == 2
    assert "is a ledger of scale 'small'" in err


def test_without_its_model_an_earlier_verdict_is_not_lost():
    """There is no hash of a configuration that cannot be resolved here."""
    described = {"id": "x", "study": "s", "rules": ["r"], "combine": "all", "why": "no model", "verdict": "not run"}
    here = {**described, "run": "runs/claims-s-small"}
    old = {**described, "run": "claims-s-small-0123abcd", "verdict": "holds"}
    assert ledger.reuse_verdicts([here], {"x": old}) == [old]
    assert ledger.reuse_verdicts([{**here, "why": ""}], {"x": old}) == [{**here, "why": ""}]
    assert (
        ledger.reuse_verdicts([{**here, "run": "runs/claims-s-small-99999999"}], {"x": old})[0]["verdict"] == "not run"
    )


def test_a_table_of_what_was_not_run_has_no_numbers(claims: None, runs: Path):
    table = ledger_table(ledger.ledger_entries(ledger.plan_claims("small", runs)), "small")
    assert table.count("– not run") == 2
    assert "| – | – | – | – | – | – not run |" in table


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
    assert asked["sweep"] == {"mechanisms.sparsity.weight": [0.01, 30.0], "replicate": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert list(asked["cases"]) == ["a", "b"], "no claim names a case, so all are read"
    level = Level(metric="mmcs", of={"case": "b", **STRONG})
    asked = config(parts=(Part(what="one", measure=level, rule=Above()),))
    assert list(asked["cases"]) == ["b"]
    assert asked["sweep"]["mechanisms.sparsity.weight"] == [30.0]


DOCS = Path(__file__).parents[2] / "docs"


def damaged(content: bytes, number: int) -> bytes:
    """The content with a bit flipped, its end cut off, or a digit changed, at a random place."""
    rng = random.Random(number)
    match number % 3:
        case 0:
            index = rng.randrange(len(content))
            changed = bytes([content[index] ^ 1 << rng.randrange(8)])
        case 1:
            return content[: rng.randrange(len(content))]
        case _:
            index = rng.choice([index for index, byte in enumerate(content) if chr(byte).isdigit()])
            changed = rng.choice([digit for digit in b"0123456789" if digit != content[index]]).to_bytes()
    return content[:index] + changed + content[index + 1 :]


@pytest.mark.parametrize("number", range(90))
def test_a_damaged_ledger_file_is_refused(number: int, tmp_path: Path):
    """Every kind of damage at random places of a ledger with all kinds of entries."""
    path, whole = tmp_path / "ledger.json", (DOCS / "claims.json").read_bytes()
    path.write_bytes(whole)
    assert ledger.read_ledger_file(path)["claims"]
    path.write_bytes(damaged(whole, number))
    with pytest.raises(UserError, match=r"is damaged|unknown format"):
        ledger.earlier_verdicts(path, "small")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged: it is not JSON"),
        (b"null\n", "is damaged or no ledger"),
        (b'{"scale": "small", "claims": []}\n', "is damaged or no ledger"),
        (b'{"format": 99, "scale": "small", "claims": [], "sha256": ""}\n', "unknown format 99"),
        (b'{"format": 1, "scale": "\\ud800", "claims": [], "sha256": ""}\n', "is damaged: its content"),
        (b'{"format": 1, "scale": "small", "claims": [NaN], "sha256": ""}\n', "is damaged: its content"),
    ],
)
def test_what_is_no_ledger_is_refused_in_a_sentence_and_left_alone(
    claims: None, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
):
    path = tmp_path / "ledger.json"
    path.write_bytes(content)
    code, out, err = unbraid(capsys, "claims", "--ledger", path, "--runs", runs)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert path.read_bytes() == content
    assert not runs.exists()


def test_the_checksum_is_of_the_rest_as_canonical_json(tmp_path: Path):
    path = tmp_path / "ledger.json"
    ledger.write_ledger_file(path, [{"id": "é", "run": "runs/x", "value": math.nan, "interval": (0.5, 1e-7)}], "small")
    canonical = '{"claims":[{"id":"é","interval":[0.5,1e-07],"run":"x","value":null}],"format":2,"scale":"small"}'
    assert read_json(path)["sha256"] == hashlib.sha256(canonical.encode()).hexdigest()
    assert ledger.read_ledger_file(path)["claims"][0]["interval"] == [0.5, 1e-7]


def test_the_committed_ledger_is_neither_used_nor_overwritten(runs: Path, capsys: pytest.CaptureFixture[str]):
    """Its verdicts are of the configurations before the code was rebuilt."""
    path = DOCS / "claims.json"
    before = path.read_bytes()
    code, out, err = unbraid(capsys, "claims", "--ledger", path, "--runs", runs)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is a record of other configurations" in err
    assert "of commit 652e4c6" in err
    assert path.read_bytes() == before
    assert not runs.exists()


def test_the_committed_ledger_is_whole_and_its_table_says_the_same():
    content = ledger.read_ledger_file(DOCS / "claims.json")
    assert content["format"] == 1
    assert {entry["verdict"] for entry in content["claims"]} == {"holds", "fails", "undecided"}
    assert "of commit 652e4c6" in content["note"]
    table = ledger_table(content["claims"], content["scale"], content["note"])
    assert table == (DOCS / "claims.md").read_text()
