"""The worker behind the Try page answers what the library's own functions give, and lives on after bad requests."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import unbraid as ub
from tests.activations.conftest import tokenizer
from tests.pipeline.running import create, finish
from unbraid.activations.capture import CaptureConfig, capture
from unbraid.activations.huggingface import load_model
from unbraid.errors import UserError
from unbraid.evaluation.causal import EditableModel
from unbraid.pipeline.dictionary_stages import TrainStack
from unbraid.pipeline.model_stages import CaptureActivations
from unbraid.pipeline.serve import Worker, serve
from unbraid.pipeline.stage import Context, in_order
from unbraid.progress import Silent, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache

CONFIGS = Path(__file__).parents[1] / "regression/configs"
PIPELINE = tomllib.loads((CONFIGS / "pipeline.toml").read_text())
MODELS = {
    "kind": "models",
    "world": {"kind": "stories", "task": "one_fact", "layout": "single", "rounds": 2},
    "model": {**PIPELINE["model"], "training": {"steps": 3, "batch": 4}, "evaluation": {"stories": 8, "heads": 4}},
}
TEXT = {
    "kind": "language_models",
    "world": {"kind": "text", "context": 16, "validation": 400},
    "model": {**MODELS["model"], "layers": 2},
}
STORY = "john went to the garden . mary moved to the kitchen . where is john ?"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    config = {**PIPELINE, "cases": {name: PIPELINE["cases"][name] for name in ("l1", "pca")}, "sweep": {"seed": [0, 1]}}
    return finish(create(tmp_path_factory.mktemp("served"), "pipeline", config))


@pytest.fixture(scope="module")
def worker(pipeline):
    return Worker(pipeline.path)


def probabilities(prediction):
    return {entry["answer"]: entry["probability"] for entry in prediction["top"]}


def world_of(worker: Worker) -> Any:
    return getattr(worker.plan.first, "world")  # noqa: B009 (only some kinds have one)


def causal_parts(worker, stack):
    """The model of a stack as the causal stages edit it, and its dictionaries as training left them."""
    stages = in_order(worker.plan.stacks[stack].first.stages(worker.plan.stacks[stack]))
    captured = next(stage for stage in stages if isinstance(stage, CaptureActivations))
    trained = next(stage for stage in stages if isinstance(stage, TrainStack))
    cache = Cache(worker.run.cache)
    keys = frozenset(stage.key for stage in stages)
    context = Context(cache.path, cache, TaskProgress(Silent(), 0), StopSignals(""), keys)
    normalization = captured.opened(context).normalization
    model = EditableModel(captured.training.loaded(context), captured.capture.site, normalization)
    return model, trained.trained(context), captured.world


def test_features_and_answers_are_those_of_model_and_stack(worker):
    model, stack, world = causal_parts(worker, 0)
    tokens = torch.tensor([[world.vocabulary.index(word) for word in STORY.split()]])
    answer = worker.answer({"op": "read", "text": STORY.replace(" .", ".").title(), "stack": 0, "member": 1})
    assert answer["tokens"] == STORY.split()
    output = model.model.forward(tokens, [model.site, "blocks.0.attn.hook_pattern"])
    codes = stack.member(1).encode(model.normalization.apply(output.recorded[model.site][0, 0])).to_dense()[0]
    for row, shown in zip(codes, answer["features"], strict=True):
        expected = sorted(row[row > 1e-4].tolist(), reverse=True)[:10]
        assert [entry["value"] for entry in shown if entry["value"] > 1e-4] == pytest.approx(expected, abs=2e-4)
        assert all(row[entry["feature"]] == pytest.approx(entry["value"], abs=2e-4) for entry in shown)
    pattern = output.recorded["blocks.0.attn.hook_pattern"][0, 0]
    torch.testing.assert_close(torch.tensor(answer["attention"][0]), pattern, atol=1e-4, rtol=0)
    logits = model.model.read(output, torch.tensor([[15]]))[0, 0, 0]
    [prediction] = answer["predictions"]
    assert prediction["position"] == 15
    likely, best = logits.softmax(-1).topk(5)
    assert [entry["answer"] for entry in prediction["top"]] == [world.answers[number] for number in best]
    assert [entry["probability"] for entry in prediction["top"]] == pytest.approx(likely.tolist(), abs=1e-4)
    assert answer["edited"] is None


@pytest.mark.parametrize("scale", [0.0, -3.0])
def test_an_edit_does_what_the_edit_of_causal_scores_does(worker, scale):
    """In the dictionary's units, as `FactorTest.effect` adds a change: not folded, and through another forward pass."""
    model, stack, world = causal_parts(worker, 0)
    tokens = torch.tensor([[world.vocabulary.index(word) for word in STORY.split()]])
    clean = model.model.forward(tokens, [model.site])
    codes = stack.member(0).encode(model.normalization.apply(clean.recorded[model.site][0, 0])).to_dense()[0]
    feature = int(codes.sum(0).argmax())
    change = (scale - 1) * codes[:, feature, None] * stack.decoder[0, feature] * model.normalization.scale
    edited = model.model.forward(tokens, edit={model.site: lambda x: x + change})
    expected = model.model.read(edited, torch.tensor([[15]]))[0, 0, 0].softmax(-1)
    request = {"op": "read", "text": STORY, "edits": [{"feature": feature, "scale": scale}]}
    answer = worker.answer(request)
    [after], [before] = answer["edited"], answer["predictions"]
    for entry in after["top"]:
        assert entry["probability"] == pytest.approx(float(expected[world.answers.index(entry["answer"])]), abs=1e-4)
    assert max(abs(entry["probability"] - entry["before"]) for entry in after["top"]) > 1e-3
    common = probabilities(before)
    assert all(entry["before"] == common[entry["answer"]] for entry in after["top"] if entry["answer"] in common)
    unchanged = worker.answer({**request, "edits": [{"feature": feature, "scale": 1.0}]})
    assert probabilities(unchanged["edited"][0]) == probabilities(before)


