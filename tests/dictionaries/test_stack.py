import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from unbraid.dictionaries import ACTIVATIONS, BatchTopK, Dictionary, Gated, JumpRelu, Relu, Stack, TopK
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.worlds import Superposition

DIMENSIONS = 5


@pytest.fixture
def stack(rng):
    start = Stack.start(Dictionary(d_sae=7, pre_bias=True), DIMENSIONS, [0, 1])
    return start.with_parameters(
        {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    )


def test_pre_activations_are_those_of_centred_inputs(stack, rng):
    x = rng.standard_normal((4, DIMENSIONS))
    encoder, bias, centre = (getattr(stack, name).numpy() for name in ("encoder", "encoder_bias", "pre_bias"))
    expected = np.zeros((2, 4, 7))
    for m, b, f in np.ndindex(expected.shape):
        expected[m, b, f] = sum(encoder[m, f, d] * (x[b, d] - centre[m, d]) for d in range(DIMENSIONS)) + bias[m, f]
    np.testing.assert_allclose(stack.pre_activations(torch.from_numpy(x)).numpy(), expected, atol=1e-12)


def test_without_pre_bias_pre_activations_are_a_product_plus_the_bias(stack, rng):
    plain = Stack(stack.encoder, stack.encoder_bias, stack.decoder, None, Relu())
    x = rng.standard_normal((4, DIMENSIONS))
    expected = [x @ e.T + b for e, b in zip(stack.encoder.numpy(), stack.encoder_bias.numpy(), strict=True)]
    np.testing.assert_allclose(plain.pre_activations(torch.from_numpy(x)).numpy(), expected, atol=1e-12)


def test_a_perfect_dictionary_reconstructs_centred_inputs_exactly():
    """Orthonormal rows, positive coordinates: x̂ = x, whatever the pre-bias."""
    eye, centre = torch.eye(4, dtype=torch.float64)[None], torch.tensor([[1.0, -2, 3, 0]], dtype=torch.float64)
    stack = Stack(eye, torch.zeros(1, 4, dtype=torch.float64), eye, centre, Relu())
    x = centre[0] + torch.tensor([[1.0, 0, 2, 5], [0, 0.5, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(stack.decode(stack.encode(x))[0], x)


def test_the_start_has_equal_encoder_and_decoder_and_zero_biases():
    start = Stack.start(Dictionary(d_sae=7, pre_bias=True), DIMENSIONS, [0, 1])
    assert torch.equal(start.encoder, start.decoder)
    assert start.encoder.data_ptr() != start.decoder.data_ptr()
    assert not start.encoder_bias.any()
    assert not start.pre_bias.any()


def test_a_unit_decoder_is_drawn_apart_from_an_encoder_as_torchs_linear():
    start = Stack.start(Dictionary(d_sae=400, init="unit"), DIMENSIONS, [0, 1])
    torch.testing.assert_close(start.decoder.norm(dim=-1), torch.ones(2, 400))
    assert not start.encoder_bias.any()
    bound = DIMENSIONS**-0.5
    assert 0.9 * bound < start.encoder.abs().max() <= bound
    assert abs(float((start.encoder * start.decoder).sum(-1).mean())) < 0.05


def test_a_start_at_data_has_another_sample_in_each_row_and_random_rows_where_there_are_too_few(rng):
    x = torch.from_numpy(rng.standard_normal((6, DIMENSIONS))).float()
    x[2] = 0
    dictionary = Dictionary(d_sae=7, init="data")
    start = Stack.start(dictionary, DIMENSIONS, [3, 8], x)
    assert torch.equal(start.encoder, start.decoder)
    cosines = (start.decoder @ torch.nn.functional.normalize(x, dim=-1).T).numpy()
    for member in range(2):
        assert sorted(cosines[member, :5].argmax(1)) == [0, 1, 3, 4, 5]
        np.testing.assert_allclose(cosines[member, :5].max(1), 1, rtol=1e-6)
    assert not torch.equal(start.decoder[0, :5], start.decoder[1, :5])
    assert torch.equal(start.decoder[:, 5:], Stack.start(Dictionary(d_sae=7), DIMENSIONS, [3, 8]).decoder[:, 5:])
    assert torch.equal(Stack.start(dictionary, DIMENSIONS, [8], x).decoder[0], start.decoder[1])


def test_a_pre_bias_starts_at_the_geometric_median_and_rows_from_there(rng):
    x = torch.from_numpy(rng.standard_normal((60, DIMENSIONS)) ** 3 + 2).float()
    dictionary = Dictionary(d_sae=7, init="data", pre_bias=True, pre_bias_init="geometric_median")
    start = Stack.start(dictionary, DIMENSIONS, [0, 1], x)
    samples = x.double().numpy()
    least = minimize(lambda c: np.linalg.norm(samples - c, axis=1).sum(), samples.mean(0), tol=1e-10).x
    np.testing.assert_allclose(start.pre_bias.numpy(), [least, least], atol=1e-3)
    assert np.abs(samples.mean(0) - least).max() > 0.05
    centred = torch.nn.functional.normalize(x - start.pre_bias[0], dim=-1)
    np.testing.assert_allclose((start.decoder[0] @ centred.T).max(1).values, 1, rtol=1e-6)


def test_a_geometric_median_needs_a_pre_bias():
    with pytest.raises(ValueError, match="accepted: pre_bias = true"):
        Dictionary(pre_bias_init="geometric_median")


def test_fit_starts_at_the_first_batch():
    world = Superposition(dimensions=DIMENSIONS, n_features=7, active=2.0)
    pace = Training(steps=1, batch=64, learning_rate=1e-9)
    stack = fit(world, Dictionary(d_sae=7, init="data"), training=pace, seeds=[0])
    x = world.batch(0, 64).x
    cosines = stack.decoder[0] @ torch.nn.functional.normalize(x, dim=-1).T
    np.testing.assert_allclose(cosines.max(1).values, 1, rtol=1e-5)


def test_each_member_starts_from_its_own_seed_whatever_its_company():
    dictionary = Dictionary(d_sae=7)
    together = Stack.start(dictionary, DIMENSIONS, [3, 8, 5])
    alone = Stack.start(dictionary, DIMENSIONS, [8])
    assert torch.equal(together.decoder[1], alone.decoder[0])
    assert not torch.equal(together.decoder[0], together.decoder[1])


def test_a_start_is_not_the_truth_of_the_world_with_the_same_seed():
    world = Superposition(dimensions=DIMENSIONS, n_features=7, active=2.0, seed=4)
    assert not torch.allclose(Stack.start(Dictionary(d_sae=7), DIMENSIONS, [4]).decoder[0], world.directions)


def test_without_pre_bias_there_is_no_such_parameter():
    assert set(Stack.start(Dictionary(), 4, [0]).parameters()) == {"encoder", "encoder_bias", "decoder"}
    assert "pre_bias" in Stack.start(Dictionary(pre_bias=True), 4, [0]).parameters()


def test_leaves_share_storage_and_ask_for_gradients(stack):
    leaves = stack.requires_grad_copy()
    for name, parameter in stack.parameters().items():
        leaf = leaves.parameters()[name]
        assert leaf.requires_grad
        assert leaf.is_leaf
        assert not parameter.requires_grad
        assert leaf.data_ptr() == parameter.data_ptr()


def test_normalise_keeps_directions_and_makes_lengths_one(stack):
    before = stack.decoder.clone()
    stack.normalize()
    np.testing.assert_allclose(stack.decoder.norm(dim=-1).numpy(), 1, rtol=1e-12)
    np.testing.assert_allclose((stack.decoder * before).sum(-1).numpy(), before.norm(dim=-1).numpy(), rtol=1e-12)


def test_a_zero_row_stays_zero_and_finite():
    stack = Stack.start(Dictionary(d_sae=3), 4, [0])
    stack.decoder[0, 1] = 0
    stack.normalize()
    assert stack.decoder.isfinite().all()
    assert not stack.decoder[0, 1].any()


@pytest.mark.parametrize("features", [6, 40])
def test_the_published_start_is_torchs_linear_and_orthogonal(features):
    stack = Stack.start(Dictionary(d_sae=features, init="published"), 16, range(50))
    bound = 16**-0.5
    for drawn in (stack.encoder, stack.encoder_bias):
        assert drawn.abs().max() <= bound
        assert drawn.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)  # of a uniform distribution
    torch.testing.assert_close(stack.decoder.norm(dim=-1), torch.ones(50, features))
    theirs = [torch.nn.init.orthogonal_(torch.empty(16, features)).T for _ in range(50)]  # a Linear's weight is d × f
    theirs = torch.stack([rows / rows.norm(dim=1, keepdim=True) for rows in theirs])
    for products in (stack.decoder @ stack.decoder.mT, theirs @ theirs.mT):
        off_diagonal = products - torch.eye(features)
        expected = 0 if features <= 16 else ((1 / 16 - 1 / 40) / (1 - 1 / 40)) ** 0.5
        assert off_diagonal.square().mean().sqrt().item() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("pre_bias", [False, True])
def test_weights_under_the_names_of_saelens(kind, pre_bias):
    """(x - b_dec) @ W_enc + b_enc, and codes @ W_dec + b_dec, with SAELens' shapes after the member axis."""
    rule = {"kind": kind, "k": 3} if "topk" in kind else {"kind": kind}
    dictionary = Dictionary.model_validate({"d_sae": 7, "activation": rule, "pre_bias": pre_bias})
    stack, generator = Stack.start(dictionary, 4, [0, 1]), torch.Generator().manual_seed(0)
    for tensor in stack.parameters().values():
        tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
    x = torch.randn(5, 4, generator=generator)
    assert (stack.d_in, stack.d_sae) == (4, 7)
    shapes = [tuple(tensor.shape) for tensor in (stack.W_enc, stack.b_enc, stack.W_dec, stack.b_dec)]
    assert shapes == [(2, 4, 7), (2, 7), (2, 7, 4), (2, 4)]
    pre = (x - stack.b_dec[:, None]) @ stack.W_enc + stack.b_enc[:, None]
    torch.testing.assert_close(stack.pre_activations(x), pre)
    codes = stack.encode(x)
    torch.testing.assert_close(stack.decode(codes), codes.to_dense() @ stack.W_dec + stack.b_dec[:, None])


def test_thresholds_say_what_fires():
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    for rule in (JumpRelu(threshold=0.3), BatchTopK(k=2)):
        stack = Stack.start(Dictionary(d_sae=7, activation=rule), 4, [0, 1])
        stack.remember(rule.fire(stack.pre_activations(x), stack.tensors()).memory)
        assert stack.threshold.shape == (2, 7)
        assert stack.threshold.min() > 0
        pre = stack.pre_activations(x)
        expected = torch.where(pre > stack.threshold[:, None], pre, 0)
        assert torch.equal(stack.encode(x).to_dense(), expected)
    assert Stack.start(Dictionary(d_sae=7), 4, [0]).threshold is None


@pytest.mark.parametrize("activation", [Relu(), Gated(), JumpRelu(threshold=1e-3)], ids=str)
def test_features_begin_by_firing_in_the_share_that_was_asked_for(activation):
    x = torch.randn(400, 12, generator=torch.Generator().manual_seed(0))
    dictionary = Dictionary(d_sae=30, activation=activation, pre_bias=True, firing_share=0.05)
    stack = Stack.start(dictionary, 12, [0, 1], x)
    assert (stack.encode(x).counts() - 20).abs().max() <= 1  # 5 % of 400; on the edge rounding decides


def test_a_share_that_fires_is_of_rules_that_have_a_bias_or_threshold_for_it():
    with pytest.raises(ValueError, match="firing_share was given to TopK"):
        Dictionary(activation=TopK(k=3), firing_share=0.1)
