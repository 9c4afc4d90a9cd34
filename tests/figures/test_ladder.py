"""Figures of a cumulative ablation and of paths along L0, against the run's own files and independent arithmetic."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.figures.test_dictionaries import rows, section
from tests.pipeline.running import run_config
from unbraid.config import read_toml
from unbraid.figures import dictionaries
from unbraid.figures.figure import PUBLISHED
from unbraid.figures.tracking import events
from unbraid.report.ledger import claim_section
from unbraid.results import RunResults
from unbraid.storage.runs import Run

CONFIG = {
    "world": {
        "kind": "superposition",
        "dimensions": 8,
        "n_features": 12,
        "firing": {"kind": "hierarchy", "children": 2, "child_probability": 0.5},
    },
    "dictionary": {"d_sae": 16},
    "training": {"steps": 40, "batch": 64, "learning_rate": 1e-2},
    "evaluation": {"samples": 512},
    "checkpoints": {"log_every": 10, "every": 40},
    "cases": {f"run-{step}": {"training": {"learning_rate": 1e-2 + step * 1e-4}} for step in range(10)},
    "sweep": {"mechanisms": {"sparsity": {"weight": [0.02, 0.05, 0.2]}}, "seed": [0, 1]},
}


@pytest.fixture(scope="module")
def ladder(tmp_path_factory) -> RunResults:
    return RunResults(run_config(tmp_path_factory.mktemp("ladder"), "ladder", CONFIG))


def named(results, section_name, name):
    return next(figure for figure in section(results, section_name).figures if figure.name == name)


def logged(results, label):
    """The lines of the log with the places of a setting's members in it."""
    places = results.members[results.members["label"] == label]
    for stack, member in zip(places["stack"], places["member"], strict=True):
        log = results.run.stack(stack) / "log.jsonl"
        yield [json.loads(line) for line in log.read_text().splitlines()], member


def test_ten_runs_stand_side_by_side_with_loss_and_share_of_zeros_over_training(ladder):
    zeros, loss = (named(ladder, "published_runs", f"published-{n}") for n in ("sparsity_evolution", "training_curves"))
    held, total = ({(row["label"], row["step"]): row["value"] for row in rows(one)} for one in (zeros, loss))
    labels = {label for label, _ in held}
    assert {label.partition(",")[0] for label in labels} == {f"run-{step}" for step in range(10)}
    assert all("0.05" in label for label in labels)  # the middle of the strengths
    for label in labels:
        logs = list(logged(ladder, label))
        for at, line in enumerate(logs[0][0]):
            l0 = np.mean([lines[at]["l0"][member] for lines, member in logs])
            terms = [sum(values[m] for values in lines[at]["terms"].values()) for lines, m in logs]
            assert held[label, line["step"]] == pytest.approx(1 - l0 / 16, abs=1e-5)
            assert total[label, line["step"]] == pytest.approx(np.mean(terms), rel=1e-4)
    spec = json.dumps(zeros.spec)
    assert "training steps" in spec
    assert "proportion of zero activations" in spec


def test_usage_is_sorted_and_correlation_is_a_row_a_run(ladder):
    usage = named(ladder, "published_runs", "published-feature_usage")
    for _, own in pd.DataFrame(rows(usage)).groupby("label"):
        assert len(own) == 16
        assert (own.sort_values("rank")["value"].diff().dropna() <= 1e-9).all()
    correlation = named(ladder, "published_runs", "published-mean_correlation")
    assert len({row["label"] for row in rows(correlation) if "low" in row}) == 10


@pytest.mark.parametrize(
    ("name", "figure", "metric"),
    [
        ("feature_correlations", "correlations-equal-l0", "correlation"),
        ("absorption", "absorption-equal-l0", "absorption"),
    ],
)
def test_cases_are_compared_at_one_l0_between_two_of_their_strengths(ladder, name, figure, metric):
    drawn = named(ladder, name, figure)
    l0 = float(drawn.title.rpartition("L0 ")[2])
    assert rows(drawn)
    for row in rows(drawn):
        settings = ladder.settings[ladder.settings["case"] == row["label"]]["setting"]
        values = []
        for _, own in ladder.scores[ladder.scores["setting"].isin(settings)].groupby("replicate"):
            wide = own.pivot_table("value", "setting", "metric").sort_values("l0")
            values.append(np.interp(np.log(l0), np.log(wide["l0"]), wide[metric]))
        assert row["value"] == pytest.approx(np.mean(values), abs=2e-2 * max(1e-3, abs(np.mean(values))) + 2e-3)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_front_is_what_nothing_beats(better):
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"L0": random.integers(1, 20, 60).astype(float), "value": random.random(60)})
    sign = 1 if better == "higher" else -1
    points = list(zip(frame["L0"], frame["value"], strict=True))
    kept = {
        (l0, value)
        for l0, value in points
        if not any((a <= l0 and sign * b > sign * value) or (a < l0 and b == value) for a, b in points)
    }
    found = dictionaries.front(frame, better)
    assert set(zip(found["L0"], found["value"], strict=True)) == kept


