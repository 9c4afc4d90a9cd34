"""What a configuration compares: cases, tasks and a sweep, each combination a member; and the scales it has.

[cases.gated]        a named part of a configuration, merged over the rest; cases are compared with each other
[tasks.counting]     what a task of the stories needs, merged over every case where `world.task` is that one
[sweep]              dotted paths to lists of values, each merged over the case and the task's part
[scales.standard]    what this scale changes of the rest; one that changes nothing names the base

`replicate` is a path of the sweep that stands for all seeds at once: replicate r has `seed`, `world.seed` and
`model.seed` r, as far as the experiment has them, and so a world, data and an initialisation of its own.

The size of a sweep is known before it is expanded, and refused above `MOST_MEMBERS`.
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from unbraid.config.schema import Config, JsonDict, suggest
from unbraid.config.toml import parse_override
from unbraid.errors import UserError

SEEDS = ("seed", "world.seed", "model.seed")
REPLICATE = "replicate"
"""The path of a sweep that sets all seeds."""
REPLICATES = (*SEEDS, REPLICATE)
"""Members of a sweep that differ only here are replicates of one setting: they give it its error bar."""
MERGED = ("cases", "tasks", "sweep")
"""Tables of a configuration that are merged over the rest, in this order."""
DEFAULT_TASK = "one_fact"
"""The task of stories where none is written."""
MOST_MEMBERS = 20_000
OF_ANY_KIND = {"model": ("training", "evaluation", "seed")}
"""What a table keeps when its `kind` changes."""


def merge(base: JsonDict, over: JsonDict) -> JsonDict:
    """`base` with every leaf of `over` put in its place.

    A table of another kind replaces the old one, but for what does not depend on the kind: how a model is trained and
    evaluated, and its seed.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            kept = [name for name in old if name in OF_ANY_KIND.get(key, ()) or not _of_another_kind(old, value)]
            merged[key] = merge({name: old[name] for name in kept}, value)
        else:
            merged[key] = value
    return merged


def _of_another_kind(old: JsonDict, new: JsonDict) -> bool:
    return "kind" in old and "kind" in new and old["kind"] != new["kind"]


def at_path(path: str, value: object) -> JsonDict:
    """The tree that holds just this value at this dotted path."""
    head, _, rest = path.partition(".")
    return {head: at_path(rest, value) if rest else value}


def overridden(data: JsonDict, overrides: Sequence[str | JsonDict], source: str) -> JsonDict:
    """The configuration with these PATH=VALUE, or trees of changes, put in."""
    changes: JsonDict = {}
    for override in overrides:
        changes = merge(changes, parse_override(override) if isinstance(override, str) else override)
    data = merge(data, changes)
    _check_has_effect(changes, data, source)
    return data


def lists_to_sweep(data: JsonDict, record: type[Config], source: str) -> JsonDict:
    """The configuration with every list that stands where `record` takes one value moved to its sweep."""
    found: JsonDict = {REPLICATE: data[REPLICATE]} if REPLICATE in data else {}
    rest = {key: value for key, value in data.items() if key not in (*MERGED, REPLICATE)}
    single = _without_lists(rest, [record], "", found)
    sweep = data.get("sweep", {})
    swept = flatten(sweep) if isinstance(sweep, dict) else {}
    if twice := sorted(found.keys() & swept.keys()):
        raise UserError(f"{source}: '{twice[0]}' is a list, and is swept in the table sweep too; accepted: one of them")
    tables = {key: data[key] for key in MERGED if key in data}
    return {**single, **tables, **({"sweep": {**swept, **found}} if found else {})}


def _without_lists(tree: JsonDict, records: Sequence[type[Config]], prefix: str, found: JsonDict) -> JsonDict:
    """The tree without lists that none of these records takes at their place; those are put into `found`."""
    kinds = [record for record in records if _may_be(record, tree.get("kind"))]
    kept: JsonDict = {}
    for name, value in tree.items():
        types = [type_ for kind in kinds if name in kind.model_fields for type_ in _types(kind.model_fields[name])]
        if isinstance(value, dict):
            inside = [type_ for type_ in types if isinstance(type_, type) and issubclass(type_, Config)]
            kept[name] = _without_lists(value, inside, f"{prefix}{name}.", found)
        elif isinstance(value, list) and not any(get_origin(type_) in (list, tuple) for type_ in types):
            found[f"{prefix}{name}"] = value
        else:
            kept[name] = value
    return kept


def _may_be(record: type[Config], kind: object) -> bool:
    """Whether a table that says it is of this kind can be such a record."""
    field = record.model_fields.get("kind")
    return kind is None or field is None or field.default == kind


def _types(field: Any) -> Iterator[Any]:
    """All that an annotation allows, one by one."""
    pending = [field.annotation]
    while pending:
        type_ = pending.pop()
        if get_origin(type_) in (Union, UnionType, Annotated):
            pending += [part for part in get_args(type_) if part is not None]
        else:
            yield type_


def sweep_size(data: JsonDict) -> int:
    """How many members a checked configuration has."""
    lists = flatten(data.get("sweep", {})).values()
    return math.prod(len(values) for values in lists) * (len(data.get("cases", {})) or 1)


