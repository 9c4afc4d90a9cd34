"""Transcoders and crosscoders of a trained model: sites in one pass, whole runs, and a model with a part replaced."""

import tomllib

import numpy as np
import pytest
import torch

from tests.pipeline.running import run_config
from tests.pipeline.test_capture_model import PLAIN, WORLD, started
from tests.pipeline.test_pipeline_kind import CONFIG
from unbraid.activations.normalization import Normalization
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.stack import ACTIVATIONS, Target
from unbraid.errors import UserError
from unbraid.evaluation.dictionaries import score
from unbraid.evaluation.replacement import Replacement, score_replacement
from unbraid.pipeline.capture_model import ActivationsConfig, capture_model
from unbraid.pipeline.expand import expand
from unbraid.pipeline.trained import load_stack
from unbraid.storage.files import read_arrays, read_json
from unbraid.worlds import PlantedMap, Superposition
from unbraid.worlds.activations import Activations

READ, WRITTEN = "blocks.1.hook_resid_mid", "blocks.1.hook_mlp_out"
SMALL = CONFIG.replace("[activations]\n", f'[activations]\ninput = "{READ}"\ntarget = "{WRITTEN}"\n')
SMALL = SMALL.split("[cases.l1")[0]


def rows(sites, folder):
    shards = capture_model(started(PLAIN), WORLD, ActivationsConfig(**sites, stories=80), folder)
    return shards.activations(np.arange(len(shards))), shards.manifest.origin


def test_several_sites_of_one_pass_are_those_of_a_pass_each(tmp_path):
    together, origin = rows({"input": READ, "target": WRITTEN}, tmp_path / "both")
    alone = [rows({"site": site}, tmp_path / site)[0] for site in (READ, WRITTEN)]
    torch.testing.assert_close(together, torch.cat(alone, 1))
    assert (origin.width, origin.input_width, origin.inputs, origin.targets) == (16, 8, (), (8,))
    assert origin.site == f"{READ} → {WRITTEN}"


def test_a_world_of_them_gives_inputs_and_targets_each_normalized(tmp_path):
    together, _ = rows({"input": READ, "target": WRITTEN}, tmp_path)
    world = Activations.model_validate({"path": str(tmp_path)})
    assert (world.dimensions, world.target_dimensions, world.sites) == (8, 8, ())
    batch = world.batch(0, 64)
    pairs = torch.cat([world.normalization.undo(batch.x), world.target_normalization.undo(batch.target)], 1)
    assert torch.cdist(pairs.double(), together.double()).amin(1).max() < 1e-4  # each is a row of the model's
    assert batch.target.norm(dim=1).mean() == pytest.approx(8**0.5, rel=0.2)


def test_a_world_of_several_inputs_knows_their_widths(tmp_path):
    rows({"input": [READ, "blocks.0.attn.hook_z"]}, tmp_path)
    world = Activations.model_validate({"path": str(tmp_path)})
    assert (world.dimensions, world.target_dimensions, world.sites) == (16, None, (8, 8))


def test_sites_that_are_not_there_or_given_twice_are_refused():
    for change, problem in (
        (f'input = "{READ}x"', "activations.input is 'blocks.1.hook_resid_midx', which the model has not"),
        ('target = "mlp"', "activations.target is 'mlp', which the model has not"),
        (f'site = "{WRITTEN}"\ninput = "{READ}"', "both site 'blocks.1.hook_mlp_out' and input"),
        (f'input = ["{READ}", "{READ}"]', "names a hook twice"),
        ("input = []", "empty list"),
    ):
        with pytest.raises(UserError, match=problem.replace("[", r"\[")):
            expand(tomllib.loads(CONFIG.replace("[activations]\n", f"[activations]\n{change}\n")), "here")
    with pytest.raises(UserError, match=r"a baseline cannot predict activations\.target"):
        expand(tomllib.loads(SMALL + '[baseline]\nkind = "kmeans"\n'), "here")