def test_pareto_figures_draw_the_front(ladder):
    figure = section(ladder, "pareto_fronts").figures[0]
    assert any(layer.get("mark", {}).get("interpolate") == "step-after" for layer in figure.spec["layer"])


def test_timelines_mark_what_was_learned_moved_and_unlearned(small_run):
    results = RunResults(small_run("superposition").run)
    stack, member = results.first_member(results.drawn[0])
    tables, random = dict(results.arrays(stack, "tracking")), np.random.default_rng(5)
    tables["best"], tables["entry"] = (
        0.8 + 0.2 * random.random(tables["best"].shape),
        random.integers(0, 3, tables["entry"].shape),
    )
    results.__dict__["_read"][stack, "tracking"] = tables
    best, entry, expected = tables["best"][member], tables["entry"][member], set()
    for truth in range(best.shape[1]):
        for check in range(len(best)):
            now, before = best[check, truth] >= 0.9, check > 0 and best[check - 1, truth] >= 0.9
            moved = now and before and entry[check, truth] != entry[check - 1, truth]
            event = "moved" if moved else {(1, 0): "learned", (0, 1): "unlearned"}.get((int(now), int(before)))
            expected |= {(event, truth, int(tables["steps"][check]))} if event else set()
    assert {event for event, _, _ in expected} == {"learned", "moved", "unlearned"}
    figure = section(results, "timelines").figures[0]
    assert {(row["event"], row["planted feature"], row["step"]) for row in rows(figure) if "event" in row} == expected


def test_events_of_a_life_made_by_hand():
    best, entry = np.array([[0.2], [0.95], [0.96], [0.1]]), np.array([[0], [3], [5], [5]])
    found = {name: np.flatnonzero(table).tolist() for name, table in events(best, entry).items()}
    assert found == {"learned": [1], "moved": [2], "unlearned": [3]}


def test_probes_stand_against_k_beside_raw_activations(ladder, monkeypatch):
    card = {"value": 0.8, "interval": [0.75, 0.85], "chance": 0.6}
    raw = {"probe_1": {"value": 0.7, "error": 0.01}, "probe_full": {"value": 0.9, "error": None}}
    scores = {"settings": [{"label": "ours", "metrics": {"probe_5": card}}], "baselines": {"raw activations": raw}}
    monkeypatch.setattr(Run, "on_language_model", lambda run: scores)
    figure = named(ladder, "sparse_probing", "probing")
    held = {(row["label"], row["k"]): (row["value"], row["low"], row["high"]) for row in rows(figure)}
    assert held["ours", "5"] == (0.8, 0.75, 0.85)
    assert held["raw activations", "1"] == pytest.approx((0.7, 0.7 - 0.0196, 0.7 + 0.0196))
    assert held["raw activations", "full"][0] == 0.9
    assert any(row.get("chance") == 0.6 for row in rows(figure))


def test_published_values_stand_in_the_cells_of_our_grid(ladder):
    source = read_toml(PUBLISHED / "superposition.toml")
    config = {"world": {"firing": {"kind": "independent", "form": "published"}}}
    for path, value in source["conditions"].items():
        *above, last = path.split(".")
        place = config
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    results, setting = RunResults(ladder.run), pd.DataFrame({"label": ["the one setting"]})
    results.__dict__["config"] = config
    panel = dictionaries._published_panel(results, setting)
    cells = dictionaries._published_cells(panel, "mmcs")
    assert [cells["512", f"{weight:.3g}"] for weight in (0.1, 10**-0.75)] == [0.966, 0.966]
    assert panel["label"] == "correlated"
    del results.__dict__["configs"]
    config["world"]["decay"] = 0.5
    assert dictionaries._published_panel(results, setting) == {}


def test_the_forest_of_a_claim_says_what_is_drawn_and_which_side_supports_it():
    part = {"what": "A − B", "note": "", "metric": "mmcs", "value": 0.1, "interval": [0.05, 0.2], "chance": 0.02}
    part |= {"verdict": "holds", "rule": "holds if above 0 and opposite if below, by a test", "statistic": "difference"}
    claim = {"id": "a/b", "statement": "S", "published": "", "study": "s", "title": "", "verdict": "holds", "why": ""}
    [figure] = claim_section({**claim, "parts": [part | {"pairs": 8}]}).figures
    for said in ("dot: their mean", "95 %", "chance", "A part holds if above 0 and opposite if below."):
        assert said in figure.caption
    held = [row for row in rows(figure) if "value" in row]
    assert [(row["value"], row["low"], row["high"], row["chance"]) for row in held] == [(0.1, 0.05, 0.2, 0.02)]
