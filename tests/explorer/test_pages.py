"""Runs, one run, comparisons and claims: what they show is what the files say; and who may ask."""

import base64
import gzip
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.explorer.small import client, folder
from unbraid.explorer import matching
from unbraid.explorer.app import create_app
from unbraid.explorer.matching import match
from unbraid.report.ledger import claim_section
from unbraid.results import load_run

LEDGER = {
    "claims": [
        {
            "id": "study/claim",
            "source": "study",
            "statement": "It <b>holds</b>.",
            "quote": "They said so.",
            "published": "0.9",
            "study": "superposition/grid",
            "title": "A grid",
            "run": "nowhere",
            "combine": "all",
            "verdict": "holds",
            "p": 0.01,
            "q": 0.02,
            "why": "",
            "parts": [
                {
                    "what": "MMCS",
                    "metric": "mmcs",
                    "statistic": "level",
                    "value": 0.9,
                    "interval": [0.8, 0.95],
                    "chance": 0.3,
                    "pairs": 8,
                    "p": 0.01,
                    "verdict": "holds",
                    "rule": "above 0.5",
                    "note": "",
                }
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def asked() -> TestClient:
    return client()


def test_every_run_is_listed_filtered_and_sorted(asked):
    page = asked.get("/runs").text
    assert all(f'href="/runs/{name}"' in page for name in ("planted", "pipeline", "models"))
    only = asked.get("/runs?q=planted").text
    assert 'href="/runs/planted"' in only
    assert 'href="/runs/models"' not in only
    by_name = re.findall(r'data-run="(\w+)"', asked.get("/runs?sort=name").text)
    assert by_name == sorted(by_name)
    assert asked.get("/runs?sort=colour").status_code == 400


def test_the_page_of_a_run_has_its_scores(asked):
    results = load_run(folder() / "pipeline")
    page = asked.get("/runs/pipeline?metric=phi&x=l0&y=phi").text
    [text] = re.findall(r'id="charts"[^>]*>(.*?)</script>', page, re.DOTALL)
    charts = json.loads(gzip.decompress(base64.b64decode(text)))
    tables = [rows for chart in charts for rows in chart["datasets"].values()]
    drawn = {round(row["value"], 2) for rows in tables for row in rows if "in words" in row}
    assert {round(value, 2) for value in results.of_metric("phi")["value"]} <= drawn
    for name in results.sections:
        assert asked.get(f"/runs/pipeline/sections/{name}?fragment=1").status_code == 200


def test_two_runs_are_compared_and_their_dictionaries_matched(asked):
    page = asked.get("/compare?run=planted&run=pipeline&first=planted/0/0&second=planted/0/1").text
    assert "under every setting" in page
    assert re.search(r"\d+ pairs, mean cosine 0\.\d+ \(random directions: 0\.\d+\)", page)
    assert asked.get("/compare?run=nothing").status_code == 404
    assert asked.get("/compare").status_code == 200


def test_matching_finds_the_same_features_in_another_order():
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((40, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    order = generator.permutation(40)
    matched = match(rows, rows[order])
    assert matched.mean == pytest.approx(1, abs=1e-5)
    assert all(order[second] == first for first, second, _ in matched.pairs)
    assert matched.chance < 0.7


def test_claims_are_filtered_and_escaped(tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(LEDGER))
    app = TestClient(create_app(folder(), "token", ledger=path), base_url="http://127.0.0.1")
    app.get("/runs?token=token")
    page = app.get("/claims?claim=study/claim").text
    assert "It &lt;b&gt;holds&lt;/b&gt;." in page
    assert "unbraid claims study/claim" in page
    assert "No claim is like that." in app.get("/claims?verdict=opposite").text


def test_who_may_ask():
    app = TestClient(create_app(folder(), "token"), base_url="http://127.0.0.1")
    assert app.get("/runs").status_code == 403
    assert app.get("/runs?token=other").status_code == 403
    assert app.get("/runs", headers={"host": "evil.example"}).status_code == 400
    welcomed = app.get("/runs?token=token", follow_redirects=False)
    assert welcomed.status_code == 303
    assert "token=" not in welcomed.headers["location"]
    assert "HttpOnly" in welcomed.headers["set-cookie"]
    assert app.get("/runs").status_code == 200
    assert app.post("/runs").status_code == 405
    assert app.post("/api/try", headers={"origin": "http://evil.example"}).status_code == 403


def test_every_answer_carries_the_policy(asked):
    for path in ("/runs", "/runs/nothing", "/static/charts.js", "/claims"):
        policy = asked.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-eval" not in policy
        assert "'unsafe-inline'" not in policy.replace("style-src-attr 'unsafe-inline'", "")


def test_nothing_here_is_a_page_that_says_so(asked, tmp_path):
    answer = asked.get("/runs/nothing")
    assert answer.status_code == 404
    assert "accepted: planted, pipeline, " in answer.text
    assert "There are no runs here yet" in client(tmp_path).get("/runs").text


def test_large_dictionaries_are_matched_in_a_part_of_their_own(asked, monkeypatch):
    monkeypatch.setattr(matching, "QUICK", 4)
    address = "run=planted&first=planted%2F0%2F0&second=planted%2F0%2F1"
    page = asked.get(f"/compare?{address}").text
    assert "pairs, mean cosine" not in page
    assert f'data-load="/compare/matched?{address.replace("&", "&amp;")}"' in page
    assert "pairs, mean cosine" in asked.get(f"/compare/matched?{address}").text
    assert "pairs, mean cosine" in asked.get(f"/compare?{address}&wait=1").text


def test_large_dictionaries_are_matched_by_who_is_nearest_to_whom(monkeypatch):
    monkeypatch.setattr(matching, "MOST_EXACT", 10)
    generator = np.random.default_rng(3)
    first, second = (generator.standard_normal((n, 8)).astype(np.float32) for n in (300, 280))
    first, second = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second))
    cosine = first @ second.T
    expected = {
        (i, j) for i in range(300) for j in range(280) if cosine[i].argmax() == j and cosine[:, j].argmax() == i
    }
    found = match(first, second)
    assert {(i, j) for i, j, _ in found.pairs} == expected
    assert found.chance == pytest.approx(found.mean, abs=0.03)  # these two are as good as random


def test_the_first_page_needs_neither_pandas_nor_charts():
    """So that the explorer starts in a second: the list of runs, without what other pages load."""
    code = f"""
import sys
from pathlib import Path
from starlette.testclient import TestClient
from unbraid.explorer.app import create_app
asked = TestClient(create_app(Path({str(folder())!r}), "token"), base_url="http://127.0.0.1")
assert asked.get("/runs?token=token").status_code == 200
print(sorted({{"torch", "pandas", "altair", "scipy", "PIL"}} & set(sys.modules)))
assert asked.get("/runs/planted/concepts").status_code == 200
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
    assert done.returncode == 0, done.stderr


def test_the_forest_of_a_claim_draws_its_replicates():
    part = {
        "what": "gain",
        "note": "",
        "metric": "mmcs",
        "statistic": "difference",
        "value": 0.2,
        "interval": [0.1, 0.3],
    }
    part |= {"chance": None, "verdict": "holds", "rule": "supports it above 0", "pairs": 3}
    parts = [part | {"replicates": [0.125, None, 0.275]}]
    [drawn] = claim_section({**LEDGER["claims"][0], "parts": parts}).figures
    [panel] = drawn.spec["vconcat"]
    dots = [layer for layer in panel["layer"] if layer.get("mark", {}).get("type") == "circle"]
    [rows] = [drawn.spec["datasets"][layer["data"]["name"]] for layer in dots]
    assert [row["value"] for row in rows] == [0.125, 0.275]
    assert "replicates" in drawn.caption
