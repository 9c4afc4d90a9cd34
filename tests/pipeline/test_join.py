"""Runs that were cut by seed or by setting are one again: the same numbers as if they had never been cut."""

import json
from pathlib import Path

import pytest

import unbraid as ub
from tests.pipeline.running import create, finish, run_config
from unbraid.config import JsonDict, merge
from unbraid.errors import UserError
from unbraid.pipeline.join import join
from unbraid.pipeline.serve import Worker
from unbraid.storage.files import read_sealed, write_json, write_sealed
from unbraid.storage.runs import Run

CONFIG: JsonDict = {
    "world": {"dimensions": 6, "n_features": 9, "active": 2.0},
    "dictionary": {"d_sae": 8},
    "training": {"steps": 4, "batch": 16},
    "evaluation": {"samples": 64},
    "sweep": {"dictionary.d_sae": [6, 8], "world.seed": [0, 1, 2, 3]},
}
"""Each world is a stack of its own, so that cutting changes nothing at all."""
CASES: JsonDict = {
    "cases": {"plain": {}, "l1": {"mechanisms": {"sparsity": {"weight": 0.1}}}},
    "sweep": {"world.seed": [0, 1]},
}


def changed(changes: JsonDict) -> JsonDict:
    return merge(CONFIG, changes)


def swept(path: str, values: list) -> JsonDict:
    return changed({"sweep": {path: values}})


