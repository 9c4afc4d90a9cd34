"""What a report of models shows follows from what is on disk."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from tests.reports.pupils import ASKED, HEADS, LAYERS, SUPPORT, WORDS, write_models
from unbraid.config import JsonDict, merge
from unbraid.reports.canvas import Plate
from unbraid.reports.cost_figures import costs, differences
from unbraid.reports.findings import Findings, read_findings
from unbraid.reports.forest_figures import forests, row_look
from unbraid.reports.head_tables import head_table
from unbraid.reports.heat_figures import chosen_heads
from unbraid.reports.learning_figures import learning
from unbraid.reports.page import write_report
from unbraid.reports.published_accuracy import published_accuracies
from unbraid.reports.seed_figure import tick_step
from unbraid.reports.sentences import details, headline, what_was_run
from unbraid.reports.sight_figures import routes, sights
from unbraid.reports.tasks import drawn, tasks
from unbraid.reports.watched import watched


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return read_findings(write_models(tmp_path_factory.mktemp("models")))


def test_settings_are_seen_task_by_task_with_the_same_rows(findings):
    found = tasks(findings)
    assert [task.name for task in found] == ["one_fact", "counting"]
    assert [[(row.name, row.place) for row in task.rows] for task in found] == [[("none", 0), ("orthogonality", 1)]] * 2
    assert [row.setting.label for row in found[1].rows] == ["none, counting", "orthogonality, counting"]


def test_what_was_run_names_models_stories_and_constraints(findings):
    said = " ".join(what_was_run(findings.config))
    assert "8 models (4 settings × 2 replicates) of 2 layers with 4 heads (softmax, causal), d_model 16" in said
    assert "World: stories, one_fact or counting" in said
    assert "Constraints: orthogonality (weight 0.1, form corrected)." in said


def test_what_a_task_has_of_its_own_and_what_a_case_leaves_out_are_told(findings):
    """Of [tasks] only what was run; a form that a case leaves out is said by its name."""
    own = {"world": {"things": 1}, "model": {"layers": 3}, "teaching": {"steps": 55}}
    cases = {"none": {}, "one": {"constraints": {"orthogonality": {"weight": 0.1}}}}
    cases["all"] = {"constraints": {"orthogonality": {"weight": 0.2, "form": "published"}}}
    asked = {"world.task": ["one_fact", "two_facts"], "seed": [0]}
    config = {**findings.config, "cases": cases, "sweep": asked, "tasks": {"two_facts": own}}
    said = " ".join(what_was_run(config))
    assert "of 2 or 3 layers" in said
    assert "taught for 30 or 55 steps" in said
    assert "Of its own two_facts has world.things 1, model.layers 3, teaching.steps 55." in said
    assert "the question of two_facts is always the same" in said
    assert "orthogonality (weight 0.1 or 0.2, form corrected or published)" in said
    without = " ".join(what_was_run({**config, "sweep": {"world.task": ["one_fact"], "seed": [0]}}))
    assert "of 2 layers" in without
    assert "two_facts" not in without


def test_sizes_swept_as_tables_are_all_told(findings):
    sweep = {"model": [{"d_ff": 64}, {"d_model": 32}, {"layers": 4}], "seed": [0]}
    said = " ".join(what_was_run({**findings.config, "cases": {}, "sweep": sweep}))
    assert "of 2 or 4 layers" in said
    assert "d_model 16 or 32, d_ff 64 or 32" in said


def test_the_headline_is_the_first_setting_of_each_task(findings):
    first, most = "0.980 [0.970, 0.990]", "at most 0.610 without the question"
    told = f"one_fact {first}, chance 0.470, {most}; counting {first}, chance 0.310, {most}"
    assert f"Answered right by none: {told}." == headline(findings)
    said = " ".join(details(findings))
    assert "On one_fact, fewer questions are answered right than with none: orthogonality (−0.270)." in said
    assert "attends" not in said  # what is undecided is not said


def test_differences_from_another_task_are_not_told(findings):
    other = [{**one, "reference": 0} for one in findings.differences]
    said = " ".join(details(replace(findings, differences=other)))
    assert "On one_fact, fewer" in said
    assert "counting" not in said


def test_of_one_task_the_best_setting_is_told(tmp_path):
    run = write_models(tmp_path, tasks=("one_fact",))
    said = headline(read_findings(run))
    assert said.startswith("Best of 2 settings: none, one_fact answers 0.980 [0.970, 0.990] of the questions right")
    assert said.endswith("where a rule of thumb has 0.470, at most 0.610 without the question.")
    assert "without" not in headline(read_findings(write_models(tmp_path, "ratios", tasks=("ratio",))))


def test_forests_have_a_picture_a_score_and_task(plate):
    pictures = {picture.name: picture for picture in plate("Scores by task").pictures}
    assert set(pictures) == {f"forest-{score}-{task}" for score in ("accuracy", "support_best") for task in TASKS}
    assert "none 0.980 [0.970, 0.990]; orthogonality 0.710" in pictures["forest-accuracy-counting"].alt


TASKS = ("one-fact", "counting")


def test_what_is_possible_without_the_question_is_drawn_apart_from_rules_of_thumb(findings, monkeypatch):
    figures: list[Figure] = []
    for module in ("learning", "forest"):
        monkeypatch.setattr(f"unbraid.reports.{module}_figures.png", lambda figure: figures.append(figure) or b"")
    learning(findings)
    lines = {line.get_ydata()[0]: line.get_linestyle() for line in figures[0].axes[0].lines if line.get_xdata()[1] == 1}
    assert lines == {0.47: ":", 0.2: ":", 0.61: "--"}
    assert figures[0].axes[0].texts[0].get_text() == "without the question"
    told = {picture.name: picture.alt for picture in forests(findings).pictures}
    assert "without the question at most 0.610" in told["forest-accuracy-counting"]
    assert "without" not in told["forest-support_best-counting"]
    across = [tuple(line.get_xdata()) for line in figures[len(TASKS)].axes[0].lines if line.get_linestyle() == ":"]
    assert (0.61, 0.61) in across


def test_where_there_is_no_room_rows_are_drawn_evenly_and_it_is_said(tmp_path, plates, monkeypatch):
    """Of twelve cases with accuracies 0.12, 0.11 … 0.01 the eight that are drawn go from the first to the last."""
    cases = [f"case-{place:02d}" for place in range(12)]
    accuracies = {case: (12 - place) / 100 for place, case in enumerate(cases)}
    monkeypatch.setattr("tests.reports.pupils.ACCURACY", accuracies)
    usage = np.tile(np.array([[0.9, 0.1, 0.6, 0.4]]), (1, LAYERS, 1))
    run = write_models(tmp_path, cases=cases, tasks=("one_fact",), seeds=(0,), tables={"usage": usage})
    many = read_findings(run)
    rows = tasks(many)[0].rows
    kept = [row.place for row in drawn(many, rows)]
    assert kept == [round(place) for place in np.linspace(0, 11, 8)]
    assert len({(row_look(row).colour, row_look(row).marker) for row in rows}) == 12
    telling = [learning(many), routes(many), chosen_heads(many)]
    for plate in (*telling, sights(many)):
        assert "Drawn: 8 of 12 settings a task" in plate.caption, plate.heading
    for plate in telling:
        assert [case for case in cases if case in plate.pictures[0].alt] == [cases[place] for place in kept]
    assert not [plate.heading for plate in plates if "Drawn" in plate.caption]


def test_what_a_case_costs_is_paired_with_the_first_case_at_equal_sizes(tmp_path):
    """Of replicates 0.98 and 0.71 everywhere, the difference is −0.27 in every pair."""
    run = write_models(tmp_path, seeds=range(5))
    found = read_findings(run)
    rows = differences(found, tasks(found)[1], "accuracy")
    assert [(row.name, row.setting.label) for row, _ in rows] == [("orthogonality", "orthogonality, counting")]
    assert rows[0][1].pairs == 5
    assert rows[0][1].estimate.value == pytest.approx(0.71 - 0.98)
    assert rows[0][1].verdict == "lower"
    names = [picture.name for picture in costs(found).pictures]
    assert names == [f"cost-{score}-{task}" for score in ("accuracy", "support_best") for task in TASKS]


def test_learning_ends_where_the_log_does(plate):
    pictures = {picture.name: picture.alt for picture in plate("Learning").pictures}
    assert set(pictures) == {f"learning-{task}" for task in TASKS}
    assert "none ends at 0.75" in pictures["learning-one-fact"]


def test_a_story_is_watched_up_to_its_question_with_its_support(findings):
    one = watched(findings, findings.settings[0])
    assert one is not None
    assert (one.words, one.support, one.asked, one.question) == (WORDS, SUPPORT, ASKED, "where is mary ?")
    kept = findings.tables[0]["pattern.0"][0].astype(float)
    np.testing.assert_allclose(one.support_mass, kept[:, :, ASKED, :6].sum(-1))


def test_a_long_story_is_cut_after_the_last_question_there_is_room_for(findings):
    cards = findings.stories[0]["members"]["0"]
    asked = {**cards[0], "words": WORDS * 4, "asked": [15, 31, 47], "answers": ["a", "b", "c"], "said": ["a", "b", "c"]}
    long = {**asked, "support": [SUPPORT, [20, 21], [33]]}
    stories = [{"members": {"0": [long]}}, *findings.stories[1:]]
    patterns = {"pattern.0": np.ones((1, 1, 1, 64, 64), np.float16)}
    other = replace(findings, stories=stories, tables=[patterns, *findings.tables[1:]])
    one = watched(other, findings.settings[0])
    whole = watched(other, findings.settings[0], whole=True)
    assert one is not None
    assert whole is not None
    assert (one.asked, one.answer, one.support, one.patterns.shape) == (31, "b", [20, 21], (1, 1, 32, 32))
    assert (whole.asked, whole.answer) == (47, "c")


def test_chosen_heads_are_those_that_attend_most_and_the_gallery_has_all(findings, plate):
    one = watched(findings, findings.settings[0])
    assert one is not None
    layer, head = np.unravel_index(one.support_mass.argmax(), one.support_mass.shape)
    alt = plate("Where chosen heads look").pictures[0].alt
    assert f"none: head {layer}.{head} gives {one.support_mass.max():.2f}" in alt
    every = plate("All heads")
    assert [picture.name for picture in every.pictures] == [f"gallery-{task}-{row}" for task in TASKS for row in (1, 2)]
    assert f"all {LAYERS * HEADS} heads" in every.pictures[0].alt
    assert every.numbers.count("<details>") == 4


def test_heads_in_numbers_are_those_of_the_tables(findings):
    task = tasks(findings)[0]
    told = head_table(findings, task, task.rows[0])
    assert told.count("head ") >= LAYERS * HEADS
    assert f"{findings.tables[0]['importance'][0, 1, 2]:.3f}" in told
    assert "support of 0.375" in told


@pytest.mark.parametrize(("tokens", "step"), [(30, 1), (31, 2), (50, 2), (51, 3), (60, 3)])
def test_the_seeds_figure_has_its_ticks(tokens, step):
    assert tick_step(tokens) == step


def test_the_seeds_figure_has_its_size(plate):
    pictures = plate("The seed's figure").pictures
    assert len(pictures) == 4
    assert imread(io.BytesIO(pictures[0].png)).shape[:2] == (800, 1000)
    assert "head 0, last layer" in pictures[0].alt


def test_routes_are_drawn_where_tokens_are_routed(findings, tmp_path):
    assert routes(findings).pictures == []
    usage = np.tile(np.array([[0.9, 0.1, 0.6, 0.4]]), (1, LAYERS, 1))
    routed = read_findings(write_models(tmp_path, tables={"usage": usage}))
    plate = routes(routed)
    assert [picture.name for picture in plate.pictures] == [f"routes-{task}" for task in TASKS]
    assert "none: from 0.90 to 0.10" in plate.pictures[0].alt


def test_sights_have_a_point_a_head_of_the_last_layer_of_every_replicate(findings, monkeypatch):
    """Stacks are written case by case, task by task, seed by seed: of counting, the second task, 2, 3 and 6, 7."""
    figures: list[Figure] = []
    monkeypatch.setattr("unbraid.reports.sight_figures.png", lambda figure: figures.append(figure) or b"")
    assert [picture.name for picture in sights(findings).pictures] == [f"sight-{task}" for task in TASKS]
    points = [line.get_xydata() for line in figures[1].axes[0].lines[:2]]
    for shown, stacks in zip(points, [(2, 3), (6, 7)], strict=True):
        tables = [findings.tables[stack] for stack in stacks]
        expected = [np.concatenate([one[name][0, -1] for one in tables]) for name in ("spread", "support")]
        np.testing.assert_allclose(shown, np.stack(expected, 1))


PUBLISHED = {
    "world": {"kind": "stories", "task": "one_fact", "layout": "single", "examples": 1000},
    "model": {"causal": False, "readout": "mean", "positions": "sinusoidal", "init": "torch", "dropout": 0.1},
    "teaching": {"steps": 128, "batch": 64, "learning_rate": 3e-4, "weight_decay": 1e-2, "clip": 1.0},
    "sweep": {"world.task": ["one_fact"], "seed": [0, 1]},
}
SIZES = {"model": {"d_model": 128, "heads": 8, "layers": 2, "d_ff": 256}}


def beside_the_seed(folder: Path, changes: JsonDict) -> Plate:
    cases = ("vanilla", "ortho_mi", "ours")
    whole = merge(merge(PUBLISHED, SIZES), changes)
    return published_accuracies(read_findings(write_models(folder, cases=cases, tasks=("one_fact",), changes=whole)))


def test_the_seeds_table_stands_beside_a_run_of_its_experiments(tmp_path):
    plate = beside_the_seed(tmp_path, {})
    assert "vanilla 0.400, seed 0.370; ortho_mi 0.400, seed 0.375" in plate.pictures[0].alt
    assert "ours" not in plate.pictures[0].alt
    assert plate.numbers.count("<tr>") == 3
    assert "last statement" not in plate.caption


@pytest.mark.parametrize(
    "changes",
    [
        {"teaching": {"steps": 4000}},
        {"teaching": {"learning_rate": 1e-3}},
        {"model": {"dropout": 0.0}},
        {"model": {"positions": "alibi"}},
        {"model": {"init": "scaled_attention"}},
        {"model": {"d_ff": 512}},
    ],
    ids=str,
)
def test_the_seeds_table_is_left_out_of_a_run_that_was_taught_otherwise(tmp_path, changes):
    assert beside_the_seed(tmp_path, changes).pictures == []


def test_the_seeds_table_is_left_out_of_any_other_run(findings):
    assert published_accuracies(findings).pictures == []


def test_a_page_of_models_has_every_plate_and_no_dictionary(findings, plates, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("unbraid.reports.page.draw", lambda findings: plates)
    page = write_report([findings.run], tmp_path / "page.html").read_text()
    headings = (
        "Scores by task",
        "Learning",
        "Sparse and right",
        "Where chosen heads look",
        "All heads",
        "Training",
    )
    for heading in headings:
        assert f">{heading}</h2>" in page, heading
    assert "dictionar" not in page.split("<footer>")[0].replace("random dictionary", "")
    names = [picture.name for plate in plates for picture in plate.pictures]
    assert len(names) == len(set(names))
    assert "loss-orthogonality" in names


def test_a_page_of_several_runs_has_a_table_of_models(findings, undrawn, tmp_path: Path):
    page = write_report([findings.run, findings.run], tmp_path / "both.html").read_text()
    assert "best setting" in page
    assert "Accuracy" in page