def combinations(
    data: JsonDict, source: str, swept: Sequence[str], tasks: Iterable[str], renamed: Mapping[str, str]
) -> list[tuple[JsonDict, JsonDict]]:
    """What cases and sweep set, and the configuration with that put in, as it was written; bad tables are refused.

    `swept` names the tables that may differ between members, `tasks` the tasks that there are, `renamed` the present
    names of tables that had another.
    """
    _check_renamed(data, source, renamed)
    check_parts(data, "cases", source, swept)
    for name, part in check_parts(data, "tasks", source, swept).items():
        _check_task(name, part, source, list(tasks))
    _check_sweep(data.get("sweep", {}), source, swept)
    _check_tables(data, source)
    if (size := sweep_size(data)) > MOST_MEMBERS:
        raise UserError(f"{source}: the sweep has {size:,} members; accepted: at most {MOST_MEMBERS:,}")
    return list(combine(data, swept))


def combine(data: JsonDict, tables: Sequence[str] = ()) -> Iterator[tuple[JsonDict, JsonDict]]:
    """What cases and sweep set, and the configuration with that put in, in order; the last path varies fastest.

    A replicate sets the seeds of these tables, and the experiment's own if it is among them.
    """
    seeds = [path for path in SEEDS if path.partition(".")[0] in tables]
    base = {key: value for key, value in data.items() if key not in MERGED}
    cases, tasks, sweep = data.get("cases", {}), data.get("tasks", {}), flatten(data.get("sweep", {}))
    axes = {"case": list(cases), **sweep} if cases else sweep
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        swept: JsonDict = {}
        for path, value in chosen.items():
            for each in seeds if path == REPLICATE else (path,) if path != "case" else ():
                swept = merge(swept, at_path(each, value))
        tree = merge(base, cases[chosen["case"]]) if cases else base
        yield chosen, merge(merge(tree, tasks.get(_task(merge(tree, swept)), {})), swept)


def _task(tree: JsonDict) -> str:
    world = tree.get("world", {})
    return str(world.get("task", DEFAULT_TASK)) if isinstance(world, dict) else ""


def task_of(setting: JsonDict) -> JsonDict:
    """What of a setting is its task: all that was swept of the world. Only settings of one task are compared."""
    return {path: value for path, value in setting.items() if path == "world" or path.startswith("world.")}


def flatten(tree: JsonDict, prefix: str = "") -> JsonDict:
    """`{"world": {"seed": [0]}}` as `{"world.seed": [0]}`: quoted and nested paths mean the same."""
    flat: JsonDict = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def check_parts(data: JsonDict, kind: str, source: str, swept: Sequence[str]) -> dict[str, JsonDict]:
    """The cases, or what the tasks need: tables whose keys may differ between members."""
    parts = data.get(kind, {})
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise UserError(f"{source}: {kind} is {parts!r:.60}; accepted: tables, each named as in [{kind}.NAME]")
    for name, part in parts.items():
        for key in part:
            if key not in swept:
                raise UserError(f"{source}: {kind}.{name}.{key} cannot differ between {kind}; {suggest(key, swept)}")
    return parts


def _check_renamed(data: JsonDict, source: str, renamed: Mapping[str, str]) -> None:
    """Say what a table is called now that cases, tasks or the sweep name as it was called before."""
    for kind in ("cases", "tasks"):
        parts = data.get(kind, {})
        for name, part in parts.items() if isinstance(parts, dict) else ():
            for key in part if isinstance(part, dict) else ():
                if key in renamed:
                    raise UserError(f"{source}: `{kind}.{name}.{key}` is now `{kind}.{name}.{renamed[key]}`")
    sweep = data.get("sweep", {})
    for path in flatten(sweep) if isinstance(sweep, dict) else ():
        old = next((old for old in sorted(renamed, key=len, reverse=True) if _is_set_by(path, [old])), None)
        if old is not None:
            raise UserError(f'{source}: `sweep."{path}"` is now `sweep."{renamed[old]}{path.removeprefix(old)}"`')


def _check_task(name: str, part: JsonDict, source: str, tasks: Sequence[str]) -> None:
    if name not in tasks:
        raise UserError(f"{source}: tasks.{name} is for a task that is not there; {suggest(name, tasks)}")
    if isinstance(world := part.get("world"), dict) and "task" in world:
        raise UserError(f"{source}: tasks.{name}.world.task would be another task than {name}; accepted: without it")


def _check_sweep(sweep: object, source: str, swept: Sequence[str]) -> None:
    if not isinstance(sweep, dict):
        raise UserError(f"{source}: sweep is {sweep!r:.60}; accepted: a table of dotted paths to lists")
    for path, values in flatten(sweep).items():
        if path in SEEDS and REPLICATE in sweep:
            raise UserError(f"{source}: sweep.{REPLICATE} sets '{path}', which is swept too; accepted: one of them")
        if path.split(".")[0] not in (*swept, REPLICATE):
            raise UserError(
                f'{source}: sweep."{path}" cannot be swept; {suggest(path.split(".")[0], (*swept, REPLICATE))}'
            )
        if not isinstance(values, list) or not values:
            raise UserError(f'{source}: sweep."{path}" is {values!r:.60}; accepted: a list of at least one value')
        if len({json.dumps(value, default=str) for value in values}) < len(values):
            raise UserError(f'{source}: sweep."{path}" names a value twice: {values!r:.60}; accepted: each value once')


