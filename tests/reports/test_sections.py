"""A report has the sections that its run names; whoever adds a kind needs no change in reports."""

from dataclasses import replace

import pytest

from tests.reports.language_model_runs import write_language_models
from tests.reports.model_runs import write_models
from tests.reports.pipeline_runs import write_pipeline
from tests.reports.run_files import start_run
from unbraid.errors import UserError
from unbraid.pipeline.kinds import KINDS
from unbraid.reports.page import write_report
from unbraid.reports.run_results import read_results
from unbraid.reports.sections import SECTIONS, draw
from unbraid.reports.summaries import SUMMARIES, summary_of
from unbraid.reports.tables import print_run
from unbraid.storage.files import write_arrays, write_json


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_names_one_summary_and_known_sections_once(kind):
    names = KINDS[kind].sections
    assert len(set(names)) == len(names)
    assert sum(name in SUMMARIES for name in names) <= 1  # a kind that names none gets the generic one
    assert [name for name in names if name not in SECTIONS and name not in SUMMARIES] == []


def test_every_section_and_summary_is_named_by_a_kind():
    named = {name for kind in KINDS.values() for name in kind.sections}
    assert SECTIONS.keys() - named == set()
    assert SUMMARIES.keys() - named <= {"summary"}  # for kinds that have no words of their own


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_without_its_data_is_empty(tmp_path, name):
    """Nothing but one score that no section knows."""
    run = start_run(tmp_path / "bare", "dictionaries", "novel", {"title": "Bare", "sweep": {"seed": [0]}})
    score = {"value": 0.5, "interval": None, "chance": None, "ceiling": None, "members": [0.5]}
    members = [{"stack": 0, "member": 0, "seed": 0, "replicate": "0/0"}]
    setting = {"label": "all", "setting": {}, "members": members, "metrics": {"novel": score}}
    write_json(run.path / "scores.json", {"settings": [setting], "differences": []})
    write_arrays(run.stack(0) / "tables.safetensors", {})
    section = SECTIONS[name](read_results(run))
    always = ("all_scores", "score_figures")
    assert bool(section.figures or section.numbers) == (name in always)


def test_sections_come_in_the_order_that_the_run_names(make_run):
    results = read_results(make_run())
    facts = {**results.facts, "sections": ["firing_rates", "summary", "differences", "training_curves", "timelines"]}
    drawn = draw(replace(results, facts=facts))
    assert [section.heading for section in drawn] == ["Firing rates", "Differences from weight 0.05", "Training"]


def test_an_unknown_section_is_refused_with_what_is_accepted(make_run):
    results = read_results(make_run())
    with pytest.raises(UserError, match=r"names the section 'firing_rate'.*firing_rates"):
        draw(replace(results, facts={**results.facts, "sections": ["firing_rate"]}))


def test_a_kind_that_reports_know_nothing_of_has_a_headline_scores_and_differences(make_run, undrawn, tmp_path, capsys):
    run = make_run()
    facts = {**run.facts(), "kind": "novel", "leading": "f1", "sections": ["all_scores", "differences"]}
    results = replace(read_results(run), facts=facts)
    words = summary_of(facts)
    assert words.headline(results) == (
        "Best of 2 settings, weight 0.05: F1 0.492 [0.488, 0.497] (chance 0.032; ceiling 1.000)."
    )
    assert words.what_was_run(results.config) == ["Compared: mechanisms.sparsity.weight = 0.05 or 0.15."]
    assert "differ in seed (3 initializations). All share one world" in words.error_bar(results)
    assert words.references(results).startswith("Chance of F1: random dictionaries of the same size")
    assert words.details(results) == []
    assert [section.heading for section in draw(results)] == ["All scores", "Differences from weight 0.05"]


@pytest.mark.parametrize("write", [write_models, write_pipeline, write_language_models])
def test_runs_of_different_kinds_share_a_page_with_a_table_for_each_leading_metric(
    write, make_run, undrawn, tmp_path, capsys
):
    runs = [make_run(), write(tmp_path / "other")]
    page = write_report(runs, tmp_path / "page.html").read_text()
    assert page.count("The runs and their best settings") == 2
    for run in runs:
        print_run(run)
        assert run.name in capsys.readouterr().out
