"""Settings as frozen, strict records that read from and write to TOML; a mistake is answered with one sentence."""

import difflib
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from unbraid.errors import UserError


class PerMember:
    """Marks a setting that may differ between the members of one stack."""


PerMemberFloat = Annotated[float, PerMember()]
"""A number each member of a stack may have its own value of; inside a stack it is a tensor `m`."""

JsonDict = dict[str, Any]


class Config(BaseModel):
    """A named group of settings: frozen, strictly typed, with no unknown names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    renamed: ClassVar[dict[str, str]] = {}
    """Old names of settings, each with its present one. A name with a dot is a path from the top of a configuration."""
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {}
    """Old values of a setting, by its present name, each with its present one."""

    @model_validator(mode="before")
    @classmethod
    def check_names(cls, data: object) -> object:
        if isinstance(data, dict):
            cls.check_known(data)
        return data

    @classmethod
    def check_known(cls, data: JsonDict) -> None:
        """No setting has a name or value of before, or one that is unknown."""
        for key, value in data.items():
            if now := cls._renamed(str(key), value):
                raise PydanticCustomError("renamed", "{now}", now)
        if unknown := [str(key) for key in data if key not in cls.model_fields]:
            hint = suggest(unknown[0], cls.model_fields)
            raise PydanticCustomError("unknown", "{hint}", {"name": unknown[0], "hint": hint})

    @classmethod
    def _renamed(cls, name: str, value: object) -> dict[str, Any] | None:
        """What a setting was called and is called now, where its name or its value is one of before."""
        now = name if name in cls.model_fields else cls.renamed.get(name, "")
        values = cls.renamed_values.get(now, {})
        if isinstance(value, str) and value in values:
            return {"name": name, "now": now, "value": f' = "{value}"', "value_now": f' = "{values[value]}"'}
        return {"name": name, "now": now, "value": "", "value_now": ""} if now and now != name else None

    def __getstate__(self) -> dict[Any, Any]:
        """What is sent to another process: the settings alone, without what was computed from them and kept."""
        state = super().__getstate__()
        state["__dict__"] = {
            name: value for name, value in state["__dict__"].items() if name in type(self).model_fields
        }
        return state

    def to_dict(self) -> JsonDict:
        """As plain nested dictionaries, without what is None (TOML has no null)."""
        return self.model_dump(exclude_none=True)


R = TypeVar("R", bound=Config)


def per_member_fields(record: type[Config]) -> set[str]:
    """The names of the settings that may differ between members of one stack."""
    return {
        name for name, field in record.model_fields.items() if any(isinstance(x, PerMember) for x in field.metadata)
    }


def suggest(name: str, accepted: Iterable[str]) -> str:
    """'did you mean …?' and the list of what would be accepted."""
    accepted = list(accepted)
    close = difflib.get_close_matches(name, accepted, n=1, cutoff=0.5)
    guess = f"did you mean '{close[0]}'? " if close else ""
    return f"{guess}accepted: {', '.join(accepted) or 'nothing'}"


def check(kind: type[R], data: JsonDict, source: str) -> R:
    """The record this data describes, or a refusal that names the first thing wrong with it."""
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        raise UserError(f"{source}: {_sentence(problem.errors()[0], data)}") from None


def _sentence(error: ErrorDetails, data: JsonDict) -> str:
    path = ".".join(_keys(error["loc"], data, keep_last=error["type"] == "missing"))
    context = error.get("ctx", {})
    match error["type"]:
        case "unknown":
            name = f"{path}.{context['name']}" if path else str(context["name"])
            return f"there is no setting '{name}'; {context['hint']}"
        case "renamed":
            name = f"{path}.{context['name']}" if path else str(context["name"])
            now = f"{path}.{context['now']}" if path and "." not in context["now"] else str(context["now"])
            return f"`{name}{context['value']}` is now `{now}{context['value_now']}`"
        case "missing":
            return f"the setting '{path}' is required and was not given"
        case "union_tag_not_found":
            return f"'{path}' needs a kind, for example kind = \"…\""
        case "union_tag_invalid":
            accepted = str(context["expected_tags"]).replace("'", "").split(", ")
            return f"{path}.kind is '{context['tag']}'; {suggest(str(context['tag']), accepted)}"
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
