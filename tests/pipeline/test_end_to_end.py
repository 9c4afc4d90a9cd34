"""Dictionaries trained through the model that their activations are of: our own of stories, and language models."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.activations.conftest import folders  # noqa: F401 (a fixture)
from tests.pipeline.running import run_config
from tests.pipeline.test_capture_model import PLAIN, WORLD, started
from tests.pipeline.test_pipeline_kind import CONFIG
from unbraid.activations.capture import CaptureConfig, capture
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack, TopK
from unbraid.dictionaries.mechanisms import EndToEnd
from unbraid.dictionaries.mechanisms.mechanism import Forward, Signals
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, fit
from unbraid.dictionaries.training.sequences import TextSequences
from unbraid.dictionaries.training.step import State
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.pipeline.capture_model import ActivationsConfig, capture_model
from unbraid.pipeline.end_to_end import StorySequences
from unbraid.storage.checkpoints import read_log
from unbraid.worlds import Superposition
from unbraid.worlds.activations import Activations

READ, WRITTEN = "blocks.0.hook_resid_mid", "blocks.0.attn.hook_z"
MODEL = started(PLAIN, seed=3)


def stories(folder, size=200, **sites):
    config = ActivationsConfig(**sites, stories=80)
    capture_model(MODEL, WORLD, config, folder)
    return StorySequences(Activations.model_validate({"path": str(folder)}), MODEL, WORLD, config, size)


@pytest.fixture
def text(folders, tmp_path):  # noqa: F811
    """A language model's activations, with windows of several lengths."""
    words = ["the cat sat on the mat", "a big dog ran and then saw it", "the tree and the small house saw a cat"]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(words[i % 3] + " and it ran" * (i % 4) for i in range(60)))

    def captured(site, target=None, size=100, kind="llama"):
        folder = tmp_path / f"{site}-{target}"
        capture(CaptureConfig(model=str(folders[kind]), text=str(path), site=site, target=target), folder)
        world = Activations.model_validate({"path": str(folder)})
        return TextSequences.of(world, size)

    return captured


def exact(width):
    """A dictionary that reconstructs everything: every axis and its opposite."""
    rows = torch.cat([torch.eye(width), -torch.eye(width)])[None]
    start = Stack.start(Dictionary(d_sae=2 * width), width, [0])
    return start.with_parameters({"encoder": rows, "decoder": rows})


def cost(mechanism, sequences, rows_of, position=0):
    """What the mechanism costs where these rows stand for those of a batch."""
    inputs = sequences.inputs(position)
    rows = rows_of(inputs.x if inputs.target is None else inputs.target)
    seen = stack_configs([mechanism] * len(rows))
    codes = Codes.dense(torch.zeros(len(rows), len(inputs.x), 1))
    forward = Forward(inputs.x, codes, rows, downstream=inputs.downstream)
    return seen.penalty(forward, {}, exact(1), Signals())


@pytest.mark.parametrize("site", [READ, WRITTEN])
def test_what_is_reconstructed_exactly_costs_nothing_through_the_model(tmp_path, site):
    sequences = stories(tmp_path, site=site)
    both = cost(EndToEnd(weight=100.0, downstream=100.0), sequences, lambda x: x.expand(2, -1, -1))
    torch.testing.assert_close(both, torch.zeros(2), rtol=0, atol=1e-4)


