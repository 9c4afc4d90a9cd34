"""Features are browsed, sorted, searched and shown with the values of the index; nothing from data is markup."""

import re
import shutil

import numpy as np
import pandas as pd

from tests.explorer.small import client, folder
from unbraid.explorer.features import VERDICTS, _nearest, bars, lens_rows, level
from unbraid.metrics.catalog import CONCEPT_FATES
from unbraid.storage.feature_index import FeatureIndex, pack_names
from unbraid.storage.files import read_arrays, read_json, write_arrays
from unbraid.storage.runs import Run

ROW = re.compile(r'<th scope="row"><a href="[^"]+">feature (\d+)</a>')
HOSTILE = "<script>alert('x')</script>\"&"


def index(run="pipeline"):
    opened = FeatureIndex.open(folder() / run / "stacks/00")
    assert opened is not None
    return opened


def listed(query, run="pipeline"):
    return [int(number) for number in ROW.findall(client().get(f"/runs/{run}/features?stack=0&member=0&{query}").text)]


def test_any_column_sorts_both_ways():
    for name, column in (("density", "rate"), ("phi", "phi"), ("largest", "largest")):
        values = np.nan_to_num(index().table(0)[column][listed(f"sort={name}&order=falling")], nan=-np.inf)
        assert (np.diff(values) <= 0).all()
        assert len(values) == index().features(0)
        assert (
            np.diff(np.nan_to_num(index().table(0)[column][listed(f"sort={name}&order=rising")], nan=-np.inf)) >= 0
        ).all()


def test_search_finds_tokens_and_concepts():
    arrays = read_arrays(folder() / "pipeline/stacks/00/feature_index.safetensors")
    word = index().vocabulary[int(arrays["0.token"][listed("")[0], 0])]
    found = listed(f"search={word}")
    named = [n for n, text in enumerate(index().vocabulary) if word in text]
    concepts = [n for n, text in enumerate(index().concepts) if word in text]
    expected = np.isin(arrays["0.token"], named).any(1) | np.isin(arrays["0.concept"], concepts)
    assert found
    assert sorted(found) == np.flatnonzero(expected).tolist()
    assert listed("search=nosuchword") == []


def test_a_range_of_density_and_a_verdict():
    rates = 100 * index().table(0)["rate"]
    assert sorted(listed("low=5&high=30")) == np.flatnonzero((rates >= 5) & (rates <= 30)).tolist()
    assert sorted(listed("verdict=dead")) == np.flatnonzero(rates == 0).tolist()
    for bad in ("low=x", "high=101", "verdict=good", "sort=beauty", "page=9"):
        assert client().get(f"/runs/pipeline/features?{bad}").status_code == 400, bad


def test_a_feature_has_its_contexts_with_values_and_truth():
    feature = listed("sort=density")[0]
    record, page = index().feature(0, feature), client().get(f"/runs/pipeline/features/0/0/{feature}").text
    strongest = record.contexts["strongest"][0]
    assert f"{strongest.value:.3g}" in page
    assert page.count(' here"') == sum(map(len, record.contexts.values()))
    underlined = sum(
        any(name == record.concept for name, _ in on)
        for contexts in record.contexts.values()
        for context in contexts
        for on in context.truth
    )
    assert len(re.findall(r'class="lit-\d truth', page)) == underlined
    assert all(f'/features/0/0/{other}"' in page for other, _ in record.neighbours)


def test_a_sample_of_a_planted_world_is_a_row_of_chips():
    feature = listed("sort=density", "planted")[0]
    record, page = index("planted").feature(0, feature), client().get(f"/runs/planted/features/0/0/{feature}").text
    chips = sum(len(context.truth[0]) for contexts in record.contexts.values() for context in contexts)
    assert chips
    assert page.count('class="chip') == chips


def test_a_card_stands_alone():
    answer = client().get("/runs/pipeline/features/0/0/1?card=1")
    assert answer.headers["content-disposition"] == 'attachment; filename="pipeline-0-0-feature-1.html"'
    assert "<style>" in answer.text
    assert ".lit-8" in answer.text
    assert not re.search(r'(src|href)="(?!data:)|<script', answer.text)


def test_permalinks_outside_say_what_is_accepted():
    for address in ("9/0/0", "0/9/0"):
        assert client().get(f"/runs/pipeline/features/{address}").status_code == 404
    for address in ("0/0/999", "0/0/x", "0/0/-1"):
        answer = client().get(f"/runs/pipeline/features/{address}")
        assert answer.status_code == 400
        assert "accepted" in answer.text


