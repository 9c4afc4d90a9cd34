"""`fit` on arrays: any type and shape gives the same dictionaries, of any scale; and what comes back can go on."""

import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.utils.data import DataLoader, TensorDataset

import unbraid as ub
from unbraid.dictionaries.training.fit import inputs_of, train
from unbraid.dictionaries.training.step import State
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds.arrays import Rows, Stream

WORLD = ub.Superposition(dimensions=8, n_features=12, active=2.0)
X = WORLD.batch(0, 480).x.numpy()
TRAINING = ub.Training(steps=12, batch=32, learning_rate=0.02)
SETTINGS = ub.Dictionary(d_sae=12, activation=ub.TopK(k=3))


def fit(given, training=TRAINING, dictionary=SETTINGS, mechanisms=(), **settings):
    return ub.fit(given, dictionary, mechanisms, training, seeds=[0, 1], **settings)


@pytest.fixture(scope="module")
def reference():
    return fit(X)


def memory_map(folder: Path) -> np.ndarray:
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


FORMS = {
    "tensor": lambda _: torch.from_numpy(X),
    "float64": lambda _: X.astype(np.float64),
    "sequences": lambda _: X.reshape(60, 8, 8),
    "not contiguous": lambda _: np.asfortranarray(X),
    "sparse": lambda _: csr_array(X),
    "memory map": memory_map,
    "needs gradients": lambda _: torch.from_numpy(X).requires_grad_(),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_an_array_gives_the_same_dictionaries(form, reference, tmp_path):
    assert torch.equal(fit(FORMS[form](tmp_path)).encoder, reference.encoder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_the_numbers_it_holds(dtype):
    half = torch.from_numpy(X).to(dtype)
    assert torch.equal(fit(half).encoder, fit(half.float()).encoder)
    assert torch.equal(fit(half).encode(half).to_dense(), fit(half).encode(half.float()).to_dense())


RULES = {
    "relu": (ub.Relu(), [ub.Sparsity(weight=0.5)]),
    "topk": (ub.TopK(k=3), []),
    "batchtopk": (ub.BatchTopK(k=3), []),
    "jumprelu": (ub.JumpRelu(), [ub.Sparsity(weight=0.5)]),
    "gated": (ub.Gated(), [ub.Sparsity(weight=0.5)]),
    "variational": (ub.Variational(), []),
}


@pytest.mark.parametrize("rule", RULES)
def test_nothing_depends_on_the_scale_of_the_array(rule):
    activation, mechanisms = RULES[rule]
    training = ub.Training(steps=25, batch=64, learning_rate=0.01)
    dictionary = ub.Dictionary(d_sae=12, activation=activation)
    rows = X + np.float32(0.5)
    one, *others = [fit(rows * np.float32(s), training, dictionary, mechanisms) for s in (1, 0.01, 100)]
    for scale, other in zip((0.01, 100), others, strict=True):
        torch.testing.assert_close(other.directions, one.directions, atol=2e-3, rtol=0)
        l0 = [stack.encode(rows * np.float32(s)).l0().double().mean(1) for stack, s in ((one, 1), (other, scale))]
        torch.testing.assert_close(l0[1], l0[0], atol=0.1, rtol=0)
        torch.testing.assert_close(other(rows * np.float32(scale)) / scale, one(rows), atol=5e-3, rtol=0)


def test_it_is_the_training_on_normalized_rows_folded_afterwards(reference):
    """By hand: rows around 0, of mean length √8; the same batches; and the weights brought back."""
    mean = X.mean(0)
    scale = float(np.linalg.norm(X - mean, axis=1).mean() / np.sqrt(8))
    rows = (X - mean) / np.float32(scale)
    source, training = inputs_of(Rows.of(rows), stack_configs([TRAINING] * 2)), stack_configs([TRAINING] * 2)
    state = State.start(SETTINGS, 8, {}, [0, 1])
    list(train(state, source, training, {}))
    torch.testing.assert_close(reference.directions, state.stack.directions, atol=1e-4, rtol=0)
    wanted = state.stack.encode(rows).to_dense() * scale
    torch.testing.assert_close(reference.encode(X).to_dense(), wanted, atol=1e-4, rtol=0)


def test_rows_far_from_zero_are_centered_and_others_are_not():
    assert fit(X + 5).pre_bias.mean() == pytest.approx((X + 5).mean(), rel=1e-4)
    assert not fit(X, normalize="scale").pre_bias.any()
    kept = fit(X + 5, normalize="none")
    assert not kept.pre_bias.any()


def test_an_epoch_has_every_row_once_and_the_next_another_order():
    rows = Rows.of(np.arange(30, dtype=np.float32)[:, None])
    seen = torch.cat([rows.batch(position, 7).x for position in range(9)])[:60, 0].tolist()
    assert sorted(seen[:30]) == sorted(seen[30:]) == list(range(30))
    assert seen[:30] != seen[30:]
    assert rows.batch(1, 7, split="evaluation").x[:, 0].tolist() == list(range(7, 14))


def test_a_stream_is_cut_into_batches_in_its_order():
    stream = Stream((X[i : i + 50] for i in range(0, 480, 50)), 32, "none")
    batches = list(iter(stream.take, None))
    assert [len(batch) for batch in batches] == [32] * 15
    assert np.array_equal(torch.cat(batches).numpy(), X)


def test_a_data_loader_begins_again_and_an_iterator_ends_with_what_there_is(capsys):
    loader = DataLoader(TensorDataset(torch.from_numpy(X[:100])), batch_size=30)
    again = fit(loader)
    assert again.metadata["seen"] == 12 * 32
    assert torch.equal(again.encoder, fit([X[:100]]).encoder)
    ended = fit(iter([X[:50], X[50:100]]))
    assert ended.history["step"].max() == 4
    assert ended.metadata["seen"] == 4 * 32
    assert "ended after 4 of 12 steps" in capsys.readouterr().err


def test_a_captured_folder_is_rows_too(keep_as_shards, tmp_path):
    rows = torch.from_numpy(X) * 3 + 2
    folder = keep_as_shards(tmp_path / "shards", rows)
    stack = fit(str(folder), ub.Training(steps=150, batch=64, learning_rate=0.02))
    assert stack.metadata["model"] == "tiny"
    explained = ub.score(stack, folder, samples=40).values["explained_variance"]
    assert (explained > 0.5).all()  # of rows as they are, although it learned normalized ones
    assert (ub.score(stack, rows).values["explained_variance"] > 0.5).all()


def test_a_world_is_trained_on_as_it_is_and_no_other_normalization_is_taken():
    stack = ub.fit(WORLD, SETTINGS, training=TRAINING, seeds=[0])
    assert stack.pre_bias is None
    with pytest.raises(UserError, match='normalize is "scale" beside a world'):
        ub.fit(WORLD, SETTINGS, training=TRAINING, normalize="scale")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.zeros(4), "shape \\(4,\\)"),
        (np.zeros((0, 4)), "shape \\(0, 4\\)"),
        (np.array([["a"]]), "holds <U1"),
        (np.array([[np.nan, 1.0]]), "not finite"),
        (np.full((3, 2), 1e300), "not finite"),
        (3, "int found"),
        (iter([]), "no rows"),
        (iter(["a"]), "str found"),
        (iter([np.ones((2, 3)), np.ones((2, 4))]), "rows of 3 and 4"),
        ("nowhere", "no such folder"),
    ],
)
def test_what_holds_no_rows_is_refused(given, sentence):
    with pytest.raises(UserError, match=sentence):
        fit(given)