def test_the_costs_are_those_of_an_edited_run(tmp_path):
    """By hand: the stories one at a time, each with its own rows edited in."""
    sequences = stories(tmp_path, input=READ, target=WRITTEN)
    drawn, undo = sequences.world.sequences(2, 200), sequences.world.target_normalization.undo
    rows = torch.stack([drawn.target * 0.5, drawn.target.flip(0)])
    kl, ce, later, start = torch.zeros(2), torch.zeros(2), torch.zeros(2, 2), 0
    questions, streams = 0, [[], [], []]
    for documents in drawn.documents:
        position, story = divmod(int(documents[0]), 64)
        batch = WORLD.batch(position, 64, split="capture").select(torch.tensor([story]))
        length, answers = len(documents), batch.answers[0]
        tokens = batch.tokens[:, :length]
        logits = []
        for member in (None, 0, 1):

            def put(z, member=member, start=start, length=length):
                own = rows[member, start : start + length]
                return own.view(1, 1, length, z.shape[2], -1).transpose(2, 3)

            edits = {} if member is None else {WRITTEN: put}
            output = MODEL.forward(tokens, ["blocks.1.hook_resid_post"], edit=edits)
            logits.append(MODEL.read(output, batch.asked)[0, 0].log_softmax(-1))
            streams[0 if member is None else member + 1].append(output.recorded["blocks.1.hook_resid_post"][0, 0])
        for member in range(2):
            kl[member] += (logits[0].exp() * (logits[0] - logits[member + 1])).sum()
            ce[member] += cross_entropy(logits[member + 1], answers, reduction="sum")
        start, questions = start + length, questions + len(answers)
    own, *edited = (torch.cat(parts) for parts in streams)
    later = torch.stack([(e - own).square().sum() / (own - own.mean(0)).square().sum() for e in edited])

    def given(y):
        return sequences.world.target_normalization.apply(rows)

    assert undo(given(None)).sub(rows).abs().max() < 1e-5
    found = [
        cost(EndToEnd(), sequences, given, 2),
        cost(EndToEnd(loss="cross_entropy", weight=2.0), sequences, given, 2),
        cost(EndToEnd(weight=0.0, downstream=3.0), sequences, given, 2),
    ]
    for ours, theirs in zip(found, (kl / questions, 2 * ce / questions, 3 * later), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (kl / questions > 1e-4).all()


def test_the_cross_entropy_of_a_language_model_as_it_is_is_its_own(text):
    """Against transformers' own loss, window by window."""
    sequences = text("model.layers.1")
    found = cost(EndToEnd(loss="cross_entropy"), sequences, lambda x: x[None])
    drawn, model, losses = sequences.world.sequences(0, 100), sequences.model.model, []
    for tokens in drawn.tokens:
        ids = torch.tensor([[1, *tokens.tolist()]])
        labels = torch.where(ids == 1, -100, ids)
        labels[0, 1] = -100  # what follows the beginning is said at a token that has no row
        losses += [float(model(input_ids=ids, labels=labels).loss)] * (len(tokens) - 1)
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)
    torch.testing.assert_close(
        cost(EndToEnd(weight=9.0, downstream=9.0), sequences, lambda x: x[None]), torch.zeros(1), rtol=0, atol=1e-4
    )


def test_rows_are_put_where_they_were_read_in_a_language_model(text):
    """By hand: one window alone, its target's activations edited by a hook of torch."""
    sequences = text("model.layers.1.input_layernorm", "blocks.1.hook_mlp_out", size=9)
    drawn, model = sequences.world.sequences(1, 9), sequences.model.model
    rows = -drawn.target
    apart, start = [], 0
    for tokens in drawn.tokens:
        ids, own = torch.tensor([[1, *tokens.tolist()]]), rows[start : start + len(tokens)]
        clean = model(input_ids=ids).logits[0, 1:-1].log_softmax(-1)

        def put(_module, _given, y, own=own):
            return torch.cat([y[:, :1], own[None]], 1)

        handle = model.model.layers[1].mlp.register_forward_hook(put)
        edited = model(input_ids=ids).logits[0, 1:-1].log_softmax(-1)
        handle.remove()
        apart.append((clean.exp() * (clean - edited)).sum(-1))
        start += len(tokens)
    given = sequences.world.target_normalization.apply(rows)[None]
    torch.testing.assert_close(
        cost(EndToEnd(), sequences, lambda _: given, 1)[0], torch.cat(apart).mean(), rtol=1e-4, atol=1e-6
    )