def test_hostile_tokens_and_concepts_are_text(tmp_path):
    shutil.copytree(folder() / "pipeline", tmp_path / "hostile")
    path = tmp_path / "hostile/stacks/00/contexts.safetensors"
    with Run(tmp_path / "hostile").adding("stacks"):
        contexts = read_arrays(folder() / "pipeline/stacks/00/contexts.safetensors")
        contexts |= pack_names("vocabulary", [HOSTILE] * len(index().vocabulary))
        write_arrays(path, contexts | pack_names("concepts", [HOSTILE] * len(index().concepts)))
    for address in ("features", "features/0/0/1", "features/0/0/1?card=1", "concepts/1", f"features?search={HOSTILE}"):
        page = client(tmp_path).get(f"/runs/hostile/{address}")
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert address.startswith("concepts") or "&lt;script&gt;alert" in page.text


def test_levels_and_bars():
    assert [level(v, 2.0) for v in (0.0, -1.0, 0.01, 1.0, 2.0, 9.0, float("nan"))] == [0, 0, 1, 4, 8, 8, 0]
    assert bars([(0.0, 1.0, 2), (1.0, 2.0, 8)]) == [(0.0, 25.0, "0 to 1: 2"), (50.0, 100.0, "1 to 2: 8")]


def test_a_feature_shows_what_it_does_to_the_output():
    opened = index()
    feature = next(f for f in range(opened.features(0)) if opened.feature(0, f).effect_questions)
    record = opened.feature(0, feature)
    page = client().get(f"/runs/pipeline/features/0/0/{feature}").text
    table = page.split('<table class="effects">')[1].split("</table>")[0]
    cells = re.findall(r"<td class=\"\w+\">(?:<code>)?([^<]+)", table)
    found = [(cells[i], cells[i + 1]) for i in range(0, len(cells), 2)]
    assert len(record.answers) == 6
    assert found[0::2] == [(name, f"{value:+.3f}") for name, value in record.answers[:3]]
    assert found[1::2] == [(name, f"{value:+.3f}") for name, value in record.answers[3:]]
    assert f">{record.effect:+.3f}</strong>" in page
    assert f"mean of {record.effect_questions} questions" in page
    assert ("no layer comes after it" in page) == opened.lens_is_exact
    assert "Effect on the output" not in client().get("/runs/planted/features/0/0/0").text


def test_what_is_raised_stands_beside_what_is_lowered():
    assert lens_rows([("a", 2.0), ("b", 1.0), ("c", -3.0)]) == [(("a", 2.0), ("c", -3.0)), (("b", 1.0), None)]
    assert lens_rows([]) == []


def test_a_near_feature_has_the_verdict_of_its_nearest_concept():
    stack = folder() / "planted/stacks/00"
    tables, truth = (read_arrays(stack / name) for name in ("tables.safetensors", "truth.safetensors"))
    planted, learned = truth["directions"].astype(float), read_arrays(stack / "weights.safetensors")["decoder"][0]
    lengths = np.linalg.norm(planted, axis=1)[:, None] * np.linalg.norm(learned, axis=1)
    cosines = (planted @ learned.T) / lengths
    near = [f for f in range(cosines.shape[1]) if cosines[:, f].max() >= 0.9 and tables["density"][0][f] > 0]
    fates = [CONCEPT_FATES[tables["fate"][0][cosines[:, f].argmax()]] for f in near]
    assert near
    for feature, fate in zip(near, fates, strict=True):
        found = [verdict for verdict in VERDICTS if feature in listed(f"verdict={verdict}", "planted")]
        assert found == [fate if fate in VERDICTS else "none"]


def test_nearest_is_by_cosine_and_not_by_how_they_fire():
    """Feature 1 fires with concept 0, but has concept 1's direction; feature 2 is nobody's best."""
    frame = pd.DataFrame({"best_feature": [0, 1], "best_cosine": [0.99, 0.95]})
    columns = {"concept": np.array([0, 0, 1]), "truth_cosine": np.array([0.99, 0.95, 0.92])}
    assert _nearest(frame, columns).tolist() == [0, 1, 1]


def test_both_kinds_of_phi_say_what_they_are():
    concepts = read_json(folder() / "pipeline/stacks/00/features.json")["members"]["0"]["concepts"]
    number = next(n for n, card in enumerate(concepts) if card["features"] and card["phi"] is not None)
    page = client().get(f"/runs/pipeline/concepts/{number}?stack=0&member=0").text
    assert "cut where it tells best, on held-out examples" in page
    feature = client().get(f"/runs/pipeline/features/0/0/{listed('sort=phi')[0]}").text
    assert "φ of its firing at any value" in feature