def write_line(run: Run) -> Path:
    path = run.path / "report.html"
    path.write_text("a report\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    """Finished runs by the configuration they have, all in one folder, each made once."""
    parent, runs = tmp_path_factory.mktemp("joined"), {}

    def make(config: JsonDict) -> Run:
        key = json.dumps(config)
        if key not in runs:
            runs[key] = run_config(parent, f"run-{len(runs)}", config)
        return runs[key]

    return make


@pytest.fixture
def whole(made) -> Run:
    return made(CONFIG)


def check_same_scores(joined: Run, whole: Run) -> None:
    """Every value, interval, chance and difference; a joined run's stacks have other numbers."""
    ours, theirs = joined.scores(), whole.scores()
    assert ours["differences"] == theirs["differences"]
    for one, other in zip(ours["settings"], theirs["settings"], strict=True):
        assert one["setting"] == other["setting"]
        assert [member["replicate"] for member in one["members"]] == [m["replicate"] for m in other["members"]]
        for each in (one, other):
            each["metrics"].pop("seconds", None)
        assert one["metrics"] == other["metrics"]


def test_cut_by_seed(made, whole: Run):
    parts = [made(swept("world.seed", [0, 1])), made(swept("world.seed", [2, 3]))]
    joined = join(parts, "by-seed", write_line)
    check_same_scores(joined, whole)
    (difference,) = [entry for entry in joined.scores()["differences"] if entry["metric"] == "mmcs"]
    assert difference["pairs"] == 4
    assert len(joined.config()["sweep"]["world.seed"]) == 4


def test_cut_by_setting_what_stacks_have_together_is_made_anew(made, whole: Run):
    """The smaller dictionaries have no larger ones in their part, and have in the joined run."""
    parts = [made(swept("dictionary.d_sae", [6])), made(swept("dictionary.d_sae", [8]))]
    assert "mmcs_larger" not in parts[0].scores()["settings"][0]["metrics"]
    joined = join(parts, "by-setting", write_line)
    assert "mmcs_larger" in joined.scores()["settings"][0]["metrics"]
    check_same_scores(joined, whole)


def test_cut_by_case(made):
    plain, l1 = ({"cases": {name: CASES["cases"][name]}, "sweep": CASES["sweep"]} for name in ("plain", "l1"))
    base = {name: value for name, value in CONFIG.items() if name != "sweep"}
    joined = join([made({**base, **plain}), made({**base, **l1})], "by-case", write_line)
    check_same_scores(joined, made({**base, **CASES}))


def test_seeds_that_were_not_swept(made):
    base = {**CONFIG, "sweep": {"dictionary.d_sae": [6, 8]}}
    parts = [made(merge(base, {"world": {"seed": seed}})) for seed in (0, 1)]
    joined = join(parts, "unswept", write_line)
    check_same_scores(joined, made(swept("world.seed", [0, 1])))


def test_a_joined_run_is_a_run(made, whole: Run):
    """It is found, verified and read as others are; the Try page finds its members; it can be joined with more."""
    first = join([made(swept("world.seed", [0])), made(swept("world.seed", [1]))], "first", write_line)
    joined = join([first, made(swept("world.seed", [2, 3]))], "second", write_line)
    opened = Run.open(joined.path)
    opened.verify()
    assert (opened.is_finished, opened.status()["state"]) == (True, "finished")
    assert opened.facts()["joined"] == [str(first.path), str(made(swept("world.seed", [2, 3])).path)]
    check_same_scores(opened, whole)
    results = ub.load_run(joined.path)
    assert len(results.members) == 8
    assert len(results.features) == len(ub.load_run(whole.path).features)
    stacks = Worker(joined.path).plan.stacks
    cards = [[member.card() for member in stack.members] for stack in stacks]
    assert cards == [json.loads((folder / "members.json").read_text()) for folder in joined.stacks()]
    assert not [path for path in joined.path.parent.iterdir() if path.name.endswith(".part")]


def test_a_joined_run_that_lost_its_checksums_is_not_trained_again(made):
    joined = join([made(swept("world.seed", [0])), made(swept("world.seed", [1]))], "lost", write_line)
    (joined.path / "checksums.json").unlink()
    with pytest.raises(UserError, match=r"was joined of other runs; accepted: to remove it and join them again, `unb"):
        finish(joined)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"world": {"n_features": 10}}, "do not fit together: world.n_features is 9 in one and 10 in the other"),
        ({"training": {"steps": 5}}, "do not fit together: training.steps is 4 in one and 5 in the other"),
        ({"mechanisms": {"sparsity": {"weight": 0.5}}}, "mechanisms.sparsity.weight is not set in one and 0.5 in the"),
        ({"sweep": {"seed": [0, 1]}}, "both have 'd_sae 6 · seed 2/0'"),
        ({"sweep": {"training.batch": [8, 16]}}, 'sweep."training.batch" is not set in one and [8, 16] in the other'),
        (
            {"sweep": {"world.seed": [1, 2]}},
            "both have 'd_sae 6 · seed 1/0'; accepted: each replicate of a setting once",
        ),
        (
            {"sweep": {"dictionary.d_sae": [6]}},
            "lack 2 of 8 members, as 'd_sae 8 · seed 2/0'; accepted: runs that make",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(made, change: JsonDict, sentence: str):
    first = made(swept("world.seed", [0, 1]))
    other = made(merge(swept("world.seed", [2, 3]), change))
    if change == {"sweep": {"seed": [0, 1]}}:
        first = made(swept("world.seed", [2, 3]))
    with pytest.raises(UserError) as refused:
        join([first, other], "refused", write_line)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (first.path.parent / "refused").exists()


def test_runs_of_other_versions_or_kinds_or_that_are_not_finished_are_refused(made, tmp_path: Path):
    first, other = (run_config(tmp_path, f"r{seed}", swept("world.seed", [seed])) for seed in (0, 1))
    (other.path / "checksums.json").unlink()
    facts = read_sealed(other.path / "environment.json", "packages")
    write_sealed(other.path / "environment.json", {**facts, "packages": {**facts["packages"], "torch": "1.0"}})
    other.finish(1.0)
    with pytest.raises(UserError, match=r"were made by torch \S+ and 1\.0; accepted: runs of one version$"):
        join([first, other], "joined", write_line)
    unfinished = create(tmp_path, "unfinished", swept("world.seed", [2]))
    with pytest.raises(UserError, match=r"unfinished is killed; accepted: a finished run"):
        join([first, unfinished], "joined", write_line)
    samples = {"world": CONFIG["world"], "samples": {"n": 64}, "embedding": {"perplexity": 9.0, "iterations": 250}}
    embedding = made({"kind": "embedding", **samples})
    with pytest.raises(UserError, match="are of kinds 'dictionaries' and 'embedding'; accepted: runs of one kind"):
        join([first, embedding], "joined", write_line)
    with pytest.raises(UserError, match="1 run was given; accepted: two or more to join"):
        join([first], "joined", write_line)


def test_a_damaged_part_is_not_joined(tmp_path: Path):
    first, other = (run_config(tmp_path, f"r{seed}", swept("world.seed", [seed])) for seed in (0, 1))
    scores = other.stack(0) / "training.json"
    write_json(scores, json.loads(scores.read_text().replace("0.", "1.", 1)))
    with pytest.raises(UserError, match=r"training.json is damaged"):
        join([first, other], "joined", write_line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "r0", "r1"]
