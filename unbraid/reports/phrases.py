"""Settings as phrases: what a run's configuration holds, with all values of what was swept."""

from typing import Any

from unbraid.config import Tree
from unbraid.reports.findings import case_configs, flat_sweep


def said(config: Tree, path: str) -> str:
    """A setting as a phrase, all its values if it was swept or differs between cases: `0.05 or 0.15`."""
    values = flat_sweep(config).get(path) or [_at(case, path) for case in case_configs(config)]
    words = list(dict.fromkeys(phrase(value) for value in values if value is not None)) or [phrase(None)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _at(config: Tree, path: str) -> Any:
    found: Any = config
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def phrase(value: Any) -> str:
    if isinstance(value, dict):
        parts = [phrase(part) if key == "kind" else f"{key} {phrase(part)}" for key, part in value.items()]
        return " ".join(parts)
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def said_of_all(config: Tree, group: str) -> list[str]:
    """A sentence on what of a group of settings is on in any case, as mechanisms or constraints; none if nothing is."""
    found: dict[str, Tree] = {}
    for case in case_configs(config):
        for name, settings in case.get(group, {}).items():
            found[name] = found.get(name, {}) | settings
    described: list[str] = []
    for name, settings in found.items():
        values = [f"{key} {said(config, f'{group}.{name}.{key}')}" for key in settings]
        described.append(f"{name} ({', '.join(values)})" if values else name)
    return [f"{group.capitalize()}: {'; '.join(described)}."] if described else []
