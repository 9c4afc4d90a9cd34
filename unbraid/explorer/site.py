"""What every page of the explorer needs: which runs there are, their results, kept while they do not change, and HTML.

A name out of an address is looked up among the runs that are listed; it never becomes part of a path.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse

from unbraid.config import JsonDict, suggest
from unbraid.errors import UserError
from unbraid.metrics.catalog import find
from unbraid.storage.files import CHECKSUMS, read_json
from unbraid.storage.runs import Run, all_runs, find_run

if TYPE_CHECKING:
    import jinja2

    from unbraid.results import RunResults

MOST_RESULTS = 8
"""Runs whose tables are kept in memory, at most."""
MOST_BYTES = 200e6
"""Of their files; the run last asked for is kept whatever its size."""
FRESH = 1.0
"""Seconds for which a listing, or the progress of a run, is not read again."""
Stamp = tuple[int, ...]


class UnknownRun(UserError):
    """An address names a run that is not listed; answered with status 404."""


class NothingHere(UserError):
    """An address names a part of a run that it has not; answered with status 404."""


@dataclass(frozen=True)
class Tab:
    """A page about one run, as its navigation names it; `applies` says whether the run has anything to show there."""

    title: str
    path: str
    """Behind `/runs/NAME/`."""
    applies: Callable[["RunResults"], bool] = lambda _: True


@dataclass(frozen=True)
class RunCard:
    """A run as a list shows it."""

    run: Run
    state: str
    title: str = ""
    kind: str = ""
    began: str = ""
    seconds: float = 0.0
    settings: int = 0
    metric: str = ""
    """The metric that its settings are ranked by."""
    best: float | None = None
    best_label: str = ""
    problem: str = ""
    """What is wrong with it, in a sentence."""

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def href(self) -> str:
        return run_href(self.name)

    @property
    def is_live(self) -> bool:
        return self.state == "running"


def run_href(name: str, *parts: str | int) -> str:
    """The address of a run's page, or of what lies below it."""
    return "/".join(["/runs", quote(name, safe=""), *(quote(str(part), safe="") for part in parts)])


