"""SynthSAEBench's scores on cases worked out by hand. `benchmarks/synth.py` compares them with SAELens' own code."""

import doctest

import pytest
import torch

from unbraid.codes import Codes
from unbraid.evaluation.dictionaries import score
from unbraid.metrics import latents
from unbraid.metrics.recovery import cosines
from unbraid.worlds import Synth

WORLD = Synth(dimensions=12, n_features=30, roots=4, branching=3, depth=2, orthogonal_steps=20, min_probability=0.02)

# four true features in the plane of axes; three latents: the first truth, its opposite, and a mixture nearest the third
TRUTH = torch.eye(4)
LEARNED = torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [0, 0, 0.8, 0.6]])[None]
# rows are samples
TRUE = torch.tensor([[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)
FIRED = torch.tensor([[1, 0, 1], [1, 0, 0], [1, 0, 1], [0, 0, 1]], dtype=torch.bool)[None]


def test_examples_in_docstrings_run():
    assert doctest.testmod(latents) == (0, 1)


def test_each_latent_goes_to_the_truth_of_largest_absolute_cosine():
    nearest = latents.nearest_truth(cosines(TRUTH, LEARNED))
    assert nearest.tolist() == [[0, 0, 2]]
    assert latents.uniqueness(nearest).tolist() == [pytest.approx(2 / 3)]


def test_the_absolute_mcc_is_of_the_pairs_alone():
    """Latent 0 or 1 takes truth 0, the other one is left with 0 elsewhere, the mixture takes truth 2 (.8)."""
    assert latents.absolute_mcc(cosines(TRUTH, LEARNED)).item() == pytest.approx((1 + 0 + 0.8) / 3)
    assert latents.absolute_mcc(cosines(TRUTH, -TRUTH[None])).item() == pytest.approx(1)


@pytest.mark.parametrize("layout", ["dense", "lists"])
def test_counts_by_hand(layout):
    nearest = torch.tensor([[0, 0, 2]])
    features = None
    fired = FIRED
    if layout == "lists":  # slots in another order, and one that is not used
        features = torch.tensor([[2, 0, 1], [0, 1, 2], [0, 2, 0], [2, 1, 1]])[None]
        fired = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)[None]
    counts = latents.count_latents(features, fired, TRUE, nearest)
    counts = counts + latents.count_latents(None, FIRED[:, :0], TRUE[:0], nearest)  # nothing more
    assert counts.latent.tolist() == [[3, 0, 3]]
    assert counts.together.tolist() == [[2, 0, 2]]
    assert counts.true.tolist() == [[2, 2, 2]]
    torch.testing.assert_close(counts.precision(), torch.tensor([[2 / 3, 0, 2 / 3]]).double())
    torch.testing.assert_close(counts.recall(), torch.tensor([[1, 0, 1]]).double())
    torch.testing.assert_close(counts.f1(), torch.tensor([[0.8, 0, 0.8]]).double())
    torch.testing.assert_close(counts.accuracy(), torch.tensor([[0.75, 0.5, 0.75]]).double())


def test_shrinkage_leaves_out_inputs_of_length_0():
    x = torch.tensor([[3.0, 4], [0, 0], [0, 2]])
    short = latents.Shrinkage.of(x, torch.stack([x / 2, torch.ones(3, 2)]))
    both = short + short
    root = 2**0.5
    torch.testing.assert_close(both.mean(), torch.tensor([0.5, (root / 5 + root / 2) / 2]).double())


def test_silence_with_a_child_and_alone():
    """Truth 0 is the parent of 1; 2 has neither. With its child (twice), alone, and with the child listed but off."""
    parents = torch.tensor([-1, 0, -1])
    true = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 2, 0], [0, 1, 0]])  # the last slot is not used
    strengths = torch.tensor([[1.0, 2, 0], [1, 1, 0], [3, 1, 0], [1, 0, 0]])
    values = torch.tensor([[0.0, 1, 0], [1, 0.5, 0], [0.7, 0, 0], [0, 9, 0]])[None]
    counts = latents.count_silence(parents, true, strengths, values)
    assert counts.with_child.tolist() == [[2, 0, 0]]
    assert counts.silent_with_child.tolist() == [[1, 0, 0]]
    assert counts.alone.tolist() == [[2, 0, 0]]
    assert counts.silent_alone.tolist() == [[1, 0, 0]]
    with_child, alone = (counts + counts).rates()
    assert (with_child.item(), alone.item()) == (0.5, 0.5)


def test_an_oracle_scores_1_and_is_never_silent():
    from unbraid.dictionaries import Dictionary, Stack

    scores = score(Stack.start(Dictionary(d_sae=30), 12, [0, 1]), WORLD, samples=2048)
    for name in ("synth_f1", "synth_precision", "synth_recall", "synth_mcc", "uniqueness"):
        assert scores.ceiling[name] == pytest.approx(1, abs=1e-6)
        assert 0 <= scores.chance[name] < 1
        assert scores.values[name].shape == (2,)
    assert scores.ceiling["silent_with_child"] == scores.ceiling["silent_alone"] == 0
    assert scores.tables["synth_f1"].shape == scores.tables["nearest"].shape == (2, 30)


def test_scores_are_those_of_a_plain_count_over_dense_codes():
    from unbraid.dictionaries import Dictionary, Stack, TopK

    stack = Stack.start(Dictionary(d_sae=20, activation=TopK(k=3)), 12, [4])
    scores = score(stack, WORLD, samples=512)
    batch = WORLD.batch(0, 512, "evaluation")
    codes = stack.encode(batch.x)
    fired = (codes if isinstance(codes, torch.Tensor) else Codes.to_dense(codes))[0] != 0
    truth = batch.truth.to_dense()[0] != 0
    f1 = []
    for latent, row in enumerate(stack.directions[0]):
        near = max(range(30), key=lambda t: abs(float(WORLD.directions[t] @ row)))
        both = sum(bool(a and b) for a, b in zip(fired[:, latent], truth[:, near], strict=True))
        of_latent, of_truth = int(fired[:, latent].sum()), int(truth[:, near].sum())
        precision, recall = both / of_latent if of_latent else 0, both / of_truth if of_truth else 0
        f1.append(2 * precision * recall / (precision + recall) if both else 0)
    assert scores.values["synth_f1"].item() == pytest.approx(sum(f1) / 20, abs=1e-6)
