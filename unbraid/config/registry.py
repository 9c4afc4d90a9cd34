"""Registries: classes of one sort, by the names that configurations give them; open to plugins.

What a configuration names is looked up when it is checked, so a class that a plugin brings counts from then on. A name
that is in no registry may be that of an installed package's entry point: only then is the package imported.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationError, create_model, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from unbraid.config.schema import Config, JsonDict, suggest
from unbraid.errors import UserError

C = TypeVar("C", bound=Config)


class Registry(dict[str, type[C]], Generic[C]):
    """Classes of one sort by name: those that are built in, and those that plugins add."""

    def __init__(self, sort: str, base: type[C], built_in: Mapping[str, type[C]], by_kind: bool = True) -> None:
        """`sort` is what a person calls one: "activation rule". Those that are not told apart by their `kind` are named
        by the table that they stand in."""
        super().__init__(built_in)
        self.sort, self.base, self.built_in, self.by_kind = sort, base, frozenset(built_in), by_kind

    def find(self, name: object) -> type[C] | None:
        """The class of this name, of an installed package too; None where there is none."""
        if isinstance(name, str) and name not in self:
            from unbraid.config.plugins import load_installed  # here: it reads this module

            load_installed(name)
        return self.get(name) if isinstance(name, str) else None

    def add(self, cls: type[C], source: str, replacing: Iterable[type] = ()) -> str:
        """Have a plugin's class under its name, which nothing else may have but the classes it replaces."""
        name = name_of(cls, source)
        if self.by_kind and "kind" not in cls.model_fields:
            wanted = f'kind: Literal["{name}"] = "{name}"'
            raise UserError(f"{source}: {cls.__name__} has no kind to be told by; accepted: a field {wanted}")
        if (other := self.get(name)) is not None and other not in (cls, *replacing):
            whose = "is built in" if name in self.built_in else f"is {other.__module__}.{other.__qualname__} already"
            raise UserError(f"{source}: the {self.sort} '{name}' {whose}; accepted: another name")
        self[name] = cls
        return name


def name_of(cls: type[Config], source: str = "") -> str:
    """What a configuration calls a class: its `kind` where it has one, else its own name in snake case.

    >>> from unbraid.dictionaries import TopK
    >>> from unbraid.dictionaries.mechanisms import AdaptiveL1
    >>> name_of(TopK), name_of(AdaptiveL1)
    ('topk', 'adaptive_l1')
    """
    if (kind := cls.model_fields.get("kind")) is None:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    names = get_args(kind.annotation) if get_origin(kind.annotation) is Literal else ()
    if len(names) != 1 or not isinstance(names[0], str):
        raise UserError(f'{source}: {cls.__name__}.kind is no name; accepted: kind: Literal["NAME"] = "NAME"')
    return names[0]


def tagged(registry: Mapping[str, type[Config]], *closed: Mapping[str, type[Config]]) -> Any:
    """The type of a setting that is one of the registry's records, told apart by its `kind`.

    Of an open registry any record of its sort is accepted, also one that is in no registry; of `closed` ones those that
    are there.
    """
    if isinstance(registry, Registry):
        return Annotated[registry.base, Tagged(registry, *closed)]
    kinds = tuple(registry.values())
    return kinds[0] if len(kinds) == 1 else Annotated[Union[kinds], Field(discriminator="kind")]  # noqa: UP007


class Tagged:
    """Checks a record that is told apart by its `kind`, looked up when it is checked."""

    def __init__(self, registry: Registry[Any], *closed: Mapping[str, type[Config]]) -> None:
        self.registry, self.closed = registry, closed

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def kinds(self) -> dict[str, type[Config]]:
        """All there are now."""
        return {**self.registry, **{name: kind for closed in self.closed for name, kind in closed.items()}}

    def check(self, value: Any) -> Config:
        """The record, or what pydantic says of a tagged union."""
        others = tuple(kind for closed in self.closed for kind in closed.values())
        if isinstance(value, (self.registry.base, *others)):
            return value
        if not isinstance(value, dict):
            raise PydanticKnownError("model_attributes_type")
        if "kind" not in value:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
        name = value["kind"]
        kind = self.kinds().get(str(name)) or self.registry.find(name)
        if kind is None:
            expected = ", ".join(f"'{known}'" for known in self.kinds())
            tags = {"discriminator": "'kind'", "tag": str(name), "expected_tags": expected}
            raise PydanticKnownError("union_tag_invalid", tags)
        return kind.model_validate(value)


class Switches(Config):
    """Tables whose presence switches something on: each is named as in a registry, a plugin's too."""

    model_config = ConfigDict(extra="allow")

    registry: ClassVar[Registry[Any]]

    @classmethod
    def check_known(cls, data: JsonDict) -> None:
        if unknown := [str(name) for name in data if cls.registry.find(name) is None]:
            hint = suggest(unknown[0], cls.registry)
            raise PydanticCustomError("unknown", "{hint}", {"name": unknown[0], "hint": hint})

    @model_validator(mode="before")
    @classmethod
    def check_plugins(cls, data: object) -> object:
        """A plugin's table, which is no field of this class, is checked by its own class."""
        if not isinstance(data, dict):
            return data
        added = {name: value for name, value in data.items() if name not in cls.model_fields}
        checked = {name: cls._checked(name, value) for name, value in added.items() if value is not None}
        return {**{name: value for name, value in data.items() if name not in added}, **checked}

    @classmethod
    def _checked(cls, name: str, value: object) -> Config:
        kind = cls.registry.find(name)
        if kind is None:
            return cls.check_known({name: value})  # pyright: ignore[reportReturnType] (it raises)
        try:
            return kind.model_validate(value)
        except ValidationError as problem:
            raise ValidationError.from_exception_data(
                name, [_inside(name, error) for error in problem.errors()]
            ) from None

    def switched_on(self) -> dict[str, Any]:
        """What is there, by name, in the registry's order."""
        return {name: record for name in self.registry if (record := getattr(self, name, None)) is not None}


def _inside(name: str, error: Any) -> InitErrorDetails:
    """An error of a record, as one of the table that holds it."""
    told = PydanticCustomError(error["type"], error["msg"], error.get("ctx"))
    return InitErrorDetails(type=told, loc=(name, *error["loc"]), input=error["input"])


def switches(registry: Registry[Any], sentence: str, module: str) -> Any:
    """The type of a table of tables, of which each that is there switches something of the registry on."""
    fields: dict[str, Any] = {
        name: (kind | None, Field(default=None, description=(inspect.getdoc(kind) or "").partition("\n")[0]))
        for name, kind in registry.items()
    }
    made = create_model("Enabled", __base__=Switches, __module__=module, **fields)
    made.registry, made.__doc__ = registry, sentence
    return made