def test_an_epoch_visits_every_training_sequence_once_and_none_that_is_held_out(tmp_path):
    sequences = stories(tmp_path, size=1)
    world, seen = sequences.world, []
    held = {int(row) for row in world.labelled_rows(10**6).documents}
    for position in range(200):
        drawn = world.sequences(position, 1)
        assert [positions.tolist() for positions in drawn.positions] == [list(range(len(drawn.x)))]
        seen.append(int(drawn.documents[0][0]))
    epoch = len(set(seen))
    assert 65 < epoch < 80 - len(held)
    assert len(set(seen[:epoch])) == len(set(seen[epoch : 2 * epoch])) == epoch
    assert seen[:epoch] != seen[epoch : 2 * epoch]
    assert not held & set(seen)


@pytest.mark.parametrize("reconstruction", [0.0, 1.0])
def test_stopping_and_going_on_ends_with_the_same_bits_and_company_does_not_matter(tmp_path, reconstruction):
    sequences = stories(tmp_path, site=READ)

    def go(seeds, until, state=None):
        mechanisms = {"end_to_end": stack_configs([EndToEnd(weight=3.0, reconstruction=reconstruction)] * len(seeds))}
        training = stack_configs([Training(steps=6, batch=200, learning_rate=1e-2)] * len(seeds))
        state = state or State.start(Dictionary(d_sae=12, activation=TopK(k=3)), 8, mechanisms, seeds)
        while state.step < until:
            advance(state, sequences.inputs(state.step), training, mechanisms)
        return state

    whole, half = go([0, 1], 6), go([0, 1], 3)
    resumed = go([0, 1], 6, half)
    assert all(torch.equal(tensor, resumed.tensors()[name]) for name, tensor in whole.tensors().items())
    alone = go([1], 6)
    torch.testing.assert_close(alone.stack.decoder, whole.stack.decoder[1:], rtol=1e-3, atol=1e-4)


def test_training_through_the_model_brings_its_output_nearer(tmp_path):
    """Held against what the untrained dictionary does to the same stories; nothing else is trained."""
    sequences, mechanisms = stories(tmp_path, site=READ), {"end_to_end": EndToEnd(weight=1e4, reconstruction=0.0)}
    training = stack_configs([Training(steps=40, batch=200, learning_rate=1e-2)])
    state, apart = State.start(Dictionary(d_sae=12, activation=TopK(k=3)), 8, mechanisms, [0]), []
    for until in (0, 40):
        while state.step < until:
            advance(state, sequences.inputs(state.step), training, mechanisms)
        stack = state.stack
        apart.append(float(cost(EndToEnd(), sequences, lambda x, s=stack: s.decode(s.encode(x)), 50)))
    assert apart[1] < 0.6 * apart[0]


def test_what_has_no_model_or_several_sites_is_refused(tmp_path, text, folders, keep_as_shards):  # noqa: F811
    training = Training(steps=1, batch=32)
    with pytest.raises(UserError, match=r"on the world 'Superposition', which has no model; accepted: activations"):
        fit(Superposition(dimensions=8), Dictionary(d_sae=8), [EndToEnd()], training, seeds=[0])
    with pytest.raises(UserError, match=r"holds several sites side by side; accepted: one site"):
        stories(tmp_path / "two", input=[READ, WRITTEN]).inputs(0)
    with pytest.raises(UserError, match=r"accepted for end_to_end: a causal model"):
        text("encoder.layer.1", kind="bert")
    other = stories(tmp_path / "one", site=READ)
    with pytest.raises(UserError, match="other activations than the model gives"):
        StorySequences(other.world, started(PLAIN, seed=4), WORLD, other.capture, 200).inputs(0)
    last = stories(tmp_path / "last", site="blocks.1.hook_resid_post")
    with pytest.raises(UserError, match=r"downstream is not 0, and no layer is behind the site"):
        cost(EndToEnd(downstream=1.0), last, lambda x: x[None])


def test_a_run_trains_through_the_model_it_has_trained(tmp_path, undrawn):
    run = run_config(tmp_path, "run", CONFIG.split("[cases.l1")[0] + "[mechanisms.end_to_end]\nreconstruction = 0.0\n")
    terms = read_log(run.stack(0) / "log.jsonl")[-1]["terms"]
    assert terms["reconstruction"] == [0.0]
    assert terms["end_to_end"][0] > 0
