"""Small runs of every kind give the scores that they gave at commit 652e4c6, before the code was rebuilt.

Other processors round otherwise: numbers are compared at 1e-5. `against_old.sh` compares old and new code on one
machine to the last bit.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.regression.compare import differences
from tests.regression.make import REAL_DATA, ROOT, configs_of, make, needs_real_data

HERE = Path(__file__).parent
TOLERANCE = 1e-5
QUICK = ("baselines", "constraints", "mechanisms", "pipeline")
SLOW = sorted({path.stem for path in configs_of(HERE / "configs")} - set(QUICK))
SCORES = json.loads((HERE / "scores.json").read_text())


def compare(names: Sequence[str]) -> dict[str, list[str]]:
    """What differs from the committed scores, by configuration."""
    scores = make(configs_of(HERE / "configs", names), ROOT, threads=1)
    sentences = {name: list(differences(SCORES[name], scores[name], TOLERANCE)) for name in names}
    return {name: differing for name, differing in sentences.items() if differing}


def test_quick_runs_score_as_before():
    assert compare(QUICK) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_slow_runs_score_as_before(name: str):
    if needs_real_data(HERE / "configs" / f"{name}.toml") and not REAL_DATA.exists():
        pytest.skip("needs `make real-data`")
    assert compare([name]) == {}


def renamed(old: dict[str, Any]) -> dict[str, Any]:
    """The old scores with their metrics under the new names, as a new run would write them."""
    names = json.loads((HERE / "renamed.json").read_text())["metrics"]
    new = json.loads(json.dumps(old))
    for setting in new["scores"]["settings"]:
        setting["metrics"] = {names.get(name, name): value for name, value in setting["metrics"].items()}
    for difference in new["scores"]["differences"]:
        difference["metric"] = names.get(difference["metric"], difference["metric"])
    return new


def test_a_metric_that_is_renamed_or_missing_is_noticed():
    old = SCORES["constraints"]
    assert list(differences(old, renamed(old))) == []
    assert "scores settings 0 metrics attention_entropy is only in the old" in list(differences(old, old))


def test_every_configuration_has_its_scores():
    assert sorted(SCORES) == sorted([*QUICK, *SLOW])


def test_a_number_that_moved_is_told_apart_from_one_that_was_rounded():
    old = SCORES["constraints"]
    new = renamed(old)
    entropy = new["scores"]["settings"][1]["metrics"]["attention_entropy"]
    entropy["value"] *= 1 + 1e-6
    assert list(differences(old, new, TOLERANCE)) == []
    assert len(list(differences(old, new))) == 1
    entropy["value"] *= 1 + 1e-4
    (sentence,) = differences(old, new, TOLERANCE)
    assert sentence.startswith("scores settings 1 metrics attention_entropy value: ")


def test_weights_are_compared_to_the_last_bit_only():
    old = SCORES["constraints"]
    new = renamed(old)
    first = new["weights"][0]
    first[next(iter(first))] = "0"
    assert list(differences(old, new, TOLERANCE)) == []
    assert list(differences(old, new)) != []