def test_a_transcoder_reads_at_one_site_and_its_edits_are_written_at_the_other(tmp_path):
    """By hand: what the model writes at the target, and a change of one feature in the dictionary's own units."""
    read, written = "blocks.0.hook_resid_mid", "blocks.0.hook_mlp_out"
    config = {**PIPELINE, "cases": {}, "sweep": {}, "dictionary": {"d_sae": 12, "activation": {"kind": "topk", "k": 3}}}
    config["activations"] = {"input": read, "target": written, "stories": 300}
    worker = Worker(finish(create(tmp_path, "transcoders", config)).path)
    assert worker.answer({"op": "describe"})["stacks"][0]["site"] == f"{read} → {written}"
    stages = in_order(worker.plan.stacks[0].first.stages(worker.plan.stacks[0]))
    captured = next(stage for stage in stages if isinstance(stage, CaptureActivations))
    trained = next(stage for stage in stages if isinstance(stage, TrainStack))
    cache = Cache(worker.run.cache)
    keys = frozenset(stage.key for stage in stages)
    context = Context(cache.path, cache, TaskProgress(Silent(), 0), StopSignals(""), keys)
    opened, stack, model = captured.opened(context), trained.trained(context), captured.training.loaded(context)
    tokens = torch.tensor([[captured.world.vocabulary.index(word) for word in STORY.split()]])
    clean = model.forward(tokens, [read])
    codes = stack.encode(opened.normalization.apply(clean.recorded[read][0, 0])).to_dense()[0]
    answer = worker.answer({"op": "read", "text": STORY})
    for row, shown in zip(codes, answer["features"], strict=True):
        assert {e["feature"]: e["value"] for e in shown} == {
            feature: pytest.approx(float(row[feature]), abs=2e-4) for feature in row.nonzero()[:, 0].tolist()
        }
    feature = int(codes[15].argmax())  # at the question mark: behind the last layer no token is read by another
    change = -3 * codes[:, feature, None] * stack.decoder[0, feature] * opened.target_normalization.scale
    edited = model.forward(tokens, edit={written: lambda y: y + change})
    expected = model.read(edited, torch.tensor([[15]]))[0, 0, 0].softmax(-1)
    [after] = worker.answer({"op": "read", "text": STORY, "edits": [{"feature": feature, "scale": -2.0}]})["edited"]
    for entry in after["top"]:
        place = captured.world.answers.index(entry["answer"])
        assert entry["probability"] == pytest.approx(float(expected[place]), abs=1e-4)
    assert max(abs(entry["probability"] - entry["before"]) for entry in after["top"]) > 1e-4


