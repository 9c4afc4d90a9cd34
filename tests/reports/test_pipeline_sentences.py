"""What is said of a pipeline follows from its configuration and scores."""

import pytest

from tests.reports.model_runs import write_models
from tests.reports.pipeline_runs import CASES, write_pipeline
from unbraid.reports.equal_accuracy import equal_accuracy
from unbraid.reports.equality import EQUAL, OPEN, UNEQUAL, UNKNOWN, equality
from unbraid.reports.factors import factor_scores, group_of, members
from unbraid.reports.matching_words import CONCEPT_RULES, CONCEPTS, FEATURE_RULES, FEATURES
from unbraid.reports.pipeline_sentences import details, error_bar, headline, reached, what_was_run
from unbraid.reports.run_results import RunResults, Score, Setting, read_results
from unbraid.reports.tables import print_run, print_runs
from unbraid.reports.words import describe_metric, in_order

MODELS = {"plain": {}, "one head": {"model": {"heads": 1}}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return read_results(write_pipeline(tmp_path_factory.mktemp("lines")))


def test_a_pipeline_is_ranked_by_phi_and_models_by_accuracy(results, tmp_path):
    models = read_results(write_models(tmp_path))
    assert (results.leading, models.leading) == ("phi", "accuracy")
    assert [setting.label for setting in results.ranked()] == ["topk", "l1", "kmeans"]


def test_the_probe_has_no_chance(results):
    """A random dictionary of the same activations has the same probe: it would say nothing."""
    assert results.settings[0].scores["probe"].chance is None
    assert results.settings[0].scores["phi"].chance == 0.1


def test_what_was_run_names_models_site_dictionaries_and_baselines(results):
    said = " ".join(what_was_run(results.config))
    assert said.startswith("5 models of 2 layers with 4 heads (softmax, causal), d_model 16")
    assert "World: stories, one_fact (" in said
    assert "Captured: blocks.0.hook_resid_post at every token of 200 stories that no model was trained on" in said
    assert "Learned from these activations (3 settings × 5 replicates): 10 dictionaries of 64 features" in said
    assert "(relu or topk k 8), trained for 40 steps of 32 tokens" in said
    assert "and 5 baselines (kmeans n_components 32); scored on 500 tokens" in said
    assert "Replicates are models trained from other seeds." in said
    assert "Mechanisms: sparsity (weight 1, form per_sample)." in said
    assert said.endswith("Compared: case = l1, topk or kmeans.")


def test_where_cases_vary_the_model_there_are_more_models(tmp_path):
    found = read_results(write_pipeline(tmp_path, cases=MODELS, accuracy={"one head": 0.6}))
    said = " ".join(what_was_run(found.config))
    assert said.startswith("10 models of 2 layers with 4 or 1 heads")
    assert "10 dictionaries of 64 features (relu)" in said
    assert "baseline" not in said
    assert reached(found) == [
        "Accuracy of the models (chance 0.590): plain 0.800 [0.790, 0.810]; one head 0.600 [0.590, 0.610]."
    ]
    assert "may differ in accuracy" in " ".join(details(found))


def test_of_many_settings_the_least_and_most_accurate_models_are_described(tmp_path):
    cases = {f"case {place}": {} for place in range(7)}
    found = read_results(write_pipeline(tmp_path, cases=cases, seeds=[0], accuracy={"case 2": 0.9, "case 5": 0.6}))
    assert reached(found)[0].endswith(": from 0.600 (case 5) to 0.900 (case 2).")


def test_the_headline_is_the_best_phi_beside_a_random_dictionary_and_the_probe(results):
    assert headline(results) == (
        "Best of 3 settings, topk: φ 0.600 [0.590, 0.610] (random dictionary 0.100; linear probe 0.900)."
    )
    said = " ".join(details(results))
    assert "Best-recovered factor: place (φ 0.900; linear probe 0.975)." in said
    assert "Worst-recovered factor: place of … (φ 0.300; linear probe 0.825)." in said
    assert "Concepts: 50 % have a feature of their own, 25 % are missed." in said
    assert "may differ in accuracy" not in said
    assert reached(results) == ["Accuracy of the models: 0.800 [0.790, 0.810] (chance 0.590)."]


def test_replicates_are_models(results, tmp_path):
    assert "over 5 replicates, which differ in model.seed (5 trained models)." in error_bar(results)
    alone = read_results(write_pipeline(tmp_path, seeds=[0]))
    assert "Sweep model.seed for more." in error_bar(alone)


def test_factors_that_track_one_thing_each_stand_together(results):
    """place of mary is 0.2 below the mean and place of john 0.4: together 0.3."""
    assert [group_of(name) for name in ("person", "place of mary", "place")] == ["person", "place of …", "place"]
    assert members(results)["place of …"] == ["place of mary", "place of john"]
    found = factor_scores(results.settings[0])
    assert list(found) == ["person", "place", "place of …"]
    together = found["place of …"]
    assert together.value == pytest.approx(0.5 - 0.3)
    assert (together.chance, together.ceiling) == (pytest.approx(0.1 - 0.03), pytest.approx(0.9 - 0.075))
    assert together.members == pytest.approx([0.19, 0.195, 0.2, 0.205, 0.21])
    assert together.interval is not None
    assert 0.19 <= together.interval[0] < 0.2 < together.interval[1] <= 0.21


def test_a_replicate_that_lacks_a_factor_does_not_spoil_the_mean():
    lacking = {"phi_place_of_mary": Score(0.2, None, None, 0.5, [0.2, None])}
    whole = {"phi_place_of_john": Score(0.4, None, None, 0.7, [0.4, 0.4])}
    found = factor_scores(Setting(0, "", [], [], {**lacking, **whole}))["place of …"]
    assert found.members == pytest.approx([0.3, 0.4])
    assert (found.value, found.chance, found.ceiling) == (pytest.approx(0.35), None, pytest.approx(0.6))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ([-0.02, 0.02], EQUAL),
        ([0.001, 0.019], EQUAL),
        ([-0.021, 0.0], OPEN),
        ([0.01, 0.03], UNEQUAL),
        ([-0.3, -0.2], UNEQUAL),
        (None, UNKNOWN),
    ],
)
def test_accuracy_is_equal_where_the_whole_interval_is_within_the_margin(interval, expected):
    assert equality({"interval": interval}) == expected
    assert equality(None) == UNKNOWN


