"""The page of claims: what the source studies said, what came out, and the command that repeats it."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.config import JsonDict
from unbraid.explorer.parameters import choice
from unbraid.explorer.site import Site
from unbraid.storage.files import read_object

BESIDE = Path("docs/claims.json")
"""Where a checkout keeps the ledger that was run last."""


def ledger_path(site: Site) -> Path | None:
    """The ledger that was named, else one in the folder of runs, else that of a checkout."""
    if site.ledger is not None:
        return site.ledger
    found = [path for path in sorted(site.runs.glob("claims*.json")) if path.is_file()]
    return found[-1] if found else BESIDE if BESIDE.is_file() else None


def page(request: Request) -> Response:
    from unbraid.report.ledger import VERDICTS, claim_section, numbers, tally

    site: Site = request.app.state.site
    path = ledger_path(site)
    entries: list[JsonDict] = list(read_object(path, "claims")["claims"]) if path is not None else []
    sources = list(dict.fromkeys(entry["source"] for entry in entries))
    source, verdict = choice(request, "source", sources, ""), choice(request, "verdict", list(VERDICTS), "")
    chosen = choice(request, "claim", [entry["id"] for entry in entries], "")
    shown = [
        entry
        for entry in entries
        if (not source or entry["source"] == source) and (not verdict or entry["verdict"] == verdict)
    ]
    one = next((claim_section(entry) for entry in entries if entry["id"] == chosen), None)
    return site.render(
        request,
        "claims.html.jinja",
        path=request.url.path,
        ledger=path,
        entries=shown,
        verdicts=VERDICTS,
        sources=sources,
        source=source,
        verdict=verdict,
        one=one,
        tally=tally(shown) if shown else "",
        numbers=numbers,
    )


ROUTES = [Route("/claims", page)]