def test_a_run_is_described_and_a_baseline_has_a_model_and_no_features(worker):
    card = worker.answer({"op": "describe"})
    assert card["kind"] == "pipeline"
    first, second = card["stacks"]
    assert (first["features"], second["features"]) == (16, None)
    assert (first["layers"], first["heads"], first["vocabulary"]) == (1, 2, 25)
    assert [member["replicate"] for member in first["members"]] == ["0/0/0", "0/0/1"]
    read = worker.answer({"op": "read", "text": first["example"], "stack": 1})
    assert not any(read["features"])
    assert len(read["predictions"]) == 2
    with pytest.raises(UserError, match="no dictionary"):
        worker.answer({"op": "read", "text": first["example"], "stack": 1, "edits": [{"feature": 0, "scale": 0}]})


def test_an_example_names_what_its_answers_follow_from(worker):
    example = worker.answer({"op": "example", "index": 5})
    words = example["text"].split()
    for question in example["questions"]:
        assert words[question["position"]] == "?"
        support = [words[place] for place in question["support"]]
        assert question["answer"] in support
        assert words[question["position"] - 1] in support


BAD = {
    "no json": ("{", "accepted: one with op"),
    "no object": ("[]", "accepted: one with op"),
    "no op": ('{"op": "reed"}', "read"),
    "a word": ('{"op": "read", "text": "where is bob ?"}', "no word 'bob'"),
    "no question": ('{"op": "read", "text": "john went to the garden ."}', "asks 0 questions"),
    "no text": ('{"op": "read"}', "accepted: a text"),
    "too long": (json.dumps({"op": "read", "text": "where is john ? " * 200}), "800 tokens"),
    "no member": ('{"op": "read", "text": "where is john ?", "member": 2}', "no member 2 of stack 0"),
    "a name": ('{"op": "read", "text": "where is john ?", "stack": "../x"}', "accepted: a whole number"),
    "no feature": ('{"op": "read", "text": "where is john ?", "edits": [{"feature": 16}]}', "accepted: 0 to 15"),
    "nan": ('{"op": "read", "text": "where is john ?", "edits": [{"feature": 1, "scale": NaN}]}', "a scale is nan"),
}


def test_bad_requests_are_answered_in_a_sentence_and_the_next_is_answered_well(worker):
    lines = [line for line, _ in BAD.values()] + ['{"id": 7, "op": "example"}']
    written: list[str] = []
    serve(worker, lines, written.append)
    *errors, last = map(json.loads, written)
    for answer, (_, expected) in zip(errors, BAD.values(), strict=True):
        assert expected in answer["error"]
    assert last["id"] == 7
    assert last["questions"]


def test_models_on_single_questions_get_their_separators(tmp_path):
    run = finish(create(tmp_path, "models", MODELS))
    worker = Worker(run.path)
    answer = worker.answer({"op": "read", "text": STORY})
    written = "john went to the garden . <ssep> mary moved to the kitchen . <ssep> <sep> where is john ?"
    words = written.split()
    assert answer["tokens"] == words
    models, world = ub.load_models(run.path), world_of(worker)
    tokens = torch.tensor([[world.vocabulary.index(word) for word in words]])
    expected = models.read(models.forward(tokens), torch.tensor([[len(words) - 1]]))[0, 0, 0].softmax(-1)
    for name, share in probabilities(answer["predictions"][0]).items():
        assert share == pytest.approx(float(expected[world.answers.index(name)]), abs=1e-4)
    example = worker.answer({"op": "example", "index": 1})
    assert worker.answer({"op": "read", "text": example["text"]})["tokens"] == example["text"].split()


def test_language_models_predict_at_every_token(tmp_path):
    run = finish(create(tmp_path, "text", TEXT))
    worker = Worker(run.path)
    [card] = worker.answer({"op": "describe"})["stacks"]
    assert card["reads"] == "text"
    answer = worker.answer({"op": "read", "text": "The cat"})
    assert "".join(answer["tokens"]) == "The cat"
    assert answer["layers"] == [0, 1]
    models, world = ub.load_models(run.path), world_of(worker)
    tokens = torch.from_numpy(world.tokenized.tokenizer.encode("The cat")).long()[None]
    shares = models.read(models.forward(tokens), torch.arange(7)[None])[0, 0].softmax(-1)
    for row, prediction in zip(shares, answer["predictions"], strict=True):
        assert [e["probability"] for e in prediction["top"]] == pytest.approx(row.topk(5).values.tolist(), abs=1e-4)


