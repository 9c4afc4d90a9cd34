"""An imported dictionary is a dictionary: scored, evaluated on a model, fine-tuned, explored, compared with ours."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import unbraid as ub
from tests.dictionaries.formats.conftest import D, F, K, autoencoder, same
from tests.dictionaries.formats.conftest import run as run_stack
from tests.dictionaries.formats.test_golden import GOLDEN
from tests.evaluation.language_model.conftest import WIDTH, folder, labelled, model, text  # noqa: F401 fixtures
from tests.explorer import small
from tests.pipeline.running import run_config
from tests.test_cli import unbraid
from unbraid.dictionaries.formats.convert import export
from unbraid.dictionaries.formats.hub import model_card
from unbraid.errors import UserError
from unbraid.pipeline.trained import load_stack
from unbraid.report.page import write_report

WORLD = f'[world]\nkind = "superposition"\ndimensions = {D}\nn_features = {F}\n[evaluation]\nsamples = 512\n'


def table(rule, path, **more):
    """The settings of a dictionary that begins at a file."""
    settings = {"d_sae": F, "pre_bias": True, "decoder_norm": "free", "init": {"from": str(path)}, **more}
    return {"activation": {"kind": rule} | ({"k": K} if "topk" in rule else {}), **settings}


# Scored


def test_one_that_is_the_truth_scores_as_the_truth(tmp_path):
    """Through SAELens' files and back: planted directions recover themselves, and random ones do not."""
    world = ub.Superposition(dimensions=32, n_features=48)
    planted = ub.Stack.start(ub.Dictionary(d_sae=48, activation=ub.TopK(k=4)), 32, [0])
    planted.encoder[0] = planted.decoder[0] = world.directions
    truth, drawn = (
        ub.load(export(stack, "saelens", tmp_path / name).path)
        for name, stack in {
            "truth": planted,
            "drawn": ub.Stack.start(ub.Dictionary(d_sae=48, activation=ub.TopK(k=4)), 32, [1]),
        }.items()
    )
    assert float(ub.score(truth, world, samples=512).values["mmcs"][0]) == pytest.approx(1, abs=1e-5)
    assert float(ub.score(drawn, world, samples=512).values["mmcs"][0]) < 0.7


# As it is, and fine-tuned: in the units of training and back


