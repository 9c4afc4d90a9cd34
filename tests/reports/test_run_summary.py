"""What a run prints when it is finished: few lines, and those that decide."""

from dataclasses import replace

import pytest

from tests.reports.language_model_runs import write_language_models
from tests.reports.model_runs import write_models
from tests.reports.pipeline_runs import CASES, write_pipeline
from unbraid.reports.equality import NO_VERDICT
from unbraid.reports.run_results import read_results
from unbraid.reports.run_summary import deciding, print_summary, summary_lines, what_was_run

MANY_TASKS = ("one_fact", "counting", "two_facts", "ratio", "coreference", "path", "one_fact again")
MOST = 25
"""Lines of a finished run, of which the command itself prints the last."""


def dictionaries(make_run, tmp_path):
    return make_run(title="A title that is far too long for a line " * 4, weights=tuple(n / 100 for n in range(1, 31)))


def models(make_run, tmp_path):
    return write_models(tmp_path, cases=("none", "orthogonality", "independence"), tasks=MANY_TASKS)


def language_models(make_run, tmp_path):
    return write_language_models(tmp_path)


def pipeline(make_run, tmp_path):
    cases = {**CASES, **{f"another case with a rather long name {place}": CASES["l1"] for place in range(9)}}
    return write_pipeline(tmp_path, cases=cases)


KINDS = (dictionaries, models, language_models, pipeline)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_at_most_25_lines_are_printed_and_none_is_broken(write, width, make_run, tmp_path, monkeypatch, capsys):
    run = write(make_run, tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    print_summary(run)
    *lines, report, scores = capsys.readouterr().out.splitlines()
    assert len(lines) + 3 <= MOST
    assert max(map(len, lines)) <= width
    assert report == f"report  {run.path / 'report.html'}"
    assert scores == f"scores  unbraid show {run.path}"


def test_what_was_run_the_headline_and_the_comparisons_are_printed(make_run):
    run = make_run()
    assert summary_lines(read_results(run), 80) == [
        "A tiny run",
        "kind        dictionaries",
        "settings    2: mechanisms.sparsity.weight = 0.05 or 0.15",
        "replicates  3 (seed)",
        "world       superposition",
        "size        12 planted features, 8 dimensions",
        "dictionary  12 features, relu, 40 steps",
        "time        1 min 12 s",
        "",
        "Best of 2 settings, weight 0.05: MMCS 0.820 [0.812, 0.829] (chance 0.189;",
        "ceiling 1.000).",
        "",
        "MMCS minus weight 0.05  difference     95 % interval  pairs  verdict",
        "weight 0.15                 −0.024  [−0.030, −0.020]      3    lower",
        "",
        f"report  {run.path / 'report.html'}",
        f"scores  unbraid show {run.path}",
    ]


def test_one_setting_has_no_comparisons(make_run):
    printed = "\n".join(summary_lines(read_results(make_run(weights=(0.1,), seeds=(0,))), 80))
    assert "difference" not in printed
    assert "settings    1\n" in printed
    assert "replicates  1\n" in printed


def test_what_was_run_names_the_stages_that_a_run_has(tmp_path):
    facts = dict(what_was_run(read_results(write_pipeline(tmp_path))))
    assert facts["settings"] == "3: case = l1, topk or kmeans"
    assert facts["replicates"] == "5 (model.seed)"
    assert facts["model"] == "2 layers, 4 heads, 16 wide, 30 steps"
    assert facts["activations"] == "blocks.0.hook_resid_post, 200 stories"
    assert facts["dictionary"] == "64 features, relu or topk k 8, 40 steps"
    assert facts["baseline"] == "kmeans"
    assert "size" not in facts


def test_of_many_comparisons_the_decided_and_largest_are_printed_in_the_order_of_settings(make_run):
    results = read_results(make_run(weights=tuple(n / 100 for n in range(1, 10))))
    verdicts = ("undecided", "higher", "undecided", "lower", "higher", "lower", "undecided", "lower")
    values = (0.9, 0.1, 0.8, -0.3, 0.2, -0.4, 0.01, -0.05)
    differences = [
        {"setting": place, "reference": 0, "metric": metric, "value": value, "interval": [value, value]}
        | {"pairs": 5, "verdict": verdict}
        for metric in ("mmcs", "f1")
        for place, (value, verdict) in enumerate(zip(values, verdicts, strict=True), 1)
    ]
    chosen, others = deciding(replace(results, differences=differences))
    assert [one["setting"] for one in chosen] == [2, 4, 5, 6, 8]
    assert {one["metric"] for one in chosen} == {"mmcs"}
    assert others == 3
    chosen, _ = deciding(replace(results, differences=differences[:4]))
    assert [one["setting"] for one in chosen] == [1, 2, 3, 4]


def test_where_accuracies_differ_there_is_no_verdict(tmp_path):
    results = read_results(write_pipeline(tmp_path, accuracy={"topk": 0.7}))
    chosen, _ = deciding(results)
    assert {results.settings[one["setting"]].label: one["verdict"] for one in chosen} == {
        "topk": NO_VERDICT,
        "kmeans": "lower",
    }


def test_settings_with_references_of_their_own_name_them(tmp_path):
    printed = "\n".join(summary_lines(read_results(write_models(tmp_path)), 120))
    assert "orthogonality, one_fact minus none, one_fact" in printed
    assert "orthogonality, counting minus none, counting" in printed
