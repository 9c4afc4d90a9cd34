"""Damage to any file of a run, of the cache, of shards or of a ledger is noticed by whoever reads it.

For every command one of these must hold:
    refused    exit 2, one line on standard error that names the file
    mended     exit 0, standard error says which stage, checkpoint or log was passed over, the results are the same;
               a finished run without checksums looks like one that was killed before its end, and is made again
    untouched  exit 0, output and results are what they are without the damage: the file does not matter here
    listed     `unbraid list` says that the run is damaged
"""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.storage.conftest import quick_runs
from tests.storage.scenarios import Damage, Ended, Scenario, command, copy, random_damage

pytestmark = pytest.mark.usefixtures("quick")
SEED = 17
MENDED = ("set aside", "passed over", "goes on from step", "is made again", "captured again")
READING = ("list", "show", "show --json", "resume", "load_stack", "load_models", "diagnose")
"""Commands that write nothing into a finished run."""


@pytest.fixture(scope="session")
def whole(scenarios, tmp_path_factory) -> dict[str, dict[str, Ended]]:
    """What every command says without any damage."""
    outcomes: dict[str, dict[str, Ended]] = {}
    with quick_runs():
        for name, scenario in scenarios.items():
            folder = copy(scenario, tmp_path_factory.mktemp("whole"))
            outcomes[name] = {words: command(words, folder) for words in scenario.commands}
            for words, ended in outcomes[name].items():
                assert ended.code == 0, f"{name}, {words}: {ended.err}"
    return outcomes


def verdict(each: str, ended: Ended, expected: Ended, damage: Damage) -> str:
    """Which of the accepted outcomes this is; an AssertionError where it is none."""
    if ended.code == 2:
        assert ended.err.count("\n") == 1, ended.err
        assert ended.out == "", ended.out
        assert names_file(ended.err, damage.path), ended.err
        return "refused"
    assert ended.code == 0, ended
    if each == "list" and ended.out != expected.out:
        assert "damaged" in ended.out, ended.out
        return "listed"
    assert (ended.out, ended.left) == (expected.out, expected.left), ended
    if ended.err == expected.err:
        return "untouched"
    assert any(word in ended.err for word in MENDED), ended.err
    return "mended"


def names_file(sentence: str, path: str) -> bool:
    """A list of checksums that belongs elsewhere is told by the files that it lists."""
    folder, _, name = path.rpartition("/")
    return name in sentence or (name == "checksums.json" and folder in sentence)


OF_A_RUN = ("show", "show --json", "report", "load_stack", "load_models")
"""Commands that read no other file than those of the run."""


def likely(scenario: Scenario, damage: Damage) -> list[str]:
    """Those of the commands that may read the damaged file."""
    if damage.path.startswith("runs/run/"):
        return [each for each in scenario.commands if each not in ("run again", "diagnose")]
    return [each for each in scenario.commands if each not in OF_A_RUN]


def check(scenario: Scenario, damage: Damage, commands: Sequence[str], whole: dict[str, Ended], folder) -> Counter:
    """Damage a copy of the scenario, and give these commands."""
    folder = copy(scenario, folder)
    damage.inflict(folder)
    outcomes: Counter = Counter()
    for each in commands:
        try:
            outcome = verdict(each, command(each, folder), whole[each], damage)
            outcomes[outcome] += 1
            if scenario.finished and each in READING and outcome != "mended":
                assert damage.is_there(folder), "the damaged file was overwritten"
        except AssertionError as problem:
            raise AssertionError(f"{scenario.name}, {damage}, `{each}`: {problem}") from None
    return outcomes


def damages(scenarios: dict[str, Scenario], amount: int, start: int) -> list[tuple[Scenario, Damage]]:
    """So many, over all scenarios in turn."""
    names = sorted(scenarios)
    chosen = [
        (scenarios[names[number % len(names)]], random.Random(SEED + number)) for number in range(start, start + amount)
    ]
    return [(scenario, random_damage(scenario, dice)) for scenario, dice in chosen]


@pytest.mark.parametrize("number", range(60))
def test_a_random_damage_is_never_taken_silently(number, scenarios, whole, tmp_path):
    [(scenario, damage)] = damages(scenarios, 1, number)
    check(scenario, damage, likely(scenario, damage), whole[scenario.name], tmp_path)


@pytest.mark.slow
def test_three_hundred_random_damages_are_never_taken_silently(scenarios, whole, tmp_path):
    outcomes, failed = Counter(), []
    for number, (scenario, damage) in enumerate(damages(scenarios, 300, 1000)):
        try:
            outcomes += check(scenario, damage, scenario.commands, whole[scenario.name], tmp_path / str(number))
        except AssertionError as problem:
            failed.append(str(problem))
    print(dict(outcomes))
    assert not failed, f"{len(failed)} of 300:\n" + "\n".join(failed)
    assert set(outcomes) >= {"refused", "mended", "untouched", "listed"}
