"""Read a finished run from its directory, once, into what figures and tables ask for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.metrics.catalog import find
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import Arrays, read_arrays, read_json
from unbraid.storage.runs import Run

MOST_LINES, MOST_PANELS, MOST_ROWS = 8, 4, 24
NEVER = 1e-8


@dataclass(frozen=True)
class Score:
    """One metric of one setting: its mean over replicates, and what to hold it against; None is missing."""

    value: float | None
    interval: tuple[float, float] | None
    chance: float | None
    ceiling: float | None
    members: list[float | None]


@dataclass(frozen=True)
class Setting:
    """One combination of what was swept, and where its members are."""

    index: int
    label: str
    places: list[tuple[int, int]]
    """Stack and position in it, of each member."""
    replicates: list[str]
    scores: dict[str, Score]
    swept: JsonDict = field(default_factory=dict)
    """What the sweep set, by dotted path."""

    def value(self, metric: str) -> float | None:
        return self.scores[metric].value if metric in self.scores else None


@dataclass(frozen=True)
class Curve:
    """A logged quantity against training steps, for every member of a setting."""

    steps: np.ndarray
    values: np.ndarray
    """Members × steps."""


@dataclass(frozen=True)
class RunResults:
    """All that a finished run left on disk, except its weights."""

    run: Run
    facts: JsonDict
    """What its kind says of it: the `leading` metric, and the `sections` of its report."""
    config: JsonDict
    settings: list[Setting]
    differences: list[JsonDict]
    logs: list[list[JsonDict]]
    tables: list[Arrays]
    tracking: list[Arrays]
    """The checks made while training, of each stack; empty where none were."""
    stories: list[JsonDict] = field(default_factory=list)
    """Of each stack of models: example stories, shortcuts, names of factors; else empty."""
    texts: list[JsonDict] = field(default_factory=list)
    """Of each stack of language models: windows, labels of heads, what counting pairs gives, samples; else empty."""
    features: list[JsonDict] = field(default_factory=list)
    """Of each stack that was scored against factors: every concept's verdict, pages of chosen features; else empty."""

    @property
    def title(self) -> str:
        return str(self.config.get("title") or self.run.name)

    @property
    def source(self) -> str:
        """Where a figure comes from, as it says in its corner."""
        return f"run {self.run.name}"

    @property
    def leading(self) -> str:
        """The metric that settings are ranked by."""
        return str(self.facts["leading"])

    @property
    def sections(self) -> list[str]:
        """The names of the sections of its report, in order."""
        return list(self.facts["sections"])

    def has_score(self, *metrics: str) -> bool:
        """Whether any setting has any of these scores."""
        return any(metric in setting.scores for setting in self.settings for metric in metrics)

    @property
    def has_truth(self) -> bool:
        """Whether learned features can be held against planted ones: their rates and cosines are in every stack."""
        return self.has("best_cosine")

    def best(self) -> Setting | None:
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].value(self.leading) is not None else None

    def ranked(self) -> list[Setting]:
        """The settings from the best to the worst by the leading metric, those without one last."""
        return sorted(self.settings, key=lambda setting: badness(self.leading, setting.value(self.leading)))

    @cached_property
    def drawn(self) -> list[Setting]:
        """The settings that lines are drawn for: all, or a few from the best to the worst; in swept order."""
        return self.evenly_spread(self.settings, MOST_LINES)

    @cached_property
    def panels(self) -> list[Setting]:
        """Those of them that have figures of their own."""
        return self.evenly_spread(self.drawn, MOST_PANELS)

    def evenly_spread(self, settings: list[Setting], most: int) -> list[Setting]:
        """So many of them at most, evenly from the best to the worst, in swept order."""
        if len(settings) <= most:
            return settings
        ranked = [setting for setting in self.ranked() if setting in settings]
        chosen = [ranked[round(place)] for place in np.linspace(0, len(ranked) - 1, most)]
        return sorted(chosen, key=lambda setting: setting.index)

    def terms(self) -> list[str]:
        """The loss terms that any stack logged, in the order they appear."""
        return list(dict.fromkeys(term for log in self.logs for line in log for term in line["terms"]))

    def curve(self, setting: Setting, name: str, term: bool = False) -> Curve | None:
        """A loss term or another logged quantity; None where this setting did not log it."""
        found: list[np.ndarray] = []
        steps: list[int] = []
        for stack, position in setting.places:
            lines = [(line["step"], (line["terms"] if term else line).get(name)) for line in self.logs[stack]]
            kept = [(step, values[position]) for step, values in lines if values is not None]
            steps = [step for step, _ in kept] or steps
            found += [np.array([value for _, value in kept], dtype=float)] if kept else []
        shortest = min((len(values) for values in found), default=0)
        if not shortest:
            return None
        return Curve(np.array(steps[:shortest]), np.stack([values[:shortest] for values in found]))

    def table(self, setting: Setting, name: str) -> np.ndarray:
        """A table of every member of a setting, members first; rows shorter than others end in NaN."""
        rows = [self.tables[stack][name][position].astype(float) for stack, position in setting.places]
        longest = max(len(row) for row in rows)
        return np.stack([np.pad(row, (0, longest - len(row)), constant_values=np.nan) for row in rows])

    @cached_property
    def language_model(self) -> JsonDict:
        """What `unbraid evaluate` wrote; empty where it was not run."""
        return self.run.on_language_model()

    def card(self, setting: Setting) -> JsonDict:
        """The verdict on every concept, and pages of features, of the setting's first member that has them; or {}."""
        kept = (self.features[stack].get("members", {}).get(str(place)) for stack, place in setting.places)
        return next((card for card in kept if card), {}) if self.features else {}

    def has(self, table: str | None) -> bool:
        """Whether every stack kept this table; True if none is asked for."""
        return table is None or all(table in tables for tables in self.tables)

    def probabilities(self, setting: Setting) -> np.ndarray:
        """How often each planted feature fires; what practically never does is put at the edge of what is drawn."""
        return np.maximum(self.tables[setting.places[0][0]]["probabilities"], NEVER)

    def cosines(self, setting: Setting) -> np.ndarray | None:
        """True × learned features in matched order, of the first member that kept them."""
        kept = (self.tables[stack].get(f"cosines.{position}") for stack, position in setting.places)
        return next((table for table in kept if table is not None), None)


