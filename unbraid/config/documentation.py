"""The line under each field of a configuration class, read from its source: for `help` and for reference pages."""

import ast
import inspect
import itertools
import re
import textwrap

from unbraid.config.schema import Config, per_member_fields


def add_parameters(record: type[Config]) -> None:
    """Give a config class's docstring a Parameters section, made of the line under each field, before its example."""
    summary, lines = inspect.getdoc(record) or "", field_docs(record)
    if lines and "Parameters\n" not in summary:
        head, marker, example = summary.partition("Examples\n--------")
        parameters = [f"{name} : {_type_and_default(record, name)}\n    {line}" for name, line in lines.items()]
        section = "\n".join(["Parameters", "----------", *parameters])
        record.__doc__ = "\n\n".join([head.rstrip(), section, marker + example])


def field_docs(record: type[Config]) -> dict[str, str]:
    """The string under each field of a config class, in the order of its fields; fields without one are left out."""
    lines: dict[str, str] = {}
    for cls in reversed([cls for cls in record.__mro__ if issubclass(cls, Config) and cls is not Config]):
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        for field, line in itertools.pairwise(body.body if isinstance(body, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(line, ast.Expr):
                lines[field.target.id] = " ".join(str(ast.literal_eval(line.value)).split())
    return {name: lines[name] for name in record.model_fields if name in lines}


def _type_and_default(record: type[Config], name: str) -> str:
    field = record.model_fields[name]
    kind = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
    per_member = ", per member" if name in per_member_fields(record) else ""
    default = "required" if field.is_required() else f"default {field.default!r}"
    return f"{re.sub(r'([a-z_]+[.])+', '', kind)}{per_member}, {default}"
