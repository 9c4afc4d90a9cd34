"""What a run will take: stages and bytes as it then has them, times laid out over machines."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pipeline.running import Recorded, run_config
from tests.pipeline.small_stages import Small
from tests.pipeline.test_join import CONFIG
from unbraid.cli import app
from unbraid.config import JsonDict, to_toml
from unbraid.errors import UserError
from unbraid.pipeline.executors import Needs
from unbraid.pipeline.expand import expand
from unbraid.pipeline.forecast import corrected_seconds, forecast, makespan
from unbraid.pipeline.stage import Stage
from unbraid.progress import PRIOR
from unbraid.storage.runs import Run

PIPELINE: JsonDict = {
    "kind": "pipeline",
    "world": {"kind": "stories", "rounds": 2},
    "model": {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "training": {"steps": 3, "batch": 8}},
    "activations": {"stories": 300},
    "dictionary": {"d_sae": 128},
    "training": {"steps": 3, "batch": 64},
    "evaluation": {"samples": 200, "pairs": 0},
}


def stages(*needs: tuple[Stage, ...]) -> list[Stage]:
    """Stages by number, each with the stages that it needs."""
    return [Small(f"stage {number}", number, "", each) for number, each in enumerate(needs)]


def span(made: list[Stage], seconds: list[float], machines: int, threads: int, taken: list[int] | None = None) -> float:
    named = {stage.key: float(each) for stage, each in zip(made, seconds, strict=True)}
    needs = {stage.key: Needs(threads=each) for stage, each in zip(made, taken or [1] * len(made), strict=True)}
    return makespan(made, named, needs, machines, threads)


def test_stages_beside_each_other_take_the_longest():
    alone = stages((), (), (), ())
    assert span(alone, [1, 2, 3, 4], 1, 1) == 10
    assert span(alone, [1, 2, 3, 4], 4, 1) == 4
    assert span(alone, [1, 2, 3, 4], 1, 2) == 6  # 1 and 3, 2 and 4
    assert span([], [], 3, 2) == 0


def test_a_stage_waits_for_its_inputs_and_for_threads():
    (first,) = stages(())
    after = [first, Small("b", 1, "", (first,)), Small("c", 2, "", (first,))]
    assert span(after, [5, 2, 2], 8, 1) == 7
    assert span(after, [5, 2, 2], 1, 1) == 9
    wide = stages((), ())
    assert span(wide, [3, 3], 1, 2, [2, 2]) == 6, "each takes the whole machine"
    assert span(wide, [3, 3], 2, 2, [2, 2]) == 3
    assert span(wide, [3, 3], 2, 1, [8, 8]) == 3, "no machine has so many threads: it takes all of one"


def test_guesses_are_corrected_by_what_their_kind_took():
    """By hand: 100 s were guessed and 300 taken, beside 5 s of guesses at the rate of all."""
    (one,) = stages(())
    guessed = one.task().seconds
    assert corrected_seconds([one], {}) == {one.key: guessed}
    overall = (300 + PRIOR) / (100 + PRIOR)
    expected = guessed * (300 + PRIOR * overall) / (100 + PRIOR)
    assert corrected_seconds([one], {"small": (4, 300.0, 100.0)}) == {one.key: pytest.approx(expected)}
    assert corrected_seconds([one], {"other": (4, 300.0, 100.0)}) == {one.key: pytest.approx(guessed * overall)}


def test_before_a_run_its_stages_and_bytes_and_after_it_none(tmp_path: Path):
    """Bytes are weights and shards, in the cache and in the run, and checkpoints; the rest is small beside them."""
    plan = expand(PIPELINE, "here")
    before, recorded = forecast(plan, tmp_path / "cache", 2), Recorded()
    run = run_config(tmp_path, "run", PIPELINE, recorded)
    assert {kind: (recorded.kinds.count(kind), 0) for kind in recorded.kinds} == before.stages
    assert (before.members, before.stacks) == (len(plan.members), len(run.stacks()))
    assert before.seconds[2] <= before.seconds[1]
    after = forecast(plan, tmp_path / "cache", 2)
    assert {kind: (count, count) for kind, (count, _) in before.stages.items()} == after.stages
    assert after.seconds == {1: 0, 2: 0}
    assert after.measured.keys() == before.stages.keys()
    weights, shards = tmp_path.rglob("weights.safetensors"), tmp_path.rglob("shards/*.safetensors")
    checkpoints = sum(2 * 3 * path.stat().st_size for path in (tmp_path / "cache").rglob("weights.safetensors"))
    expected = sum(path.stat().st_size for path in (*weights, *shards)) + checkpoints
    assert before.disk == pytest.approx(expected, rel=0.15)


def test_the_command_prints_it_and_what_it_rests_on(tmp_path: Path):
    (tmp_path / "a.toml").write_text(to_toml(CONFIG))
    words = ["plan", str(tmp_path / "a.toml"), "--runs", str(tmp_path), "--on", "3"]
    printed = CliRunner().invoke(app, words).stdout
    assert "members" in printed
    assert "8 of 2 settings, in 8 stacks" in printed
    assert "time on 3 such workers" in printed
    assert "no stage of these kinds in the cache was timed" in printed
    assert not list(tmp_path.glob("cache"))
    run_config(tmp_path, "run", CONFIG)
    printed = CliRunner().invoke(app, [*words, "training.steps=5"]).stdout
    assert "8 stages of train-stack took" in printed
    card = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert card["stages"]["train-stack"] == {"all": 8, "made": 8}
    assert card["seconds"] == {"1": 0.0, "3": 0.0}
    with pytest.raises(UserError, match="--on 0 is no number of machines; accepted: 1 or more"):
        forecast(expand(CONFIG, "here"), tmp_path / "cache", 0)
    assert Run(tmp_path / "run").is_finished