def test_verdicts_are_given_at_equal_accuracy_alone(results, tmp_path):
    """Against l1, topk recovers 0.1 more in every pair; where its models answer worse there is no verdict."""
    equal = equal_accuracy(results).numbers
    assert "equal: 0.000 [0.000,\N{NO-BREAK SPACE}0.000]" in equal
    assert "▲ higher: +0.100 [0.100,\N{NO-BREAK SPACE}0.100]" in equal
    assert "▼ lower: −0.200" in equal
    assert equal.count("the same") == 4  # the probe, and the concepts recovered, of both settings
    unequal = equal_accuracy(read_results(write_pipeline(tmp_path, accuracy={"topk": 0.7}))).numbers
    row = unequal.partition("topk")[2].partition("</tr>")[0]
    assert "differs: −0.100" in row
    assert "no verdict: +0.100" in row
    assert "higher" not in row
    assert "▼ lower: −0.200" in unequal.partition("kmeans")[2]


def test_show_gives_verdicts_at_equal_accuracy_alone(tmp_path, capsys, monkeypatch):
    """As the page does: topk recovers 0.1 more, by models that answer worse; kmeans 0.2 less, by equal ones."""
    monkeypatch.setenv("COLUMNS", "140")
    print_run(write_pipeline(tmp_path, accuracy={"topk": 0.7}))
    out = capsys.readouterr().out
    lines = [line.split() for line in out.partition("minus")[2].splitlines()]
    phi = lines[lines.index(["φ"]) + 1 :]
    assert phi[0][:2] + phi[0][-2:] == ["topk", "+0.100", "no", "verdict"]
    assert phi[1][:2] + phi[1][-1:] == ["kmeans", "−0.200", "lower"]
    accuracy = lines[lines.index(["Accuracy"]) + 1 :]
    assert accuracy[0][:2] + accuracy[0][-1:] == ["topk", "−0.100", "lower"]
    probe = lines[lines.index(["Probe"]) + 1 :]
    assert probe[0][:2] + probe[0][-2:] == ["topk", "0.000", "the", "same"]
    assert "accuracies are not known to be equal" in out
    print_run(write_pipeline(tmp_path, "equal"))
    assert "no verdict" not in capsys.readouterr().out.lower()


def test_of_few_replicates_nothing_is_called(tmp_path):
    """From three pairs a difference is undecided, and from one it is not known whether accuracies are equal."""
    few = equal_accuracy(read_results(write_pipeline(tmp_path, "few", seeds=range(3)))).numbers
    assert "○ undecided: +0.100" in few.partition("<table>")[2]
    assert "higher" not in few.partition("<table>")[2]
    alone = equal_accuracy(read_results(write_pipeline(tmp_path, "alone", seeds=[0]))).numbers
    assert alone.count("not known: 0.000") == 2
    assert "no verdict: +0.100" in alone
    single = read_results(write_pipeline(tmp_path, "single", cases={"l1": CASES["l1"]}))
    assert equal_accuracy(single).numbers == ""


def test_every_verdict_has_words_and_a_rule():
    assert set(CONCEPT_RULES) == {*CONCEPTS, "unjudged"}
    assert set(FEATURE_RULES) == set(FEATURES)


def test_scores_of_factors_have_labels_and_stand_with_that_of_all():
    assert describe_metric("phi_place_of_mary").label == "φ of place of mary"
    assert describe_metric("phi_share").label == "φ, chance to probe"
    shown = in_order(["mig", "accuracy", "phi_person", "probe", "phi_share", "phi", "factors_split"])
    assert shown == ["phi", "phi_share", "phi_person", "probe", "factors_split", "mig", "accuracy"]


def test_show_prints_the_leading_scores_of_a_pipeline(results, capsys):
    print_run(results.run)
    described = capsys.readouterr().out
    assert [name in described for name in ("φ", "Probe", "Concepts recovered", "Accuracy", "L0")] == [True] * 5
    assert "Concepts split" not in described
    assert "φ of person" not in described
    assert "--json" in described
    print_runs([results.run], results.run.path.parent)
    assert "φ 0.600 (0.100)" in capsys.readouterr().out


def test_models_of_another_kind_are_named():
    world = {"kind": "stories", "task": "one_fact"}
    plain = {"kind": "transformer", "d_model": 8, "heads": 2, "layers": 1, "d_ff": 8}
    cases = {"plain": {}, "gauge": {"model": {"kind": "gauge", "irreps": "2x0e + 1x1e", "layers": 1}}}
    config = {"world": world, "model": plain, "activations": {"site": "s", "stories": 50}, "cases": cases}
    described = " ".join(what_was_run(config))
    assert "Gauge models (1 of 2 settings)" in described
    assert "Gauge models" not in " ".join(what_was_run({**config, "cases": {"plain": {}}}))