def read_results(run: Run) -> RunResults:
    """Everything a report needs, or a refusal if the run is not finished."""
    state = run.status()["state"]
    if state != "finished":
        raise UserError(f"{run.path} is {state}; accepted: a finished run, so finish it with `{run.resume_command}`")
    scores = run.scores()
    return RunResults(
        run,
        run.facts(),
        run.config(),
        [read_setting(index, setting) for index, setting in enumerate(run.settings())],
        scores["differences"],
        [read_log(folder / "log.jsonl") for folder in run.stacks()],
        [_read_if_there(folder / "tables.safetensors") for folder in run.stacks()],
        [_read_if_there(folder / "tracking.safetensors") for folder in run.stacks()],
        *(
            [read_json(path) if (path := folder / name).is_file() else {} for folder in run.stacks()]
            for name in ("stories.json", "texts.json", "features.json")
        ),
    )


def read_setting(index: int, card: JsonDict) -> Setting:
    return Setting(
        index,
        card["label"],
        [(member["stack"], member["member"]) for member in card["members"]],
        [member["replicate"] for member in card["members"]],
        {metric: _score(metric, found) for metric, found in card["metrics"].items()},
        card["setting"],
    )


def badness(metric: str, value: float | None) -> float:
    """What to sort by so that the best comes first and what has no value last."""
    if value is None:
        return math.inf
    return value if best_of(metric) == "lowest" else -value


def best_of(metric: str) -> str:
    record = find(metric)
    return "lowest" if record is not None and record.better == "lower" else "highest"


def environment(run: Run) -> JsonDict:
    return run.environment()


def figure_paths(run: Run) -> dict[str, str]:
    return {path.stem: str(path.resolve()) for path in sorted((run.path / "figures").glob("*.png"))}


def finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _score(metric: str, card: JsonDict) -> Score:
    low, high = card["interval"] or (None, None)
    interval = None if low is None or high is None else (low, high)
    record = find(metric)
    # A score of the activations is the same whatever was learned from them: as chance it would say nothing.
    chance = None if record is not None and record.scope == "activations" else card["chance"]
    return Score(card["value"], interval, chance, card["ceiling"], card["members"])


def _read_if_there(path: Path) -> Arrays:
    return read_arrays(path) if path.is_file() else {}