def test_dictionaries_of_a_hugging_face_folder(tmp_path):
    words = tokenizer()
    assert isinstance(words, PreTrainedTokenizerFast)
    torch.manual_seed(0)
    small = GPT2Config(vocab_size=20, n_embd=12, n_layer=2, n_head=2, n_positions=32, initializer_range=0.3)
    GPT2LMHeadModel(small).save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n\nthe big dog ran and saw the small tree\n\n" * 20)
    site = "blocks.0.hook_resid_post"
    config = CaptureConfig(model=str(tmp_path / "model"), text=str(tmp_path / "text.txt"), site=site, context=16)
    capture(config, tmp_path / "shards")
    dictionary = {"d_sae": 24, "activation": {"kind": "topk", "k": 3}}
    data = {
        "world": {"kind": "activations", "path": str(tmp_path / "shards")},
        "dictionary": dictionary,
        "training": {"steps": 20, "batch": 32},
        "evaluation": {"samples": 64},
    }
    run = finish(create(tmp_path / "runs", "tiny", data))
    worker, stack = Worker(run.path), ub.load_stack(run.path)
    model: Any = load_model(tmp_path / "model").model
    [card] = worker.answer({"op": "describe"})["stacks"]
    assert (card["layers"], card["heads"], card["vocabulary"], card["features"]) == (2, 2, 20, 24)
    answer = worker.answer({"op": "read", "text": "the cat sat", "edits": []})
    assert answer["tokens"] == ["<s>", "the", "cat", "sat", "</s>"]
    tokens = torch.tensor([words("the cat sat")["input_ids"]])
    output = model(tokens, output_hidden_states=True)
    x = output.hidden_states[1][0, 1:4]
    codes, scale = stack.encode(x).to_dense()[0], world_of(worker).normalization.scale
    assert not answer["features"][0]
    assert not answer["features"][4]
    for row, shown in zip(codes, answer["features"][1:4], strict=True):
        assert {e["feature"]: e["value"] for e in shown} == {
            feature: pytest.approx(float(row[feature]) / scale, abs=2e-4) for feature in row.nonzero()[:, 0].tolist()
        }
    shares = output.logits[0].softmax(-1)
    for row, prediction in zip(shares, answer["predictions"], strict=True):
        assert [e["probability"] for e in prediction["top"]] == pytest.approx(row.topk(5).values.tolist(), abs=1e-4)
    torch.testing.assert_close(torch.tensor(answer["attention"]).sum(-1), torch.ones(2, 2, 5), atol=1e-3, rtol=0)

    feature = int(codes.sum(0).argmax())
    edited = codes.clone()
    edited[:, feature] = 0
    replaced = output.hidden_states[1].clone()
    replaced[0, 1:4] += (edited - codes) @ stack.decoder[0]
    block = model.transformer.h[1](replaced)
    block = block[0] if isinstance(block, tuple) else block
    shares = model.lm_head(model.transformer.ln_f(block))[0].softmax(-1)
    after = worker.answer({"op": "read", "text": "the cat sat", "edits": [{"feature": feature, "scale": 0}]})["edited"]
    for row, prediction in zip(shares, after, strict=True):
        assert [e["probability"] for e in prediction["top"]] == pytest.approx(row.topk(5).values.tolist(), abs=1e-4)
    assert any(abs(e["probability"] - e["before"]) > 1e-3 for prediction in after for e in prediction["top"])


def test_a_run_without_a_model_is_described_as_nothing_and_refused(tmp_path):
    data = {"world": {"dimensions": 6, "n_features": 8}, "dictionary": {"d_sae": 8}, "training": {"steps": 3}}
    worker = Worker(finish(create(tmp_path, "none", data)).path)
    assert worker.answer({"op": "describe"}) == {"kind": "dictionaries", "stacks": []}
    with pytest.raises(UserError, match="has no model"):
        worker.answer({"op": "read", "text": "a"})
