"""The page of heads: the attention, the mass on what supports the answer, and the heads that buttons lead to."""

import re

import numpy as np

from tests.explorer.small import client, folder
from unbraid.results import load_run
from unbraid.storage.files import read_arrays, read_json


def story():
    card = read_json(folder() / "models/stacks/00/stories.json")["members"]["0"][0]
    return card, read_arrays(folder() / "models/stacks/00/tables.safetensors")["pattern.0"][0].astype(float)


def mass():
    card, patterns = story()
    pairs = zip(card["asked"], card["support"], strict=True)
    return np.mean([patterns[:, :, asked][..., support].sum(-1) for asked, support in pairs], axis=0)


def test_mass_on_the_support_is_that_of_the_tables():
    page = client().get("/runs/models/heads?stack=0&member=0&layer=0&head=1").text
    assert f"<strong>{mass()[0, 1]:.2f}</strong> of the questions" in page
    assert page.count('alt="" width="96"') == mass().size


def test_buttons_lead_to_the_best_and_the_sharpest_head():
    layer, head = np.unravel_index(mass().argmax(), mass().shape)
    answer = client().get("/runs/models/heads?stack=0&member=0&pick=best", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].endswith(f"layer={layer}&head={head}")
    for pick in ("random", "sharpest"):
        assert client().get(f"/runs/models/heads?pick={pick}").status_code == 200
    assert client().get("/runs/models/heads?pick=worst").status_code == 400


def test_a_token_shows_what_it_looks_at():
    card, patterns = story()
    page = client().get("/runs/models/heads?stack=0&member=0&layer=0&head=0&query=3").text
    shown = [float(value) for value in re.findall(r'<a class="lit-\d[^"]*" href="[^"]+" title="[^"]*: ([\d.]+)"', page)]
    assert np.allclose(shown, patterns[0, 0, 3], atol=6e-4)
    assert len(shown) == len(card["words"])


def test_chosen_heads_alone():
    page = client().get("/runs/models/heads?chosen=0.0&chosen=1.1&chosen=7.7&chosen=x").text
    assert page.count('alt="" width="96"') == 2


def test_a_run_without_attention_and_a_head_there_is_not():
    assert client().get("/runs/planted/heads").status_code == 404
    assert client().get("/runs/models/heads?layer=99").status_code == 400


def test_a_pipeline_shows_the_heads_of_the_model_it_learned_from():
    stack = folder() / "pipeline/stacks/00"
    pattern = read_arrays(stack / "heads.safetensors")["pattern.0"][0].astype(float)
    words = read_json(stack / "stories.json")["members"]["0"][0]["words"]
    page = client().get("/runs/pipeline/heads?stack=0&member=0&layer=0&head=0&query=2").text
    shown = [float(value) for value in re.findall(r'<a class="lit-\d[^"]*" href="[^"]+" title="[^"]*: ([\d.]+)"', page)]
    assert np.allclose(shown, pattern[0, 0, 2][: len(words)], atol=6e-4)
    heads = load_run(folder() / "pipeline").heads
    assert len(heads) == 2 * pattern.shape[0] * pattern.shape[1]  # two stacks, the first member of each
