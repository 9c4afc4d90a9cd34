"""The Try page passes questions on to the worker of a run, and refuses what is no question."""

from tests.explorer.small import client, folder
from unbraid.pipeline.serve import Worker

STORY = "john went to the garden . mary moved to the kitchen . where is john ?"
HEADERS = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}


def test_an_answer_is_the_workers_own():
    with client() as browser:
        question = {"run": "pipeline", "op": "read", "stack": 0, "member": 0, "text": STORY}
        answer = browser.post("/api/try", json=question, headers=HEADERS)
        expected = Worker(folder() / "pipeline").answer({"op": "read", "stack": 0, "member": 0, "text": STORY})
        assert answer.status_code == 200
        assert answer.json()["predictions"] == expected["predictions"]
        refused = browser.post("/api/try", json={**question, "text": "xyzzy ?"}, headers=HEADERS)
        assert refused.status_code == 422
        assert "xyzzy" in refused.text


def test_what_is_no_question_is_refused():
    for body in (
        b"",
        b"[]",
        b"{",
        b'{"run": "pipeline"}',
        b'{"run": "pipeline", "op": "exec"}',
        b"[" * 9000,
        b"x" * 30_000,
    ):
        answer = client().post("/api/try", content=body, headers=HEADERS)
        assert answer.status_code == 400
        assert "accepted" in answer.text
    unknown = client().post("/api/try", json={"run": "../secret", "op": "describe"}, headers=HEADERS)
    assert unknown.status_code == 404


def test_the_page_says_where_there_is_no_model():
    assert "has no model" in client().get("/runs/planted/try").text
    page = client().get("/runs/pipeline/try?stack=0&member=1&feature=3").text
    assert 'data-stack="0" data-member="1" data-feature="3"' in page
    assert "/static/try.js" in page