def test_an_unknown_normalization_is_refused():
    with pytest.raises(UserError, match="normalize is 'both'"):
        fit(X, normalize="both")


@pytest.mark.parametrize("given", [X, WORLD, "stream"], ids=["array", "world", "stream"])
def test_resuming_gives_the_bits_of_one_long_training(given):
    def again():
        return iter(np.tile(X, (40, 1)).reshape(-1, 40, 8)) if isinstance(given, str) else given

    short = fit(again())
    kept = short.encoder.clone()
    resumed, long = short.resume(8), fit(again(), ub.Training(steps=20, batch=32, learning_rate=0.02))
    for name, tensor in resumed.tensors().items():
        assert torch.equal(tensor, long.tensors()[name]), name
    assert torch.equal(short.encoder, kept)
    assert resumed.history.equals(long.history)


@pytest.fixture
def default_sigint():
    """Python's own answer to Ctrl-C, whatever a test before has left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_keeps_what_there_is_and_resume_finishes_it(capsys):
    class Interrupted(ub.Superposition):
        def batch(self, position, size, split="train"):
            if position == 5:
                signal.raise_signal(signal.SIGINT)
            return super().batch(position, size, split)

    settings = {"dimensions": 8, "n_features": 12, "active": 2.0}
    stopped = ub.fit(Interrupted(**settings), SETTINGS, training=TRAINING, seeds=[0])
    assert stopped.metadata["seen"] == 6 * 32  # the step at work was finished
    assert "ended after 6 of 12 steps" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finished, whole = stopped.resume(), ub.fit(WORLD, SETTINGS, training=TRAINING, seeds=[0])
    assert torch.equal(finished.encoder, whole.encoder)
    with pytest.raises(UserError, match="no more steps after 12"):
        finished.resume()


def test_an_interrupted_source_ends_training_between_two_steps(capsys):
    def batches():
        yield np.tile(X, (20, 1))  # 9600 rows
        raise KeyboardInterrupt

    stopped = fit(batches(), ub.Training(steps=6, batch=4096))
    assert stopped.metadata["seen"] == 2 * 4096
    assert "ended after 2 of 6 steps" in capsys.readouterr().err


def test_history_has_the_terms_and_survives_saving(tmp_path):
    stack = fit(X, dictionary=ub.Dictionary(d_sae=12), mechanisms=[ub.Sparsity(weight=0.5)])
    history = stack.history
    assert list(history.columns) == ["step", "member", "loss", "reconstruction", "sparsity", "l0"]
    assert len(history) == 12 * 2
    np.testing.assert_allclose(history["loss"], history["reconstruction"] + history["sparsity"])
    stack.save(tmp_path / "kept")
    loaded = ub.load(tmp_path / "kept")
    assert loaded.history.equals(history)
    assert torch.equal(loaded(X), stack(X))
    assert stack.member(1).history["l0"].tolist() == history[history["member"] == 1]["l0"].tolist()
    with pytest.raises(UserError, match="has not trained"):
        loaded.resume(3)


def test_scores_of_an_array_are_by_hand(reference):
    scores = ub.score(reference, X)
    missed = ((reference(X).numpy() - X) ** 2).sum((1, 2))
    expected = 1 - missed / ((X - X.mean(0)) ** 2).sum()
    np.testing.assert_allclose(scores.values["explained_variance"], expected, rtol=1e-4)
    np.testing.assert_allclose(scores.values["l0"], (reference.encode(X).to_dense() != 0).sum(-1).double().mean(-1))
    frame = scores.frame().set_index("metric")
    assert frame.loc["explained_variance", "value"] == pytest.approx(expected.mean(), rel=1e-4)
    assert frame.loc["explained_variance", "chance"] == 0
    assert torch.equal(ub.score(reference, iter([X[:50], X[50:]])).values["l0"], scores.values["l0"])
