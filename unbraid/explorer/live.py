"""How far runs are, as server-sent events: read at most once a second, and only while someone listens."""

import json
from collections.abc import AsyncIterator

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from unbraid.config import JsonDict
from unbraid.explorer.parameters import text
from unbraid.explorer.site import FRESH, Site, progress

HEARTBEAT = 15
"""Seconds after which a silent stream says that it is there."""


async def events(request: Request) -> Response:
    """A stream of `progress` events, one whenever a run has moved; of one run, or of all that are not finished."""
    site: Site = request.app.state.site
    name = text(request, "run")
    if name:
        await run_sync(site.run, name)
    return StreamingResponse(_stream(request, site, name), media_type="text/event-stream")


async def _stream(request: Request, site: Site, name: str) -> AsyncIterator[str]:
    told: dict[str, JsonDict] = {}
    silent = 0.0
    yield "retry: 2000\n\n"
    while not site.stopping and not await request.is_disconnected():
        now = await run_sync(_progress, site, name, list(told))
        moved = {key: state for key, state in now.items() if told.get(key) != state}
        told = now
        for state in moved.values():
            yield f"event: progress\ndata: {json.dumps(state)}\n\n"
        silent = 0.0 if moved else silent + FRESH
        if silent >= HEARTBEAT:
            silent = 0.0
            yield ": here\n\n"
        await anyio.sleep(FRESH)


def _progress(site: Site, name: str, told: list[str]) -> dict[str, JsonDict]:
    """Of every run at work, or one; and of those that were at work when last told of, so that their end is told."""
    live, listed = site.live(), site.listed()
    asked = [name] if name else [*live, *(key for key in told if key not in live and key in listed)]
    return {key: live[key] if key in live else progress(site.card(listed[key])) for key in asked if key in listed}


ROUTES = [Route("/api/events", events)]
