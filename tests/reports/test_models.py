"""What a report of models shows follows from what is on disk."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.image import imread

from tests.reports.model_runs import ASKED, HEADS, LAYERS, SUPPORT, WORDS, write_models
from unbraid.config import JsonDict, merge
from unbraid.reports.canvas import Section
from unbraid.reports.cost_figures import costs, differences
from unbraid.reports.first_head_figures import tick_step
from unbraid.reports.forest_figures import forests, row_style
from unbraid.reports.head_figures import attention_and_support, routes
from unbraid.reports.head_tables import head_table
from unbraid.reports.heat_figures import chosen_heads
from unbraid.reports.learning_figures import learning
from unbraid.reports.model_sentences import details, headline, what_was_run
from unbraid.reports.page import write_report
from unbraid.reports.published_accuracy import published_accuracies
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.story_attention import story_attention
from unbraid.reports.tasks import drawn, tasks


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return read_results(write_models(tmp_path_factory.mktemp("models")))


def test_settings_are_seen_task_by_task_with_the_same_rows(results):
    found = tasks(results)
    assert [task.name for task in found] == ["one_fact", "counting"]
    assert [[(row.name, row.place) for row in task.rows] for task in found] == [[("none", 0), ("orthogonality", 1)]] * 2
    assert [row.setting.label for row in found[1].rows] == ["none, counting", "orthogonality, counting"]


def test_what_was_run_names_models_stories_and_constraints(results):
    said = " ".join(what_was_run(results.config))
    assert "8 models (4 settings × 2 replicates) of 2 layers with 4 heads (softmax, causal), d_model 16" in said
    assert "World: stories, one_fact or counting" in said
    assert "Constraints: orthogonality (weight 0.1, form corrected)." in said


def test_what_a_task_has_of_its_own_and_what_a_case_leaves_out_are_described(results):
    """Of [tasks] only what was run; a form that a case leaves out is said by its name."""
    own = {"world": {"things": 1}, "model": {"layers": 3, "training": {"steps": 55}}}
    cases = {"none": {}, "one": {"constraints": {"orthogonality": {"weight": 0.1}}}}
    cases["all"] = {"constraints": {"orthogonality": {"weight": 0.2, "form": "published"}}}
    asked = {"world.task": ["one_fact", "two_facts"], "seed": [0]}
    config = {**results.config, "cases": cases, "sweep": asked, "tasks": {"two_facts": own}}
    said = " ".join(what_was_run(config))
    assert "of 2 or 3 layers" in said
    assert "trained for 30 or 55 steps" in said
    assert "Settings of two_facts alone: world.things 1, model.layers 3, model.training.steps 55." in said
    assert "the question of two_facts is always the same" in said
    assert "orthogonality (weight 0.1 or 0.2, form corrected or published)" in said
    without = " ".join(what_was_run({**config, "sweep": {"world.task": ["one_fact"], "seed": [0]}}))
    assert "of 2 layers" in without
    assert "two_facts" not in without


def test_sizes_swept_as_tables_are_all_described(results):
    sweep = {"model": [{"d_ff": 64}, {"d_model": 32}, {"layers": 4}], "seed": [0]}
    said = " ".join(what_was_run({**results.config, "cases": {}, "sweep": sweep}))
    assert "of 2 or 4 layers" in said
    assert "d_model 16 or 32, d_ff 64 or 32" in said


def test_the_headline_is_the_first_setting_of_each_task(results):
    first, most = "0.980 [0.970, 0.990]", "without the question 0.610"
    described = f"one_fact {first} (chance 0.470, {most}); counting {first} (chance 0.310, {most})"
    assert f"Accuracy of none: {described}." == headline(results)
    said = " ".join(details(results))
    assert "one_fact, Accuracy lower than none: orthogonality (−0.270)." in said
    assert "Support" not in said  # what is undecided is not said


def test_a_single_setting_of_each_task_is_not_named(tmp_path):
    alone = read_results(write_models(tmp_path, cases=("none",), changes={"cases": {"none": {}}}))
    unnamed = [replace(one, swept={"world.task": one.swept["world.task"]}) for one in alone.settings]
    assert headline(replace(alone, settings=unnamed)).startswith("Accuracy: one_fact 0.980")


def test_differences_from_another_task_are_not_described(results):
    other = [{**one, "reference": 0} for one in results.differences]
    said = " ".join(details(replace(results, differences=other)))
    assert "one_fact, Accuracy lower" in said
    assert "counting" not in said


def test_of_one_task_the_best_setting_is_described(tmp_path):
    run = write_models(tmp_path, tasks=("one_fact",))
    said = headline(read_results(run))
    assert said == (
        "Best of 2 settings, none, one_fact: Accuracy 0.980 [0.970, 0.990] (chance 0.470; without the question 0.610)."
    )
    assert "without" not in headline(read_results(write_models(tmp_path, "ratios", tasks=("ratio",))))


def test_forests_have_a_figure_a_score_and_task(section):
    figures = {figure.name: figure for figure in section("Scores by task").figures}
    assert set(figures) == {f"forest-{score}-{task}" for score in ("accuracy", "support_best") for task in TASKS}
    assert "none 0.980 [0.970, 0.990]; orthogonality 0.710" in figures["forest-accuracy-counting"].alt


TASKS = ("one-fact", "counting")


def test_what_is_possible_without_the_question_is_drawn_apart_from_shortcuts(results, monkeypatch):
    figures: list[MatplotlibFigure] = []
    for module in ("learning", "forest"):
        monkeypatch.setattr(f"unbraid.reports.{module}_figures.png", lambda figure: figures.append(figure) or b"")
    learning(results)
    lines = {line.get_ydata()[0]: line.get_linestyle() for line in figures[0].axes[0].lines if line.get_xdata()[1] == 1}
    assert lines == {0.47: ":", 0.2: ":", 0.61: "--"}
    assert figures[0].axes[0].texts[0].get_text() == "without the question"
    described = {figure.name: figure.alt for figure in forests(results).figures}
    assert "without the question at most 0.610" in described["forest-accuracy-counting"]
    assert "without" not in described["forest-support_best-counting"]
    across = [tuple(line.get_xdata()) for line in figures[len(TASKS)].axes[0].lines if line.get_linestyle() == ":"]
    assert (0.61, 0.61) in across


def test_where_there_is_no_room_rows_are_drawn_evenly_and_it_is_said(tmp_path, sections, monkeypatch):
    """Of twelve cases with accuracies 0.12, 0.11 … 0.01 the eight that are drawn go from the first to the last."""
    cases = [f"case-{place:02d}" for place in range(12)]
    accuracies = {case: (12 - place) / 100 for place, case in enumerate(cases)}
    monkeypatch.setattr("tests.reports.model_runs.ACCURACY", accuracies)
    usage = np.tile(np.array([[0.9, 0.1, 0.6, 0.4]]), (1, LAYERS, 1))
    run = write_models(tmp_path, cases=cases, tasks=("one_fact",), seeds=(0,), tables={"usage": usage})
    many = read_results(run)
    rows = tasks(many)[0].rows
    kept = [row.place for row in drawn(many, rows)]
    assert kept == [round(place) for place in np.linspace(0, 11, 8)]
    assert len({(row_style(row).colour, row_style(row).marker) for row in rows}) == 12
    telling = [learning(many), routes(many), chosen_heads(many)]
    for section in (*telling, attention_and_support(many)):
        assert "Drawn: 8 of 12 settings a task" in section.caption, section.heading
    for section in telling:
        assert [case for case in cases if case in section.figures[0].alt] == [cases[place] for place in kept]
    assert not [section.heading for section in sections if "Drawn" in section.caption]


def test_what_a_case_costs_is_paired_with_the_first_case_at_equal_sizes(tmp_path):
    """Of replicates 0.98 and 0.71 everywhere, the difference is −0.27 in every pair."""
    run = write_models(tmp_path, seeds=range(5))
    found = read_results(run)
    rows = differences(found, tasks(found)[1], "accuracy")
    assert [(row.name, row.setting.label) for row, _ in rows] == [("orthogonality", "orthogonality, counting")]
    assert rows[0][1].pairs == 5
    assert rows[0][1].estimate.value == pytest.approx(0.71 - 0.98)
    assert rows[0][1].verdict == "lower"
    names = [figure.name for figure in costs(found).figures]
    assert names == [f"cost-{score}-{task}" for score in ("accuracy", "support_best") for task in TASKS]


def test_learning_ends_where_the_log_does(section):
    figures = {figure.name: figure.alt for figure in section("Learning").figures}
    assert set(figures) == {f"learning-{task}" for task in TASKS}
    assert "none ends at 0.75" in figures["learning-one-fact"]


def test_a_story_is_shown_up_to_its_question_with_its_support(results):
    one = story_attention(results, results.settings[0])
    assert one is not None
    assert (one.words, one.support, one.asked, one.question) == (WORDS, SUPPORT, ASKED, "where is mary ?")
    kept = results.tables[0]["pattern.0"][0].astype(float)
    np.testing.assert_allclose(one.support_mass, kept[:, :, ASKED, :6].sum(-1))


def test_a_long_story_is_cut_after_the_last_question_there_is_room_for(results):
    cards = results.stories[0]["members"]["0"]
    asked = {**cards[0], "words": WORDS * 4, "asked": [15, 31, 47], "answers": ["a", "b", "c"], "said": ["a", "b", "c"]}
    long = {**asked, "support": [SUPPORT, [20, 21], [33]]}
    stories = [{"members": {"0": [long]}}, *results.stories[1:]]
    patterns = {"pattern.0": np.ones((1, 1, 1, 64, 64), np.float16)}
    other = replace(results, stories=stories, tables=[patterns, *results.tables[1:]])
    one = story_attention(other, results.settings[0])
    whole = story_attention(other, results.settings[0], whole=True)
    assert one is not None
    assert whole is not None
    assert (one.asked, one.answer, one.support, one.patterns.shape) == (31, "b", [20, 21], (1, 1, 32, 32))
    assert (whole.asked, whole.answer) == (47, "c")


def test_chosen_heads_are_those_that_attend_most_and_the_gallery_has_all(results, section):
    one = story_attention(results, results.settings[0])
    assert one is not None
    layer, head = np.unravel_index(one.support_mass.argmax(), one.support_mass.shape)
    alt = section("Attention of chosen heads").figures[0].alt
    assert f"none: head {layer}.{head} gives {one.support_mass.max():.2f}" in alt
    every = section("All heads")
    assert [figure.name for figure in every.figures] == [f"gallery-{task}-{row}" for task in TASKS for row in (1, 2)]
    assert f"all {LAYERS * HEADS} heads" in every.figures[0].alt
    assert every.numbers.count("<details>") == 4


def test_heads_in_numbers_are_those_of_the_tables(results):
    task = tasks(results)[0]
    described = head_table(results, task, task.rows[0])
    assert described.count("head ") >= LAYERS * HEADS
    assert f"{results.tables[0]['importance'][0, 1, 2]:.3f}" in described
    assert "support of 0.375" in described


@pytest.mark.parametrize(("tokens", "step"), [(30, 1), (31, 2), (50, 2), (51, 3), (60, 3)])
def test_the_figure_of_the_first_head_has_its_ticks(tokens, step):
    assert tick_step(tokens) == step


def test_the_figure_of_the_first_head_has_its_size(section):
    figures = section("The first head, as the source draws it").figures
    assert len(figures) == 4
    assert imread(io.BytesIO(figures[0].png)).shape[:2] == (800, 1000)
    assert "head 0, last layer" in figures[0].alt


def test_routes_are_drawn_where_tokens_are_routed(results, tmp_path):
    assert routes(results).figures == []
    usage = np.tile(np.array([[0.9, 0.1, 0.6, 0.4]]), (1, LAYERS, 1))
    routed = read_results(write_models(tmp_path, tables={"usage": usage}))
    section = routes(routed)
    assert [figure.name for figure in section.figures] == [f"routes-{task}" for task in TASKS]
    assert "none: from 0.90 to 0.10" in section.figures[0].alt


def test_attention_figures_have_a_point_a_head_of_the_last_layer_of_every_replicate(results, monkeypatch):
    """Stacks are written case by case, task by task, seed by seed: of counting, the second task, 2, 3 and 6, 7."""
    figures: list[MatplotlibFigure] = []
    monkeypatch.setattr("unbraid.reports.head_figures.png", lambda figure: figures.append(figure) or b"")
    assert [figure.name for figure in attention_and_support(results).figures] == [
        f"attention-support-{task}" for task in TASKS
    ]
    points = [line.get_xydata() for line in figures[1].axes[0].lines[:2]]
    for shown, stacks in zip(points, [(2, 3), (6, 7)], strict=True):
        tables = [results.tables[stack] for stack in stacks]
        expected = [np.concatenate([one[name][0, -1] for one in tables]) for name in ("attention_entropy", "support")]
        np.testing.assert_allclose(shown, np.stack(expected, 1))


PUBLISHED = {
    "world": {"kind": "stories", "task": "one_fact", "layout": "single", "examples": 1000},
    "model": {
        "causal": False,
        "readout": "mean",
        "positions": "sinusoidal",
        "init": "torch",
        "dropout": 0.1,
        "training": {"steps": 128, "batch": 64, "learning_rate": 3e-4, "weight_decay": 1e-2, "clip": 1.0},
    },
    "sweep": {"world.task": ["one_fact"], "seed": [0, 1]},
}
SIZES = {"model": {"d_model": 128, "heads": 8, "layers": 2, "d_ff": 256}}


def beside_the_study(folder: Path, changes: JsonDict) -> Section:
    cases = ("vanilla", "ortho_mi", "ours")
    whole = merge(merge(PUBLISHED, SIZES), changes)
    return published_accuracies(read_results(write_models(folder, cases=cases, tasks=("one_fact",), changes=whole)))


def test_the_table_of_the_study_stands_beside_a_run_of_its_experiments(tmp_path):
    section = beside_the_study(tmp_path, {})
    assert "vanilla 0.400, study 0.370; ortho_mi 0.400, study 0.375" in section.figures[0].alt
    assert "ours" not in section.figures[0].alt
    assert section.numbers.count("<tr>") == 3
    assert "last statement" not in section.caption


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"training": {"steps": 4000}}},
        {"model": {"training": {"learning_rate": 1e-3}}},
        {"model": {"dropout": 0.0}},
        {"model": {"positions": "alibi"}},
        {"model": {"init": "scaled_attention"}},
        {"model": {"d_ff": 512}},
    ],
    ids=str,
)
def test_the_table_of_the_study_is_left_out_of_a_run_that_was_trained_otherwise(tmp_path, changes):
    assert beside_the_study(tmp_path, changes).figures == []


def test_the_table_of_the_study_is_left_out_of_any_other_run(results):
    assert published_accuracies(results).figures == []


def test_a_page_of_models_has_every_section_and_no_dictionary(results, sections, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("unbraid.reports.page.draw", lambda results: sections)
    page = write_report([results.run], tmp_path / "page.html").read_text()
    headings = (
        "Scores by task",
        "Learning",
        "Attention entropy and support",
        "Attention of chosen heads",
        "All heads",
        "Training",
    )
    for heading in headings:
        assert f">{heading}</h2>" in page, heading
    assert "dictionar" not in page.split("<footer>")[0].replace("random dictionary", "")
    names = [figure.name for section in sections for figure in section.figures]
    assert len(names) == len(set(names))
    assert "loss-orthogonality" in names


def test_a_page_of_several_runs_has_a_table_of_models(results, undrawn, tmp_path: Path):
    page = write_report([results.run, results.run], tmp_path / "both.html").read_text()
    assert "best setting" in page
    assert "Accuracy" in page
