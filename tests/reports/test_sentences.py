"""What is said in words follows from what is on disk."""

import pytest

from unbraid.reports.dictionary_sentences import details, error_bar, headline, what_was_run
from unbraid.reports.phrases import setting_phrase
from unbraid.reports.run_results import read_results
from unbraid.storage.files import write_json


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seeds": (0,)}, "Each setting was trained once"),
        ({}, "over 3 replicates, which differ in seed (3 initializations). All share one planted world"),
        (
            {"seeds": (0,), "world_seeds": (0, 1)},
            "over 2 replicates, which differ in world.seed (2 planted worlds with their data).",
        ),
        (
            {"world_seeds": (0, 1)},
            "over 6 replicates, which differ in world.seed (2 planted worlds with their data) and seed (3",
        ),
    ],
    ids=str,
)
def test_the_error_bar_says_what_it_covers(make_run, changes, expected):
    assert expected in error_bar(read_results(make_run(**changes)))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"value": 0.8, "interval": [0.7, 0.9], "chance": 0.2, "ceiling": 1.0}, "This is 75 % of the way"),
        ({"value": 0.21, "interval": [0.19, 0.23], "chance": 0.2, "ceiling": 1.0}, "no better than chance"),
        ({"value": 0.3, "interval": None, "chance": 0.1, "ceiling": 0.25}, "above the ceiling"),
    ],
    ids=["between", "chance", "above"],
)
def test_recovery_is_placed_between_chance_and_ceiling(make_run, scores, expected):
    run = make_run(weights=(0.1,))
    written = run.scores()
    written["settings"][0]["metrics"]["mmcs"] |= scores
    write_json(run.path / "scores.json", written)
    assert expected in " ".join(details(read_results(run)))


def test_swept_settings_are_said_with_all_their_values():
    config = {
        "dictionary": {"d_sae": 64, "activation": {"kind": "relu"}},
        "sweep": {"dictionary": {"d_sae": [64, 128, 256]}, "dictionary.activation": [{"kind": "topk", "k": 8}]},
    }
    assert setting_phrase(config, "dictionary.d_sae") == "64, 128 or 256"
    assert setting_phrase(config, "dictionary.activation") == "topk k 8"
    assert setting_phrase(config, "training.steps") == "–"


def test_the_headline_is_the_best_setting_with_interval_chance_and_ceiling(make_run):
    assert headline(read_results(make_run())) == (
        "Best of 2 settings, weight 0.05: MMCS 0.820 [0.812, 0.829] (chance 0.189; ceiling 1.000)."
    )
    alone = read_results(make_run(name="alone", weights=(0.1,), seeds=(0,)))
    assert headline(alone) == "MMCS 0.812 (chance 0.189; ceiling 1.000)."


def test_what_was_run_of_a_single_dictionary_and_an_unknown_world():
    config = {"world": {"kind": "letters", "length": 3}, "dictionary": {"d_sae": 8}, "mechanisms": {}}
    sentences = what_was_run(config)
    assert sentences[0].startswith("1 dictionary of 8 features")
    assert sentences[1:] == ["World: letters length 3."]


def test_settings_that_differ_between_cases_are_said_with_all_their_values():
    config = {
        "dictionary": {"d_sae": 64, "activation": {"kind": "relu"}},
        "world": {"kind": "superposition"},
        "cases": {
            "plain": {"mechanisms": {"sparsity": {"weight": 0.1}}},
            "heavy": {"mechanisms": {"sparsity": {"weight": 0.2}}},
            "few": {"dictionary": {"activation": {"kind": "topk", "k": 8}}},
        },
        "sweep": {"seed": [0, 1]},
    }
    assert setting_phrase(config, "dictionary.activation") == "relu or topk k 8"
    sentences = " ".join(what_was_run(config))
    assert "6 dictionaries (3 settings × 2 replicates)" in sentences
    assert "sparsity (weight 0.1 or 0.2, form per_sample)" in sentences
    assert "Compared: case = plain, heavy or few." in sentences
