"""The hub: what is uploaded to a stand-in on loopback comes back, with a card that says what it was trained on."""

import json
from dataclasses import replace

import pytest
from huggingface_hub import constants

import unbraid as ub
from tests.dictionaries.formats.conftest import autoencoder, inputs, run, same
from tests.dictionaries.formats.standin import serving
from tests.dictionaries.formats.test_golden import GOLDEN
from tests.test_cli import unbraid
from unbraid.dictionaries.formats.hub import is_hub_id, model_card, push
from unbraid.errors import UserError

KNOWN = {
    "model": "roneneldan/TinyStories-1M",
    "model_weights": "5d41402abc4b2a76",
    "site": "blocks.3.hook_resid_post",
    "text": "stories.txt",
    "context": 128,
    "seen": 2_048_000,
    "run": "first",
    "scores": [
        {
            "label": "k = 3",
            "metrics": {
                "l0": {"value": 3.0, "interval": [2.9, 3.1], "chance": None},
                "explained_variance": {"value": 0.8123, "interval": [0.79, 0.83], "chance": 0.21},
                "sharpness": {"value": 0.5, "interval": None, "chance": 0.1},
            },
        }
    ],
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The client talks to the stand-in, and keeps what it fetches in a folder of the test's own."""
    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield hub


def test_ours_go_up_and_come_back_whole(hub):
    stack = replace(autoencoder("gated", members=2), metadata=KNOWN)
    there = stack.push_to_hub("me/mine")
    assert there == "me/mine"
    assert sorted(hub.repositories["me/mine"]) == [
        *("README.md", "checksums.json", "dictionary.json", "metadata.json", "weights.safetensors")
    ]
    read = ub.load(there)
    assert read.members == 2
    assert all(read.tensors()[name].equal(tensor) for name, tensor in stack.tensors().items())
    assert (read.metadata["site"], read.metadata["seen"]) == (KNOWN["site"], KNOWN["seen"])


def test_members_go_up_for_saelens_each_in_a_folder(hub):
    stack = replace(autoencoder("jumprelu", members=2), metadata=KNOWN)
    assert stack.push_to_hub("me/sae", format="saelens") == "me/sae/member-0"
    assert {path.partition("/")[0] for path in hub.repositories["me/sae"]} == {"README.md", "member-0", "member-1"}
    for member in (0, 1):
        read = ub.load(f"me/sae/member-{member}")
        same(run(stack.member(member), inputs()), run(read, inputs()))
    cfg = json.loads(hub.repositories["me/sae"]["member-1/cfg.json"])
    assert cfg["metadata"]["hook_name"] == KNOWN["site"]
    card = hub.repositories["me/sae"]["README.md"].decode()
    assert card.startswith("---\nlibrary_name: saelens\n")
    assert 'SAE.from_pretrained("me/sae", "member-0")' in card


@pytest.mark.parametrize(
    "case",
    [
        "saelens/topk",
        "sparsify/transcode",
        "gemma_scope/jumprelu",
        "llama_scope/jumprelu",
        "dictionary_learning/AutoEncoder",
    ],
)
def test_what_others_uploaded_is_fetched(case, hub):
    """In a folder of a repository, with much else around it that is not fetched."""
    files = {
        f"layer_3/{path.relative_to(GOLDEN / case)}": path.read_bytes()
        for path in (GOLDEN / case).rglob("*")
        if path.is_file()
    }
    hub.repositories["them/theirs"] = {**files, "layer_4/huge.safetensors": b"", "README.md": b"# theirs"}
    place = "them/theirs/layer_3" + ("/ae.pt" if "learning" in case else "")
    read = ub.load(place)
    assert read.metadata["source"]["format"] == case.split("/")[0]
    local = ub.load(GOLDEN / case / "ae.pt" if "learning" in case else GOLDEN / case)
    assert all(read.tensors()[name].equal(tensor) for name, tensor in local.tensors().items())


def test_the_folder_that_is_uploaded_is_a_dictionary_where_it_is(hub, tmp_path):
    replace(autoencoder("topk"), metadata=KNOWN).push_to_hub("me/mine")
    for path, content in hub.repositories["me/mine"].items():
        (tmp_path / "local").mkdir(exist_ok=True)
        (tmp_path / "local" / path).write_bytes(content)
    same(run(autoencoder("topk"), inputs()), run(ub.load(tmp_path / "local"), inputs()))


def test_an_id_is_imported(hub, tmp_path, monkeypatch, capsys):
    autoencoder("relu").push_to_hub("me/mine")
    monkeypatch.chdir(tmp_path)
    code, out, _ = unbraid(capsys, "import", "me/mine", "--as", "mine", "--quiet")
    assert (code, out) == (0, "dictionaries/mine\n")
    same(run(autoencoder("relu"), inputs()), run(ub.load("dictionaries/mine"), inputs()))


# What a card says


def test_a_card_says_what_it_was_trained_on_and_how_it_scores():
    card = model_card(replace(autoencoder("topk"), metadata=KNOWN), "me/mine", "unbraid")
    for line in (
        "base_model: roneneldan/TinyStories-1M",
        "| fingerprint of the model's weights | 5d41402abc4b2a76 |",
        "| site | blocks.3.hook_resid_post |",
        "| tokens seen in training | 2,048,000 |",
        "| size | 10 features of 6 dimensions |",
        "## Scores: k = 3",
        "| explained_variance | 0.8123 | [0.79, 0.83] | 0.21 |",
        "| l0 | 3 | [2.9, 3.1] | – |",
        "| sharpness | 0.5 | – | 0.1 |",
        'stack = ub.load("me/mine")',
    ):
        assert line in card.splitlines(), line


def test_a_card_of_one_that_was_converted_says_so():
    card = model_card(ub.load(GOLDEN / "sparsify/transcode"), "me/mine", "unbraid")
    assert "| kind | 1 transcoder |" in card
    assert "converted from | sparsify; checked on 64 random inputs" in card


def test_a_planted_world_has_samples():
    card = model_card(replace(autoencoder("topk"), metadata={"world": "superposition", "seen": 64}), "a/b", "unbraid")
    assert "| samples seen in training | 64 |" in card


def test_a_card_cannot_be_broken_by_what_is_in_it():
    known = {"text": "a|b\nc", "model": "x\ny: z", "scores": []}
    card = model_card(replace(autoencoder("topk"), metadata=known), "a/b", "unbraid")
    assert "| text | a\\|b c |" in card
    assert "base_model" not in card


# What cannot be done


def test_uploads_that_fail_are_one_sentence(hub):
    hub.refuses_uploads = True
    with pytest.raises(UserError, match=r"the hub took no upload to me/mine: .*accepted: a repository you may write"):
        autoencoder("relu").push_to_hub("me/mine")
    with pytest.raises(UserError, match="is no id of a repository"):
        push(autoencoder("relu"), "mine")
    with pytest.raises(UserError, match="cannot hold an autoencoder with the rule topk"):
        push(autoencoder("topk"), "me/none", "gemma_scope")
    assert "me/none" not in hub.repositories
    with pytest.raises(UserError, match="there is no format"):
        push(autoencoder("topk"), "me/none", "nothing")
    with pytest.raises(UserError, match="accepted: a transcoder"):
        push(autoencoder("relu"), "me/none", "circuit_tracer")


def test_what_is_not_on_the_hub_is_one_sentence(hub):
    for place in ("me/none", "me/none/folder"):
        with pytest.raises(UserError, match=f"the hub gave no dictionary {place}") as refusal:
            ub.load(place)
        assert "\n" not in str(refusal.value)
    hub.repositories["me/text"] = {"README.md": b"# nothing else"}
    with pytest.raises(UserError, match="accepted"):
        ub.load("me/text")
    hub.repositories["me/cut"] = {"a/cfg.json": (GOLDEN / "saelens/topk/cfg.json").read_bytes()}
    hub.repositories["me/cut"]["a/sae_weights.safetensors"] = b"cut"
    with pytest.raises(UserError, match="not a whole safetensors file"):
        ub.load("me/cut/a")


@pytest.mark.parametrize(
    ("text", "known"), [("a/b", True), ("a/b/c/d", True), ("a", False), ("/a/b", False), ("a/../b", False), ("", False)]
)
def test_ids(text, known):
    assert is_hub_id(text) is known
