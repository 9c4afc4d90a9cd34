"""Type a text and see which features fire, where heads look and what the model says, also with features edited.

The model is in a process of its own (`worker.py`); this page only passes questions on to it.
"""

import json

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.explorer.parameters import BadParameter, given, integer
from unbraid.explorer.site import Site, Tab, run_href
from unbraid.explorer.worker import Workers
from unbraid.results import RunResults

LONGEST = 20_000
"""Bytes of a question."""
OPS = {"describe": (), "example": ("stack", "member", "index"), "read": ("stack", "member", "text", "edits", "layer")}


def try_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    stack, member = (integer(request, name, 0, 0, 10_000) for name in ("stack", "member"))
    named = stack if given(request, "stack") is not None else None
    feature = integer(request, "feature", 0, 0, 1 << 24) if given(request, "feature") is not None else None
    return site.render(
        request,
        "try.html.jinja",
        results=results,
        can=has_model(results),
        stack=named,
        member=member,
        feature=feature,
        features_base=run_href(results.run.name, "features"),
    )


async def api_try(request: Request) -> Response:
    """Pass a question on to the worker of a run; what it refuses is a sentence with status 422."""
    site: Site = request.app.state.site
    question = _question(await request.body())
    run = site.run(str(question["run"]))
    if not hasattr(request.app.state, "workers"):
        request.app.state.workers = Workers(plugins=request.app.state.plugins)
    workers: Workers = request.app.state.workers
    op = str(question["op"])
    asked = {name: question[name] for name in OPS[op] if name in question}
    try:
        return JSONResponse(await workers.ask(run.path, op, **asked))
    except UserError as problem:
        return PlainTextResponse(str(problem), 422)


def _question(body: bytes) -> JsonDict:
    accepted = f"accepted: a JSON object with run, op ({', '.join(OPS)}) and what the op needs, up to {LONGEST} bytes"
    if len(body) > LONGEST:
        raise BadParameter(f"the question has {len(body)} bytes; {accepted}")
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        raise BadParameter(f"the question is no JSON; {accepted}") from None
    if not isinstance(question, dict) or not isinstance(question.get("run"), str) or question.get("op") not in OPS:
        raise BadParameter(f"the question is {question!s:.80}; {accepted}")
    return question


def has_model(results: RunResults) -> bool:
    """Whether there is a model to try: one that the run trained, or one whose activations it captured."""
    world = results.config.get("world")
    captured = isinstance(world, dict) and world.get("kind") == "activations"
    folder = results.run.stack(0)
    return captured or (folder / "architecture.json").is_file() or (folder / "model.json").is_file()


ROUTES = [Route("/runs/{name}/try", try_page), Route("/api/try", api_try, methods=["POST"])]
TABS = [Tab("Try", "try", has_model)]
