"""What the terminal shows, and the JSON whose keys are promised."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unbraid.reports.tables import print_run, print_runs, run_as_json
from unbraid.storage.files import write_bytes

KEYS = ["name", "path", "state", "config", "environment", "settings", "differences", "figures"]
DOCUMENT = Path(__file__).parents[2] / "docs" / "show-json.md"


@pytest.fixture(params=[80, 120])
def width(request, monkeypatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def test_list_has_a_line_for_every_run_however_damaged(make_run, width, capsys):
    whole, stopped = make_run(), make_run(name="half", state="stopped")
    torn, lost = make_run(name="torn"), make_run(name="lost")
    for run in (whole, torn, lost):
        run.finish(71.6)
    (torn.path / "status.json").write_text("{")
    (lost.path / "scores.json").write_text('{"settings": 3}')
    print_runs([whole, stopped, torn, lost], Path("runs"))
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "finished" in lines["tiny"]
    assert "2 × 3" in lines["tiny"]
    assert "0.820 (0.189)" in lines["tiny"]
    assert lines["half"].split()[3:] == ["stopped", "2", "×", "3", "–"]
    assert "damaged" in lines["torn"]
    assert lines["lost"].rstrip().endswith("–")
    assert max(map(len, lines.values())) <= width


def test_list_of_nothing_is_one_sentence(capsys):
    print_runs([], Path("elsewhere"))
    assert capsys.readouterr().out == "There are no runs in elsewhere; make one with: unbraid run quickstart\n"


def test_show_has_every_metric_of_every_setting(make_run, width, capsys):
    run = make_run(label=lambda weight: f"weight {weight:g} [not markup] and rather a long name :smile:")
    print_run(run)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    for found in (
        "0.820  ",
        "[0.812, 0.829]",
        "0.189",
        "1.000",
        "5.03",
        "[not markup]",
        ":smile:",
        "Finished in 1 min 12 s",
    ):
        assert found in out
    for heading in ("MMCS", "MCC", "Recovered", "F1", "Explained variance", "L0", "Dead", "Precision", "Density"):
        assert f"\n{heading}" in out


def test_show_puts_the_verdict_beside_the_difference(make_run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_run(make_run())
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [
        "weight",
        "0.15",
        "minus",
        "weight",
        "0.05",
        "difference",
        "95",
        "%",
        "interval",
        "pairs",
        "verdict",
    ] in lines
    assert ["MMCS", "−0.024", "[−0.030,", "−0.020]", "3", "lower"] in lines
    print_run(make_run(name="three", weights=(0.1, 0.2, 0.3)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["weight", "0.3", "+0.21", "[−0.10,", "+0.50]", "3", "undecided"] in lines


def test_one_setting_is_one_line_a_metric(make_run, capsys):
    print_run(make_run(weights=(0.1,), seeds=(4,)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["MMCS", "0.812", "–", "0.189", "1.000"] in lines


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("stopped", "Stopped after 1 min 12 s: saved at step 7\nGo on with: unbraid resume {path}\n"),
        ("failed", "Failed after 1 min 12 s: saved at step 7\nGo on with: unbraid resume {path}\n"),
        ("running", "Killed after 1 min 12 s: saved at step 7\nGo on with: unbraid resume {path}\n"),
    ],
)
def test_an_unfinished_run_says_its_state_and_how_to_go_on(make_run, capsys, state, expected):
    run = make_run(state=state, sentence="saved at step 7")
    print_run(run)
    assert capsys.readouterr().out.endswith(expected.format(path=run.path))


def test_a_run_that_is_being_written_is_running(make_run, capsys):
    run = make_run(state="running", sentence="")
    with run.locked():
        print_run(run)
    assert capsys.readouterr().out.endswith("Running after 1 min 12 s.\n")


def test_json_has_the_promised_keys(make_run):
    run = make_run()
    write_bytes(run.path / "figures" / "curve-l0.png", b"")
    shown = json.loads(run_as_json(run))
    assert list(shown) == KEYS
    assert shown["settings"] == run.scores()["settings"]
    assert shown["differences"] == run.scores()["differences"]
    assert shown["config"] == run.config()
    assert shown["figures"] == {"curve-l0": str(run.path / "figures" / "curve-l0.png")}
    assert (shown["name"], shown["path"], shown["state"]) == ("tiny", str(run.path), "finished")
    assert set(shown["settings"][0]["metrics"]["mmcs"]) == {"value", "interval", "chance", "ceiling", "members"}


def test_json_of_an_unfinished_run_has_the_same_keys_and_no_scores(make_run):
    run = make_run(state="stopped")
    write_bytes(run.path / "figures" / "of-an-earlier-report.png", b"")
    shown = json.loads(run_as_json(run))
    assert list(shown) == KEYS
    assert (shown["settings"], shown["differences"], shown["figures"]) == ([], [], {})


def test_every_key_is_documented(make_run):
    shown = json.loads(run_as_json(make_run()))
    setting = shown["settings"][0]
    keys = [*shown, *setting, *setting["members"][0], *setting["metrics"]["mmcs"], *shown["differences"][0]]
    text = DOCUMENT.read_text()
    assert not [key for key in {*keys, *shown["environment"]} if f"`{key}`" not in text]


@pytest.mark.parametrize(("module", "absent"), [("tables", {"torch", "matplotlib"}), ("page", {"torch"})])
def test_reading_runs_loads_nothing_heavy(module, absent):
    program = f"import sys, unbraid.reports.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not absent & set(loaded)
