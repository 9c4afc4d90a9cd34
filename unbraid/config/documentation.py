"""The line under each field of a configuration class, read from its source: for `help` and for reference pages."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from unbraid.config.schema import Config, per_member_fields

LATER_SECTIONS = ("Attributes\n----------", "Examples\n--------")
"""What a docstring has after its Parameters."""


def add_parameters(record: type[Config]) -> None:
    """Give a config class's docstring a Parameters section, made of the line under each field."""
    text = inspect.getdoc(record) or ""
    if not record.model_fields or "Parameters\n----------" in text:
        return
    lines = field_docs(record)
    start = min((text.index(title) for title in LATER_SECTIONS if title in text), default=len(text))
    names = sorted(lines, key=lambda name: name == "kind")  # last: only a TOML file has to give it
    parameters = [f"{name} : {_type_and_default(record, name)}\n    {lines[name]}" for name in names]
    section = "\n".join(["Parameters", "----------", *parameters])
    record.__doc__ = "\n\n".join([text[:start].rstrip(), section, text[start:]]).rstrip() + "\n"


def field_docs(record: type[Config]) -> dict[str, str]:
    """The string under each field of a config class, in the order of its fields; fields without one are left out.

    Where there is no source, as for classes made by `create_model`, it is the field's `description`.
    """
    described = {name: field.description for name, field in record.model_fields.items() if field.description}
    lines: dict[str, str] = {}
    for cls in reversed([cls for cls in record.__mro__ if issubclass(cls, Config) and cls is not Config]):
        lines |= _strings_under_fields(cls)
    lines |= described
    return {name: lines[name] for name in record.model_fields if name in lines}


def _strings_under_fields(cls: type[Config]) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except OSError:
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0]
    lines: dict[str, str] = {}
    for field, line in itertools.pairwise(body.body if isinstance(body, ast.ClassDef) else []):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(line, ast.Expr):
            lines[field.target.id] = " ".join(str(ast.literal_eval(line.value)).split())
    return lines


def _type_and_default(record: type[Config], name: str) -> str:
    field = record.model_fields[name]
    per_member = ", per member" if name in per_member_fields(record) else ""
    default = "required" if field.is_required() else f"default {_value(field.get_default(call_default_factory=True))}"
    return f"{_type(field.annotation)}{per_member}, {default}"


def _type(annotation: Any) -> str:
    """A type in the words of a docstring: `int or None`, `tuple of str`, `{'a', 'b'}`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return "{" + ", ".join(repr(value) for value in arguments) + "}"
    if origin in (Union, UnionType):
        return " or ".join(_unique(_type(part) for part in arguments))
    if origin is dict:
        return f"dict of {_type(arguments[0])} to {_type(arguments[1])}"
    if origin in (tuple, list):
        return f"{origin.__name__} of {' or '.join(_unique(_type(part) for part in arguments if part is not ...))}"
    if annotation is NoneType:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _value(value: object) -> str:
    """A default as one would write it; of a configuration, only the fields that were given."""
    if not isinstance(value, Config):
        return repr(value)
    given = [f"{name}={_value(getattr(value, name))}" for name in sorted(value.model_fields_set)]
    return f"{type(value).__name__}({', '.join(given)})"
