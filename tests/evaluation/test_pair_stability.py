"""The stability of selected pairs: of dictionaries written by hand, and as a score of a run."""

import numpy as np
import pytest
import torch

from tests.pipeline.running import run_config
from unbraid.dictionaries import Relu, Stack
from unbraid.dictionaries.mechanisms import PairOrthogonality
from unbraid.evaluation.pair_stability import pair_stability
from unbraid.members import stack_configs
from unbraid.worlds import Batch, Superposition

TINY = {
    "world": {"dimensions": 6, "n_features": 6, "active": 2.0},
    "dictionary": {"d_sae": 6},
    "training": {"steps": 4, "batch": 64},
    "mechanisms": {"pair_orthogonality": {"share": 0.2}},
    "evaluation": {"samples": 256},
    "sweep": {"seed": [0, 1]},
}


class Fixed(Superposition):
    """Features 0 and 1 fire together, and so do 2 and 3 and 4; in odd batches instead 0 and 5."""

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        rows = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]] if position % 2 == 0 else [[1, 0, 0, 0, 0, 1]]
        x = torch.tensor(rows, dtype=torch.float32)
        return Batch(x, super().batch(position, len(x)).truth)


def by_hand(orders: list[list[int]]) -> Stack:
    """Dictionaries that read off the dimensions, each in its own order."""
    rows = torch.stack([torch.eye(6)[order] for order in orders])
    return Stack.of({"encoder": rows, "decoder": rows.clone(), "encoder_bias": torch.zeros(len(orders), 6)}, Relu())


def stability(stack: Stack, mechanism: PairOrthogonality):
    world = Fixed(dimensions=6, n_features=6, active=2.0)
    return pair_stability(stack, world, stack_configs([mechanism] * stack.members), ["same"] * stack.members, 4, 64)


def test_pairs_of_a_dictionary_that_reads_the_dimensions_are_known():
    """Four pairs have cosine 1 in even batches, one in odd ones, and none is in both; three of 15 are asked for."""
    stack = by_hand([[0, 1, 2, 3, 4, 5], [3, 0, 5, 1, 4, 2]])
    scores = stability(stack, PairOrthogonality(share=0.2))
    assert scores.values["pair_overlap_steps"] == [0.0, 0.0]
    # of three places four pairs at cosine 1 fill all in even batches, one fills one in odd ones
    assert scores.values["selected_pair_cosine"] == pytest.approx([(1 + 1 / 3) / 2] * 2)
    # 4 and 1 of 15: they share one with probability 4/15, and then it is 1 of 4
    assert scores.chance["pair_overlap_steps"] == pytest.approx([4 / 15 / 4] * 2)


def test_seeds_agree_whatever_the_order_of_their_features():
    stack = by_hand([[0, 1, 2, 3, 4, 5], [3, 0, 5, 1, 4, 2]])
    scores = stability(stack, PairOrthogonality(share=0.2))
    assert scores.values["pair_overlap_seeds"] == [1.0, 1.0]
    assert all(0 < luck < 0.5 for luck in scores.chance["pair_overlap_seeds"])


def test_a_member_alone_has_nobody_to_agree_with():
    scores = stability(by_hand([[0, 1, 2, 3, 4, 5]]), PairOrthogonality())
    assert np.isnan(scores.values["pair_overlap_seeds"]).all()


def test_the_ceiling_is_the_same_mean_of_the_planted_codes():
    """By numpy: of 15 pairs the three largest cosines of the truth, in eight batches of 64 after step 4."""
    world = Superposition(dimensions=6, n_features=6, active=2.0)
    mechanism = stack_configs([PairOrthogonality(share=0.2)])
    scores = pair_stability(by_hand([[0, 1, 2, 3, 4, 5]]), world, mechanism, ["same"], 4, 64)
    means = []
    for position in range(4, 12):
        codes = world.batch(position, 64).truth.to_dense()[0].double().numpy()
        unit = codes / np.linalg.norm(codes, axis=0)
        means.append(np.sort((unit.T @ unit)[np.triu_indices(6, 1)])[-3:].mean())
    assert scores.ceiling["selected_pair_cosine"] == pytest.approx([np.mean(means)], rel=1e-5)


def test_a_run_has_both_scores_with_chance_and_one_without_the_mechanism_has_neither(tmp_path):
    (setting,) = run_config(tmp_path, "run", TINY).scores()["settings"]
    for name in ("pair_overlap_steps", "pair_overlap_seeds"):
        assert 0 <= setting["metrics"][name]["value"] <= 1
        assert 0 < setting["metrics"][name]["chance"] < 1
    assert 0 < setting["metrics"]["selected_pair_cosine"]["ceiling"] < 1
    plain = run_config(tmp_path, "plain", {**TINY, "mechanisms": {"sparsity": {}}})
    assert "pair_overlap_steps" not in plain.scores()["settings"][0]["metrics"]


def test_a_run_in_which_nothing_fires_has_no_pairs_and_ends_well(tmp_path):
    silent = {**TINY, "mechanisms": {"pair_orthogonality": {}, "sparsity": {"weight": 1e4}}}
    silent["training"] = {"steps": 40, "batch": 64, "learning_rate": 0.5}
    (setting,) = run_config(tmp_path, "silent", silent).scores()["settings"]
    assert setting["metrics"]["l0"]["value"] == 0
    assert "pair_overlap_steps" not in setting["metrics"]