WORDS_OR_TABLES = ("dictionary.init.",)
"""Settings whose value is a word or a table: in some cases the one, in others the other."""


def _check_tables(data: JsonDict, source: str) -> None:
    """What a sweep or a case sets inside of must be a table, or absent: else its value would be replaced silently."""
    for path in [
        *flatten(data.get("sweep", {})),
        *(path for case in data.get("cases", {}).values() for path in flatten(case)),
    ]:
        tree: object = data
        for name in path.split(".")[:-1]:
            tree = tree.get(name, {}) if isinstance(tree, dict) else tree
        if not isinstance(tree, dict | list) and not path.startswith(WORDS_OR_TABLES):
            raise UserError(
                f"{source}: '{path}' is set inside of {tree!r:.60}, which is no table; accepted: a table there"
            )


def _check_has_effect(overrides: JsonDict, data: JsonDict, source: str) -> None:
    """An override of a path that the sweep or every case sets would do nothing: say so."""
    sweep, cases = data.get("sweep", {}), data.get("cases", {})
    swept = flatten(sweep) if isinstance(sweep, dict) else {}
    cases = cases if isinstance(cases, dict) else {}
    paths = [flatten(case) if isinstance(case, dict) else {} for case in cases.values()]
    for path, value in flatten({key: tree for key, tree in overrides.items() if key not in MERGED}).items():
        if path in SEEDS and REPLICATE in swept:
            asked = f"sweep.{REPLICATE}=[{value}]"
            raise UserError(
                f"{source}: the sweep's replicates set '{path}', so setting it changes nothing; accepted: {asked}"
            )
        if any(_is_swept(path, other, values) for other, values in swept.items()):
            asked = f"sweep.'{path}'=[{value}]"
            raise UserError(f"{source}: '{path}' is swept, so setting it changes nothing; accepted: {asked}")
        if cases and all(_is_set_by(path, case) for case in paths):
            asked = f"cases.{next(iter(cases))}.{path}={value}"
            raise UserError(f"{source}: every case sets '{path}', so setting it changes nothing; accepted: {asked}")


def _is_swept(path: str, other: str, values: object) -> bool:
    """Whether all values swept at `other` set `path`: it itself, or in tables that are put over one that holds it."""
    if path == other:
        return True
    if not path.startswith(f"{other}.") or not isinstance(values, list):
        return False
    rest = path.removeprefix(f"{other}.")
    of_any_kind = rest.split(".")[0] in OF_ANY_KIND.get(other, ())
    return all(
        not isinstance(value, dict) or ("kind" in value and not of_any_kind) or _is_set_by(rest, flatten(value))
        for value in values
    )


def _is_set_by(path: str, others: Iterable[str]) -> bool:
    return any(path == other or path.startswith(f"{other}.") for other in others)


def scales_of(data: JsonDict, source: str) -> dict[str, JsonDict]:
    """What each scale changes, in the order they are written."""
    scales = data.get("scales", {})
    if not isinstance(scales, dict):
        raise UserError(f"{source}: scales is {scales!r:.60}; accepted: tables of settings, as [scales.small]")
    for name, changes in scales.items():
        if not isinstance(changes, dict):
            raise UserError(f"{source}: scales.{name} is {changes!r:.60}; accepted: a table, as [scales.{name}]")
        for key in ("scale", "scales"):
            if key in changes:
                raise UserError(f"{source}: scales.{name} sets '{key}', which a scale cannot; accepted: other settings")
    return scales


def at_scale(data: JsonDict, name: str | None, source: str) -> JsonDict:
    """The configuration at this scale, which it names; without one the base, which a scale with no changes names."""
    scales = scales_of(data, source)
    base = {key: value for key, value in data.items() if key != "scales"}
    if name is None:
        unchanged = [scale for scale, changes in scales.items() if not changes]
        return {**base, "scale": unchanged[0]} if unchanged else base
    if not scales:
        raise UserError(f"{source} was asked for at scale '{name}' and has no scales; accepted: no --scale")
    if name not in scales:
        raise UserError(f"{source} has no scale '{name}'; {suggest(name, scales)}")
    return {**merge(base, scales[name]), "scale": name}


def label(setting: Mapping[str, Any]) -> str:
    """A setting in a few words: its case, and the last names of the paths that were swept."""
    plain = ("case", "world.task")
    words = [
        _word(value) if path in plain else f"{path.split('.')[-1]} {_word(value)}" for path, value in setting.items()
    ]
    return ", ".join(words) or "the one setting"


def _word(value: Any) -> str:
    if isinstance(value, dict) and "kind" not in value:
        return " ".join(f"{name} {_word(part)}" for name, part in value.items())
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