@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_folding_both_normalizations_is_normalizing_first_and_undoing_it_last(kind):
    rule = {"kind": kind, "k": 3} if "topk" in kind else {"kind": kind}
    torch.manual_seed(0)
    start = Stack.start(Dictionary(d_sae=9, activation=rule, skip=True, pre_bias=True), 6, [0, 1], target=Target(5))
    stack = start.with_parameters({n: p + 0.3 * torch.randn(p.shape) for n, p in start.parameters().items()})
    stack.normalize()
    before, after = Normalization(torch.linspace(-3, 5, 6), 7.0), Normalization(torch.linspace(2, -1, 5), 0.3)
    x = before.undo(2 * torch.randn(200, 6))
    folded, y = fold(stack, before, after), before.apply(x)
    assert (stack.encode(y).to_dense() != 0).any()
    expected = after.undo(stack.decode(stack.encode(y), y))
    torch.testing.assert_close(folded.decode(folded.encode(x), x), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(folded.decoder.norm(dim=-1), torch.ones(2, 9))


def exact(width):
    """A crosscoder that reconstructs everything: every axis and its opposite."""
    rows = torch.cat([torch.eye(width), -torch.eye(width)])[None]
    start = Stack.start(Dictionary(d_sae=2 * width), width, [0])
    return start.with_parameters({"encoder": rows, "decoder": rows})


def test_a_model_with_what_is_the_same_in_place_answers_as_it_did():
    sites = (READ, "blocks.0.hook_resid_post")
    replacement = Replacement(started(PLAIN), WORLD, sites, sites, 70)
    clean = replacement.answers()
    scores = score_replacement(exact(16), [Stack.start(Dictionary(d_sae=32), 16, [1])], replacement)
    assert scores["values"]["spliced_accuracy"] == [clean.accuracy] == [scores["ceiling"]["spliced_accuracy"]]
    assert scores["values"]["loss_recovered"][0] == pytest.approx(1, abs=1e-4)
    assert scores["chance"]["loss_recovered"] != pytest.approx(1, abs=1e-2)


def test_the_mean_in_place_of_an_mlp_is_the_mean_edited_in():
    """By hand: an edit that writes the mean at every token that is not padding."""
    model, replacement = started(PLAIN), Replacement(started(PLAIN), WORLD, (READ,), (WRITTEN,), 20)
    mean = replacement.mean()
    batch = WORLD.batch(0, 64, split="replacement").first(20)
    recorded = model.forward(batch.tokens, [WRITTEN]).recorded[WRITTEN][0]
    torch.testing.assert_close(mean, recorded[batch.mask].mean(0), rtol=1e-4, atol=1e-5)
    masked = torch.where(batch.mask[..., None], mean, recorded)
    output = model.forward(batch.tokens, [], edit={WRITTEN: lambda _: masked[None]})
    logits = model.read(output, batch.asked)[0].flatten(0, 1)
    answered = replacement.answers(lambda x: mean.expand(len(x), -1))
    loss = torch.nn.functional.cross_entropy(logits, batch.answers.flatten())
    assert answered.loss == pytest.approx(loss.item(), abs=1e-4)


def test_a_run_of_transcoders_scores_them_and_replaces_the_mlp(tmp_path, undrawn):
    run = run_config(tmp_path, "run", SMALL + '[dictionary.activation]\nkind = "topk"\nk = 3\n')
    folder = run.stack(0)
    scores, replaced = read_json(folder / "scores.json"), read_json(folder / "replacement.json")
    assert {"phi", "explained_variance", "l0"} <= set(scores["values"])
    assert set(replaced["values"]) == {"spliced_accuracy", "loss_recovered"}
    assert "target.mean" in read_arrays(folder / "normalization.safetensors")
    settings = read_json(run.path / "scores.json")["settings"]
    assert "loss_recovered" in settings[0]["metrics"]
    stack = load_stack(run.path)
    assert stack.is_transcoder
    assert (stack.d_in, stack.d_out) == (8, 8)


def test_a_run_of_crosscoders_keeps_their_sites(tmp_path, undrawn):
    several = CONFIG.replace("[activations]\n", f'[activations]\ninput = ["{READ}", "blocks.0.hook_resid_post"]\n')
    cost = '[mechanisms.sparsity]\nweigh_by = "decoder_norm"\n'
    run = run_config(tmp_path, "run", several.split("[cases.l1")[0] + cost)
    stack = load_stack(run.path)
    assert stack.site_norms().shape == (1, 8, 2)
    assert not stack.is_transcoder
    assert (run.stack(0) / "replacement.json").is_file()


def test_a_dictionary_of_inputs_is_not_scored_against_other_targets():
    world = PlantedMap(dimensions=8, n_features=10, d_out=8, n_targets=8)
    with pytest.raises(UserError, match="accepted: a transcoder"):
        score(Stack.start(Dictionary(d_sae=4), 8, [0]), world, 64)
    assert score(Stack.start(Dictionary(d_sae=4), 8, [0]), Superposition(dimensions=8), 64).values
