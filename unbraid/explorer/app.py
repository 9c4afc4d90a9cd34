"""The explorer as a Starlette application: its pages, its files, and what it says where it has no page."""

import threading
from collections.abc import Collection, Sequence
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from unbraid.errors import UserError
from unbraid.explorer.parameters import BadParameter
from unbraid.explorer.security import LOOPBACK, Guard
from unbraid.explorer.site import NothingHere, Site, UnknownRun

FIRST = ("runs", "live")
"""Modules with `ROUTES` that are loaded at the start: neither pandas nor charts."""
LATER = ("run", "compare", "claims", "concepts", "features", "heads", "directions", "timeline", "trying")
"""Those loaded when one of them is first asked for; `TABS` of pages of one run, in the order of its navigation."""
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
HERE = Path(__file__).parent


def create_app(
    runs: Path,
    token: str,
    names: Sequence[str] | None = None,
    ledger: Path | None = None,
    hosts: Collection[str] = LOOPBACK,
) -> Starlette:
    """The explorer of a folder of runs.

    Parameters
    ----------
    runs : Path
        The folder that holds the runs.
    token : str
        What an address must carry to be answered.
    names : sequence of str, optional
        Runs by name or path, or folders of runs; by default all of `runs`.
    ledger : Path, optional
        The ledger that the page of claims shows; by default one that lies in `runs` or in the working folder's docs.
    hosts : collection of str
        The names this server may be called by.
    """
    site = Site(runs, names, ledger)
    routes: list[BaseRoute] = [Route("/", _home), Route("/static/{name}", _static), Route("/favicon.ico", _icon)]
    for module in _modules(FIRST):
        routes += module.ROUTES
    routes.append(Mount("", app=_Later(site)))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, hosts=hosts, error_page=plain_page)],
        exception_handlers={UserError: _user_error, HTTPException: _http_error},
    )
    app.router.redirect_slashes = False  # it would answer 307; the page for what is not there has links
    app.state.site, app.state.plugins = site, ()
    return app


def _modules(names: Sequence[str]) -> list[ModuleType]:
    return [import_module(f"unbraid.explorer.{name}") for name in names]


class _Later:
    """The pages that are loaded when one of them is first asked for, so that the first page need not wait for them."""

    def __init__(self, site: Site) -> None:
        self.site, self.lock = site, threading.Lock()

    @cached_property
    def router(self) -> Router:
        with self.lock:
            modules = _modules(LATER)
            self.site.tabs = [tab for module in modules for tab in getattr(module, "TABS", [])]
            return Router([route for module in modules for route in module.ROUTES], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = self.router if "router" in self.__dict__ else await run_sync(lambda: self.router)
        await router(scope, receive, send)


def _home(_: Request) -> Response:
    return RedirectResponse("/runs", 303)


def _icon(_: Request) -> Response:
    return Response(_files()["icon.svg"].read_bytes(), media_type=TYPES["svg"])


def _static(request: Request) -> Response:
    """A file of ours or of the report by its name, or Vega's JavaScript; names are looked up, never joined."""
    name = request.path_params["name"]
    if name == "vega.js":
        from unbraid.report.charts import vega_bundle

        content = vega_bundle().encode()
    elif name in _files():
        content = _files()[name].read_bytes()
    else:
        raise NothingHere(f"there is no file {name!r:.80} here; accepted: {', '.join(_files())}")
    kind = TYPES[name.rpartition(".")[2]]
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


@cache
def _files() -> dict[str, Path]:
    """What is served as it is: the explorer's files, and the style and charts of the report."""
    report = HERE.parent / "report"
    own = {path.name: path for path in sorted((HERE / "static").iterdir()) if path.suffix[1:] in TYPES}
    return {**{name: report / name for name in ("style.css", "charts.js")}, **own}


def _user_error(request: Request, problem: Exception) -> Response:
    """What was asked cannot be shown: an unknown name is 404, a bad number 400, a damaged run 422."""
    status = 404 if isinstance(problem, UnknownRun | NothingHere) else 400 if isinstance(problem, BadParameter) else 422
    return error_page(request, status, str(problem))


def _http_error(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    if status == 404:
        return error_page(request, 404, f"there is no page {request.url.path!r:.120} here; accepted: the links above")
    return error_page(request, status, f"the server answers {status} to {request.url.path!r:.120}")


HEADINGS = {
    400: "This address asks for what there cannot be",
    404: "There is no such page",
    422: "This cannot be shown",
}


def error_page(request: Request, status: int, sentence: str) -> Response:
    """A page that says what was asked, what was found, and what would be accepted; JSON's readers get the sentence."""
    if request.url.path.startswith("/api/"):
        return PlainTextResponse(sentence, status)
    heading = HEADINGS.get(status, "This cannot be shown")
    return request.app.state.site.render(request, "error.html.jinja", status, heading=heading, sentence=sentence)


def plain_page(_: Request, status: int, sentence: str) -> Response:
    """For who may not see any other page: no links, no style."""
    from html import escape

    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Unbraid</title><h1>{status}</h1><p>{escape(sentence)}"
    )
    return HTMLResponse(page, status)
