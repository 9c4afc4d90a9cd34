"""Settings as phrases: what a run's configuration holds, with all values of what was swept."""

from collections.abc import Iterable
from typing import Any

from unbraid.config import JsonDict
from unbraid.reports.configurations import flat_sweep, setting_configs
from unbraid.reports.forms import with_form

DEFAULT = "as by default"


def setting_phrase(config: JsonDict, path: str) -> str:
    """A setting as a phrase, all its values if it was swept or differs between cases or tasks: `0.05 or 0.15`."""
    values = flat_sweep(config).get(path) or [at(tree, path) for _, tree in setting_configs(config)]
    return either(phrase(value) for value in values if value is not None)


def either(words: Iterable[str]) -> str:
    each = list(dict.fromkeys(words)) or [phrase(None)]
    return each[0] if len(each) == 1 else f"{', '.join(each[:-1])} or {each[-1]}"


def at(config: JsonDict, path: str) -> Any:
    found: Any = config
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def phrase(value: Any) -> str:
    if isinstance(value, dict):
        parts = [phrase(part) if key == "kind" else f"{key} {phrase(part)}" for key, part in value.items()]
        return " ".join(parts)
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def enabled_sentence(config: JsonDict, group: str) -> list[str]:
    """A sentence on what of a group of settings is on in any setting, as mechanisms or constraints; none if nothing is.

    A case is kept as it was written: what it leaves out has its default, and of a form this is said by name.
    """
    enabled: dict[str, list[JsonDict]] = {}
    for _, tree in setting_configs(config):
        for name, settings in tree.get(group, {}).items():
            enabled.setdefault(name, []).append(with_form(group, name, settings))
    described: list[str] = []
    for name, each in enabled.items():
        keys = dict.fromkeys(key for settings in each for key in settings)
        values = [f"{key} {either(phrase(one.get(key, DEFAULT)) for one in each)}" for key in keys]
        described.append(f"{name} ({', '.join(values)})" if values else name)
    return [f"{group.capitalize()}: {'; '.join(described)}."] if described else []