@dataclass
class Site:
    """The runs of a folder, or some of them, as pages read them."""

    runs: Path
    names: Sequence[str] | None = None
    ledger: Path | None = None
    tabs: list[Tab] = field(default_factory=list)
    stopping: bool = False
    """Set when the server ends, so that streams end too."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _cards: dict[Path, tuple[Stamp, RunCard]] = field(default_factory=dict)
    _results: "OrderedDict[str, tuple[Stamp, RunResults]]" = field(default_factory=OrderedDict)
    _listed: tuple[float, dict[str, Run]] | None = None
    _live: tuple[float, dict[str, JsonDict]] | None = None

    def listed(self) -> dict[str, Run]:
        """Every run by its name, oldest first; read again when it is a second old."""
        with self._lock:
            if self._listed is None or time.monotonic() - self._listed[0] > FRESH:
                self._listed = time.monotonic(), {run.name: run for run in self._find()}
            return self._listed[1]

    def _find(self) -> list[Run]:
        if self.names is None:
            return all_runs(self.runs)
        found: list[Run] = []
        for name in self.names:
            folder = next((path for path in (Path(name), self.runs / name) if path.is_dir()), None)
            beside = all_runs(folder) if folder is not None and not (folder / "run.json").is_file() else []
            found += beside or [find_run(name, self.runs)]
        return found

    def run(self, name: str) -> Run:
        """A run by its name."""
        listed = self.listed()
        if name not in listed:
            raise UnknownRun(f"there is no run {name!r:.80} here; {suggest(name[:80], listed)}")
        return listed[name]

    def all_runs(self) -> list[RunCard]:
        """Every run as a list shows it, oldest first; each is read again only when its files have changed."""
        return [self.card(run) for run in self.listed().values()]

    def card(self, run: Run) -> RunCard:
        stamp = _stamp(run)
        with self._lock:
            kept = self._cards.get(run.path)
        if kept is not None and kept[0] == stamp and kept[1].state in ("finished", "damaged"):
            return kept[1]
        card = read_card(run)
        with self._lock:
            self._cards[run.path] = stamp, card
        return card

    def results(self, name: str) -> "RunResults":
        """The tables of a run; of one that is finished they are kept while its files do not change."""
        from unbraid.results import RunResults

        run = self.run(name)
        stamp = _stamp(run)
        with self._lock:
            kept = self._results.get(name)
            if kept is not None and kept[0] == stamp:
                self._results.move_to_end(name)
                return kept[1]
        results = RunResults(Run.open(run.path))
        if results.state == "finished":
            self._keep(name, stamp, results)
        return results

    def _keep(self, name: str, stamp: Stamp, results: "RunResults") -> None:
        with self._lock:
            self._results[name] = stamp, results
            self._results.move_to_end(name)
            sizes = {key: _bytes(kept.run) for key, (_, kept) in self._results.items()}
            while len(self._results) > 1 and (len(self._results) > MOST_RESULTS or sum(sizes.values()) > MOST_BYTES):
                oldest, _ = self._results.popitem(last=False)
                sizes.pop(oldest)

    def live(self) -> dict[str, JsonDict]:
        """State and progress of every run that is not finished, read at most once a second however many listen."""
        with self._lock:
            if self._live is None or time.monotonic() - self._live[0] > FRESH:
                cards = [card for card in self.all_runs() if card.state not in ("finished", "damaged")]
                self._live = time.monotonic(), {card.name: progress(card) for card in cards}
            return self._live[1]

    def tabs_of(self, results: "RunResults") -> list[Tab]:
        """The pages about a run that have something to show."""
        return [tab for tab in self.tabs if tab.applies(results)]

    @cached_property
    def environment(self) -> "jinja2.Environment":
        """The report's templates, and those of the explorer."""
        import jinja2

        from unbraid.report.charts import environment

        shared = environment()
        own = jinja2.PackageLoader("unbraid.explorer", "templates")
        return shared.overlay(loader=jinja2.ChoiceLoader([own, *([shared.loader] if shared.loader else [])]))

    def render(self, request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """A page; its template has `nonce`, `path`, `charts` (which collects figures) and, of a run, `tabs`."""
        from unbraid.report.charts import Charts

        results = context.get("results")
        shared = {
            "request": request,
            "nonce": request.state.nonce,
            "path": request.url.path,
            "charts": Charts(),
            "run_href": run_href,
            "tabs": self.tabs_of(results) if results is not None else [],
            "results": results,
        }
        page = self.environment.get_template(template).render({**shared, **context})
        return HTMLResponse(page, status)


def read_card(run: Run) -> RunCard:
    """A run as a list shows it; what is damaged says so."""
    try:
        facts, status = run.facts(), run.status()
        run.check_not_unsealed()
        if run.is_finished:
            run.check_complete()
        return _card(run, facts, status)
    except UserError as problem:
        return RunCard(run, "damaged", problem=str(problem), began=run.began() or "")


def _card(run: Run, facts: JsonDict, status: JsonDict) -> RunCard:
    metric, settings = str(facts.get("leading", "")), []
    if run.is_finished:
        settings = run.scores()["settings"]
    scored = [
        (score["value"], card["label"])
        for card in settings
        if (score := card["metrics"].get(metric)) is not None and score["value"] is not None
    ]
    record = find(metric)
    pick = min if record is not None and record.better == "lower" else max
    best, label = pick(scored) if scored else (None, "")
    title = str(run.config().get("title") or run.name)
    return RunCard(
        run,
        str(status["state"]),
        title,
        str(facts["kind"]),
        str(facts["began"]),
        float(status["seconds"]),
        len(settings),
        metric,
        best,
        label,
        str(status["sentence"]),
    )


def progress(card: RunCard) -> JsonDict:
    """How far a run is: its state, and what it last wrote of its progress; numbers are missing where it wrote none."""
    path, known = card.run.path / "progress.json", {}
    if card.is_live and path.is_file():
        try:
            known = read_json(path)
        except UserError:  # written or removed just now
            known = {}
    known = known if isinstance(known, dict) else {}
    return {"name": card.name, "state": card.state, **known}


def _stamp(run: Run) -> Stamp:
    """Changes when a run's state or results do."""
    return tuple(_changed(run.path / name) for name in ("run.json", "status.json", "scores.json", CHECKSUMS))


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _bytes(run: Run) -> int:
    """Of what results keep in memory."""
    return sum(path.stat().st_size for path in run.path.glob("stacks/*/t*.safetensors"))
