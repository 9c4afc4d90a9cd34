"""Stability of dictionaries written by hand, of different sizes and methods, and as a score of runs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.pipeline.running import run_config
from unbraid.dictionaries import Dictionary, Relu, Stack
from unbraid.dictionaries.baselines import KMeans, Pca
from unbraid.errors import UserError
from unbraid.evaluation.stability import score_stability, stability
from unbraid.metrics.recovery import expected_best
from unbraid.storage.files import read_arrays
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=12, n_features=16, active=2.0)
TINY = {
    "world": {"dimensions": 12, "n_features": 16, "active": 2.0},
    "dictionary": {"d_sae": 16},
    "training": {"steps": 200, "batch": 64, "learning_rate": 0.02},
    "mechanisms": {"sparsity": {"weight": 0.1}},
    "evaluation": {"samples": 1024},
    "sweep": {"mechanisms.sparsity.weight": [0.1, 0.4], "seed": [0, 1, 2]},
}
NAMES = {"stability", "stable", "stability_codes", "stability_rank", "stable_true"}


def by_hand(*members: torch.Tensor) -> Stack:
    rows = torch.stack(members)
    return Stack.of(
        {"encoder": rows, "decoder": rows.clone(), "encoder_bias": torch.full(rows.shape[:2], -0.1)}, Relu()
    )


def random_stack(features: int, seeds: list[int], dimensions: int = 12) -> Stack:
    return Stack.start(Dictionary(d_sae=features), dimensions, seeds)


def test_a_dictionary_comes_again_whole_in_any_order():
    rows, order = WORLD.directions, torch.randperm(16, generator=torch.Generator().manual_seed(0))
    x = WORLD.batch(0, 512).x
    for by in ("directions", "codes"):
        again = stability(by_hand(rows), by_hand(rows[order]), x, by)
        assert order[again.match[0]].tolist() == list(range(16))
        assert again.mean.tolist() == pytest.approx([1])
        assert again.stable.tolist() == [1]
        assert again.correlation is not None
        assert again.correlation.mean().item() == pytest.approx(1)


def test_half_of_a_dictionary_comes_again_where_half_is_the_same():
    truth, other = WORLD.directions, random_stack(16, [3]).directions[0]
    mixed = torch.cat([truth[:8], other[:8]])
    again = stability(by_hand(truth), by_hand(mixed))
    assert again.match[0, :8].tolist() == list(range(8))
    assert again.cosine[0, :8].tolist() == pytest.approx([1] * 8)
    assert (again.cosine[0, 8:] < 0.9).all()
    assert again.stable.tolist() == [0.5]
    assert again.correlation is None


def test_sizes_may_differ_and_what_has_no_match_did_not_come_again():
    truth = WORLD.directions
    larger = stability(by_hand(truth), by_hand(truth[:4]))
    assert larger.cosine[0].tolist() == pytest.approx([1] * 4 + [0] * 12)
    smaller = stability(by_hand(truth[:4]), by_hand(truth))
    assert smaller.mean.tolist() == pytest.approx([1])


def test_chance_is_what_unrelated_dictionaries_score():
    """Eight pairs of random dictionaries; one to one it is below the best cosine, which features may share."""
    first, second = random_stack(64, list(range(8)), 32), random_stack(64, list(range(100, 108)), 32)
    again = stability(first, second)
    assert again.chance["cosine"] == pytest.approx(again.mean.mean().item(), abs=0.02)
    assert again.chance["cosine"] < expected_best(64, 32)
    assert again.chance["stable"] == 0


def test_one_member_is_compared_with_all():
    first, many = random_stack(16, [0]), random_stack(16, [0, 1, 2])
    again = stability(first, many)
    assert again.mean.shape == (3,)
    assert again.mean[0].item() == pytest.approx(1)
    assert (again.mean[1:] < 0.9).all()


def test_the_sign_of_a_principal_axis_means_nothing_and_that_of_a_cluster_does():
    x = WORLD.batch(0, 2048).x
    for baseline, sign in ((Pca(n_components=8), 1), (KMeans(n_components=1), -1)):
        fitted = baseline.fit(x)
        directions = -fitted.directions
        again = stability(fitted, replace(fitted, directions=directions, rule=fitted.rule.renewed(directions)), x)
        assert again.mean.item() == pytest.approx(sign)
        assert again.correlation is not None
        assert (again.correlation.mean().item() == pytest.approx(1)) == (sign == 1)


def test_a_stack_and_a_baseline_are_compared():
    fitted = KMeans(n_components=10).fit(WORLD.batch(0, 1024).x)
    again = stability(by_hand(WORLD.directions), fitted, WORLD.batch(1, 256).x)
    assert again.cosine.shape == (1, 16)
    assert ((again.match >= 0).sum() == 10).all()


@pytest.mark.parametrize(
    ("first", "second", "by", "sentence"),
    [
        (random_stack(4, [0]), random_stack(4, [0], 8), "directions", "have 12 and 8 dimensions; accepted"),
        (random_stack(4, [0, 1]), random_stack(4, [0, 1, 2]), "directions", "have 2 and 3 members; accepted"),
        (random_stack(4, [0]), random_stack(4, [1]), "codes", "without inputs; accepted"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(first: Stack, second: Stack, by, sentence: str):
    with pytest.raises(UserError, match=sentence):
        stability(first, second, by=by)


def test_members_are_compared_with_the_others_of_their_setting_alone():
    """Three members: two alike in one setting, one alone in another."""
    rows = WORLD.directions
    other = random_stack(16, [5]).directions[0]
    members = [by_hand(rows), by_hand(torch.cat([rows[:12], other[:4]])), by_hand(other)]
    scores = score_stability(members, ["a", "a", "b"], WORLD, 1024)
    for place in (0, 1):
        expected = stability(members[place], members[1 - place], None)
        np.testing.assert_allclose(scores.tables["stability"][place], expected.cosine[0], atol=1e-6)
        assert scores.values["stable"][place] == 12 / 16
    assert all(np.isnan(values[2]) for values in scores.values.values())
    assert scores.values["stable_true"][:2] == [1.0, 1.0]
    assert scores.chance["stable_true"][:2] == [1.0, 12 / 16]  # pyright: ignore[reportIndexIssue]
    assert scores.values["stability_rank"][1] > 0.5  # what is made up is neither stable nor true
    assert score_stability(members, ["a", "b", "c"], WORLD, 1024).values == {}


def test_what_is_wrong_alike_is_stable_and_not_true():
    wrong = random_stack(16, [7]).directions[0]
    members = [by_hand(torch.cat([WORLD.directions[:8], wrong[:8]]))] * 2
    scores = score_stability(members, ["a", "a"], WORLD, 1024)
    assert scores.values["stability"] == pytest.approx([1, 1])
    assert scores.values["stable_true"] == [0.5, 0.5] == scores.chance["stable_true"]


def test_it_is_a_score_of_a_run_with_several_seeds(tmp_path):
    run = run_config(tmp_path, "run", TINY)
    tables = read_arrays(run.stack(0) / "tables.safetensors")
    decoder = torch.from_numpy(read_arrays(run.stack(0) / "weights.safetensors")["decoder"])
    for number, setting in enumerate(run.scores()["settings"]):
        assert set(setting["metrics"]) >= NAMES
        score = setting["metrics"]["stability"]
        places = [member["member"] for member in setting["members"]]
        for value, place in zip(score["members"], places, strict=True):
            partners = [by_hand(decoder[other]) for other in places if other != place]
            means = [stability(by_hand(decoder[place]), partner).mean.item() for partner in partners]
            assert value == pytest.approx(np.mean(means), abs=1e-5)
            assert tables["stability"][place].mean() == pytest.approx(value, abs=1e-5)
        assert score["chance"] < score["value"] <= 1, number
        assert setting["metrics"]["stability_rank"]["chance"] == 0


def test_one_seed_has_nothing_to_be_compared_with(tmp_path):
    run = run_config(tmp_path, "run", {**TINY, "sweep": {"mechanisms.sparsity.weight": [0.1, 0.4]}})
    assert not any(NAMES & set(setting["metrics"]) for setting in run.scores()["settings"])


def test_baselines_of_several_seeds_have_it_too(tmp_path):
    data = {key: TINY[key] for key in ("world", "evaluation")}
    sweep = {"seed": [0, 1], "samples.n": [64, 256]}
    run = run_config(tmp_path, "run", {**data, "baseline": {"kind": "kmeans", "n_components": 8}, "sweep": sweep})
    for setting in run.scores()["settings"]:
        assert set(setting["metrics"]) >= NAMES
    found = [setting["metrics"]["stability"]["members"] for setting in run.scores()["settings"]]
    assert all(first == pytest.approx(second) for first, second in found)  # as many features: the same both ways
    assert len(set(itertools.chain(*found))) > 1