@pytest.mark.parametrize("rule", ["relu", "topk", "batchtopk", "jumprelu", "gated"])
def test_in_the_units_of_training_it_does_what_the_file_does(rule, keep_as_shards, tmp_path):
    """Read, brought to normalized inputs, and back to the model's: zero steps change nothing."""
    rows = 3 * torch.randn(1200, D, generator=torch.Generator().manual_seed(0)) + torch.arange(D)
    shards, stack = keep_as_shards(tmp_path / "shards", rows), autoencoder(rule, free=True)
    path = export(stack, "unbraid", tmp_path / "theirs").path
    world = {"kind": "activations", "path": str(shards), "normalize": "center_and_scale"}
    config = {"world": world, "dictionary": table(rule, path), "training": {"steps": 0}, "evaluation": {"samples": 64}}
    run = run_config(tmp_path / "runs", "as-it-is", config)
    same(run_stack(stack, rows[:200]), run_stack(load_stack(run.path), rows[:200]))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Ours, theirs as it is, and theirs trained further: one run."""
    begin = f'init = {{ from = "{GOLDEN / "saelens/topk"}" }}'
    config = f"""
{WORLD}
[dictionary]
d_sae = {F}
pre_bias = true
decoder_norm = "free"
activation = {{ kind = "topk", k = {K} }}
[training]
steps = 40
batch = 64
learning_rate = 1e-2
[cases.ours]
[cases.theirs]
dictionary.{begin}
training.steps = 0
[cases.fine-tuned]
dictionary.{begin}
[sweep]
seed = [0, 1]
"""
    return run_config(tmp_path_factory.mktemp("runs"), "compared", config)


def test_as_it_is_nothing_changes(compared):
    theirs, golden = load_stack(compared.path, 1), ub.load(GOLDEN / "saelens/topk")
    for member in (0, 1):
        held = theirs.member(member).tensors()
        assert all(held[name].equal(tensor) for name, tensor in golden.tensors().items())


def test_fine_tuning_begins_there_and_gets_better(compared):
    scores = {card["label"]: card["metrics"]["explained_variance"]["value"] for card in compared.settings()}
    label = {word: next(name for name in scores if word in name) for word in ("theirs", "fine-tuned")}
    assert scores[label["fine-tuned"]] > scores[label["theirs"]] + 0.1
    tuned, golden = load_stack(compared.path, 2), ub.load(GOLDEN / "saelens/topk")
    moved = float((tuned.encoder[0] - golden.encoder[0]).norm() / golden.encoder[0].norm())
    assert 0 < moved < 1


@pytest.mark.usefixtures("undrawn")
def test_one_report_compares_them(compared):
    page = write_report([compared], compared.path.parent / "both.html").read_text()
    assert all(word in page for word in ("ours", "theirs", "fine-tuned"))


def test_the_explorer_has_its_features(compared):
    client = small.client(compared.path.parent)
    for page in ("", "/features", "/features/1/0/3", "/concepts", "/directions"):
        answer = client.get(f"/runs/compared{page}")
        assert answer.status_code == 200, page
    assert "theirs" in client.get("/runs/compared").text


def test_what_does_not_fit_is_refused(tmp_path):
    path = GOLDEN / "saelens/topk"
    for number, (change, said) in enumerate(
        [
            ({"d_sae": 11}, "d_sae is 10 there and 11 here"),
            ({"activation": {"kind": "relu"}}, "activation.kind is topk there and relu here"),
            ({"pre_bias": False}, "has a pre-bias in the units of training"),
            ({"init": {"from": str(path), "member": 1}}, "holds 1 dictionaries; accepted: member 0 to 0"),
            ({"init": {"from": str(tmp_path / "none")}}, "there is no such file or folder"),
            ({"firing_share": 0.1, "activation": {"kind": "relu"}}, "firing_share was given beside init.from"),
        ]
    ):
        config = {"world": {"dimensions": D, "n_features": F}, "dictionary": table("topk", path) | change}
        with pytest.raises(UserError, match=said):
            run_config(tmp_path / "runs", f"refused-{number}", {**config, "training": {"steps": 1, "batch": 8}})


def test_without_a_step_there_is_nothing_to_track(tmp_path):
    path = GOLDEN / "saelens/topk"
    world = {"dimensions": D, "n_features": F}
    config = {"world": world, "dictionary": table("topk", path), "training": {"steps": 0}, "tracking": {"checks": 4}}
    run = run_config(tmp_path / "runs", "none", {**config, "evaluation": {"samples": 64}})
    assert ub.load_run(run.path).curves.empty
    assert "loss" not in run.settings()[0]["metrics"]


# On a model


@pytest.fixture
def imported(tmp_path, monkeypatch, capsys):
    """Dictionaries in SAELens' files, of the width and a site of the tiny model, as `unbraid import` leaves them."""
    monkeypatch.chdir(tmp_path)
    stack = ub.Stack.start(ub.Dictionary(d_sae=24, activation=ub.TopK(k=4), pre_bias=True), WIDTH, [0])
    known = {"site": "blocks.0.hook_resid_post"}
    export(stack, "saelens", tmp_path / "theirs", known)
    assert unbraid(capsys, "import", "theirs", "--as", "mine")[0] == 0
    return stack


def test_it_is_evaluated_on_a_model(imported, folder, text, labelled, capsys):  # noqa: F811 fixtures
    options = ["--labels", labelled / "told.jsonl", "--texts", 150, "--context", 16, "--tokens", 200, "--no-letters"]
    code, out, err = unbraid(capsys, "evaluate", "mine", folder, text, *options)
    assert code == 0, err
    assert out.splitlines()[-1] == "dictionaries/mine/language_model.json"
    shown = unbraid(capsys, "show", "mine")[1]
    assert "Loss recovered" in shown
    read = ub.load("dictionaries/mine")  # whose checksums hold
    metrics = read.metadata["scores"][0]["metrics"]
    assert {"loss_recovered", "probe_1", "explained_variance"} <= set(metrics)
    assert metrics["probe_1"]["chance"] is not None
    assert "| loss_recovered | " in model_card(read, "me/mine", "unbraid")


def test_without_a_site_the_command_asks_for_one(imported, folder, text, capsys):  # noqa: F811 fixtures
    replace(imported, metadata={}).save("dictionaries/nowhere")
    code, _, err = unbraid(capsys, "evaluate", "nowhere", folder, text)
    assert code == 2
    assert "accepted: --site, as blocks.3.hook_resid_post" in err
    assert not Path("dictionaries/nowhere/language_model.json").exists()


def test_a_transcoder_is_spliced_where_it_reads_and_writes(folder, text, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    plain = ub.Stack.start(ub.Dictionary(d_sae=24, pre_bias=True), WIDTH, [0])
    weights = {"decoder": torch.randn(1, 24, WIDTH), "decoder_bias": torch.randn(1, WIDTH)}
    stack = replace(plain, **weights, pre_bias=None, decoder_norm="free")
    export(stack, "saelens", tmp_path / "t", {"site": "blocks.0.hook_resid_pre", "target": "blocks.0.hook_mlp_out"})
    assert unbraid(capsys, "import", "t", "--as", "t")[0] == 0
    code, _, err = unbraid(capsys, "evaluate", "t", folder, text, "--no-letters", "--context", 16, "--tokens", 200)
    assert code == 0, err
    assert ub.load("dictionaries/t").metadata["target"] == "blocks.0.hook_mlp_out"
