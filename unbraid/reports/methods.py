"""Which settings belong in one figure: those that differ in their method, or in how much data it saw, and no more."""

import json

from unbraid.reports.canvas import COLOURS, DASHES, MARKERS, Figure, Style
from unbraid.reports.run_results import RunResults, Setting

METHOD, SIZE = "baseline", "samples.n"
MOST_FIGURES = 6


def method(setting: Setting) -> str:
    """The baseline in a word or two."""
    chosen = setting.swept.get(METHOD, {})
    return " ".join(str(chosen[key]) for key in ("kind", "form") if key in chosen) or "the baseline"


def groups(results: RunResults, apart: tuple[str, ...]) -> dict[str, list[Setting]]:
    """The settings by what was swept other than `apart`, in words; no more groups than there is room for."""
    found: dict[str, list[Setting]] = {}
    for setting in results.settings:
        others = {path: value for path, value in setting.swept.items() if path not in apart}
        found.setdefault(json.dumps(others), []).append(setting)
    kept = list(found.items())[:MOST_FIGURES]
    return {_words(json.loads(others)): settings for others, settings in kept}


def by_method(settings: list[Setting]) -> dict[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(method(setting), []).append(setting)
    return dict(list(found.items())[: len(COLOURS)])


def method_style(place: int) -> Style:
    dashes = DASHES[:3] + DASHES[4:]  # without the dotted one, which is chance
    return Style(COLOURS[place], dashes[place % len(dashes)], MARKERS[place])


def figures(drawn: list[Figure | None]) -> list[Figure]:
    return [figure for figure in drawn if figure]


def _words(others: dict[str, object]) -> str:
    said = [_word(path.split(".")[-1], value) for path, value in others.items()]
    return ", ".join(said) or "all settings"


def _word(name: str, value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
