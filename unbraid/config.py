"""Settings as frozen, strict records that read from and write to TOML; a mistake is answered with one sentence."""

import difflib
import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from unbraid.errors import Refusal


class PerMember:
    """Marks a setting that may differ between the members of one stack."""


Knob = Annotated[float, PerMember()]
"""A number each member of a stack may have its own value of; inside a stack it is a tensor `m`."""

Tree = dict[str, Any]

REPLICATES = ("seed", "world.seed", "capture.seed")
"""Members of a sweep that differ only here are replicates of one setting: they give it its error bar."""


MERGED = ("cases", "tasks", "sweep")
"""Tables of a configuration that are merged over the rest, in this order."""
FIRST_TASK = "one_fact"
"""The task of stories where none is written."""


class Record(BaseModel):
    """A named group of settings: frozen, strictly typed, with no unknown names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown_names(cls, data: object) -> object:
        unknown = [key for key in data if key not in cls.model_fields] if isinstance(data, dict) else []
        if unknown:
            hint = nearest(str(unknown[0]), cls.model_fields)
            raise PydanticCustomError("unknown", "{hint}", {"name": str(unknown[0]), "hint": hint})
        return data

    def tree(self) -> Tree:
        """As plain nested dictionaries, without what is None (TOML has no null)."""
        return self.model_dump(exclude_none=True)


R = TypeVar("R", bound=Record)


def knobs(record: type[Record]) -> set[str]:
    """The names of the settings that may differ between members of one stack."""
    return {
        name for name, field in record.model_fields.items() if any(isinstance(x, PerMember) for x in field.metadata)
    }


def tagged(registry: Mapping[str, type[Record]]) -> Any:
    """The type of a setting that is one of the registry's records, told apart by its `kind`."""
    kinds = tuple(registry.values())
    return kinds[0] if len(kinds) == 1 else Annotated[Union[kinds], Field(discriminator="kind")]  # noqa: UP007


def nearest(name: str, accepted: Iterable[str]) -> str:
    """'did you mean …?' and the list of what would be accepted."""
    accepted = list(accepted)
    close = difflib.get_close_matches(name, accepted, n=1, cutoff=0.5)
    guess = f"did you mean '{close[0]}'? " if close else ""
    return f"{guess}accepted: {', '.join(accepted) or 'nothing'}"


def check(kind: type[R], data: Tree, source: str) -> R:
    """The record this data describes, or a refusal that names the first thing wrong with it."""
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        raise Refusal(f"{source}: {_sentence(problem.errors()[0], data)}") from None


def read_toml(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal(f"{path}: there is no such file; accepted: a TOML file (see `unbraid configs`)") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise Refusal(f"{path}: cannot be read as text ({_reason(problem)}); accepted: a TOML file") from None
    except (ValueError, RecursionError) as problem:
        raise Refusal(f"{path}: is not valid TOML: {problem}") from None


def to_toml(tree: Tree) -> str:
    return tomli_w.dumps(tree)


def parse_override(text: str) -> Tree:
    """`training.steps=100` as `{"training": {"steps": 100}}`; a value that is not TOML is taken as a string."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip() or "\n" in path or not _is_text(text):
        raise Refusal(f"{text!r} is not an override; accepted: PATH=VALUE, for example training.steps=100")
    for candidate in (value, json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")):
        try:
            if tree := tomllib.loads(f"{path} = {candidate}"):
                return tree
        except (ValueError, RecursionError):
            continue
    raise Refusal(f"'{path}' is not a dotted path; accepted: names joined by dots, for example training.steps")


def _is_text(text: str) -> bool:
    """Whether it can be written down: an argument that is not UTF-8 arrives with halves of characters."""
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def merge(base: Tree, over: Tree) -> Tree:
    """`base` with every leaf of `over` put in its place; a table of another kind replaces the old one whole."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not _of_another_kind(old, value):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def _of_another_kind(old: Tree, new: Tree) -> bool:
    return "kind" in old and "kind" in new and old["kind"] != new["kind"]


def at_path(path: str, value: object) -> Tree:
    """The tree that holds just this value at this dotted path."""
    head, _, rest = path.partition(".")
    return {head: at_path(rest, value) if rest else value}


def combine(data: Tree) -> Iterator[tuple[Tree, Tree]]:
    """What cases and sweep set, and the configuration with that put in, in order; the last path varies fastest."""
    base = {key: value for key, value in data.items() if key not in MERGED}
    cases, tasks, sweep = data.get("cases", {}), data.get("tasks", {}), flatten(data.get("sweep", {}))
    axes = {"case": list(cases), **sweep} if cases else sweep
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        swept: Tree = {}
        for path, value in chosen.items():
            if path != "case":
                swept = merge(swept, at_path(path, value))
        tree = merge(base, cases[chosen["case"]]) if cases else base
        yield chosen, merge(merge(tree, tasks.get(_task(merge(tree, swept)), {})), swept)


def _task(tree: Tree) -> str:
    world = tree.get("world", {})
    return str(world.get("task", FIRST_TASK)) if isinstance(world, dict) else ""


def task_of(setting: Tree) -> Tree:
    """What of a setting is its task: all that was swept of the world. Only settings of one task are compared."""
    return {path: value for path, value in setting.items() if path == "world" or path.startswith("world.")}


def flatten(tree: Tree, prefix: str = "") -> Tree:
    """`{"world": {"seed": [0]}}` as `{"world.seed": [0]}`: quoted and nested paths mean the same."""
    flat: Tree = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _sentence(error: ErrorDetails, data: Tree) -> str:
    path = ".".join(_keys(error["loc"], data, keep_last=error["type"] == "missing"))
    context = error.get("ctx", {})
    match error["type"]:
        case "unknown":
            name = f"{path}.{context['name']}" if path else str(context["name"])
            return f"there is no setting '{name}'; {context['hint']}"
        case "missing":
            return f"the setting '{path}' is required and was not given"
        case "union_tag_not_found":
            return f"'{path}' needs a kind, for example kind = \"…\""
        case "union_tag_invalid":
            accepted = str(context["expected_tags"]).replace("'", "").split(", ")
            return f"{path}.kind is '{context['tag']}'; {nearest(str(context['tag']), accepted)}"
        case _:
            message = error["msg"].removeprefix("Value error, ").replace("Input should", "it should")
            return f"{path or 'the whole'} is {error['input']!r:.60}; {message}" if path else message


def _keys(location: tuple[int | str, ...], data: object, keep_last: bool) -> Iterable[str]:
    """The location as a user wrote it: without the union tags that pydantic puts in, which are not in the data."""
    for i, part in enumerate(location):
        inside = (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int))
        if inside or (keep_last and i == len(location) - 1):
            yield str(part)
        if inside:
            data = data[part]  # pyright: ignore[reportIndexIssue, reportArgumentType, reportCallIssue, reportUnknownVariableType]


def _reason(problem: Exception) -> str:
    return problem.strerror or "unreadable" if isinstance(problem, OSError) else "it is not UTF-8"
