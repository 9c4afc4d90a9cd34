"""Plugins: a user's own mechanism, rule, world, constraint, attention, metric or kind of experiment (docs/plugins.md).

A plugin is classes in a Python file, in an installed package (entry points of the group `unbraid.plugins`, each named
as a configuration names its class), or in a notebook. A file is code: it is run where somebody names it, on a command
line, in a call, or in the configuration that they run, and never because a run directory does.
"""

import hashlib
import importlib
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from unbraid.config.registry import Registry, name_of
from unbraid.config.schema import Config, JsonDict
from unbraid.errors import PluginFault, UserError

GROUP = "unbraid.plugins"
"""The group of entry points of installed packages."""
PLACES = (
    *("unbraid.dictionaries.mechanisms:MECHANISMS", "unbraid.dictionaries.stack:ACTIVATIONS"),
    *("unbraid.worlds:WORLDS", "unbraid.worlds.firing:FIRING"),
    *("unbraid.models.constraints:CONSTRAINTS", "unbraid.models.attention:ATTENTIONS"),
    "unbraid.evaluation.further:METRICS",
    "unbraid.pipeline.kinds:KINDS",
)
"""Where the open registries are; they are imported when a plugin is."""

T = TypeVar("T", bound=type)


@dataclass(frozen=True)
class Plugin:
    """Where classes come from that are not built in, and what they were when they were read."""

    origin: Literal["file", "package", "session"]
    name: str
    """Of a file its name, of a package that and its version."""
    sha256: str
    """Of the file's text, of that of the package's module, of a class in a notebook of its own."""
    path: str
    """As it was named; of a package the entry point, of a class in a notebook its name."""
    provides: tuple[str, ...]
    """"mechanism spread", each with its sort."""

    def card(self) -> JsonDict:
        """As `run.json` has it: without where a file lies, so that nobody runs it because it is there."""
        return {"origin": self.origin, "name": self.name, "sha256": self.sha256, "provides": list(self.provides)}


_by_module: dict[str, Plugin] = {}
"""By the module that its classes are of: files and packages."""
_by_class: dict[type, Plugin] = {}
"""Those of a session."""
_importing: set[str] = set()
"""Entry points that are being imported: who asks for their names meanwhile has to do without."""


def load_plugin(path: str | Path) -> tuple[str, ...]:
    """Run a plugin's file, and have its classes under their names in configurations.

    A file that was loaded already and has not changed is not run again; a changed one replaces what it brought before.

    Parameters
    ----------
    path : str or Path
        A Python file with at least one class that derives from `Mechanism`, `Activation`, `Firing`, `World`,
        `Constraint`, `Attention`, `DictionaryMetric` or an experiment. It is run: load only what you trust.

    Returns
    -------
    tuple of str
        What it brought, as "mechanism spread".

    Examples
    --------
    >>> import unbraid as ub
    >>> from pathlib import Path
    >>> text = "import unbraid as ub" + chr(10) + "class Spread(ub.Mechanism): weight: float = 1.0"
    >>> _ = Path("spread.py").write_text(text)
    >>> ub.load_plugin("spread.py")
    ('mechanism spread',)
    """
    return read_file(path).provides


def register(cls: T) -> T:
    """Have a class of your own under its name in configurations; also as a decorator.

    Its name is its `kind`, or without one its own in snake case. In `fit`, `Dictionary(activation=...)` and the like a
    class of your own is accepted without. What is defined in a notebook trains in this process only; a file works in
    worker processes too.

    Parameters
    ----------
    cls : type
        A class that derives from `Mechanism`, `Activation`, `Firing`, `World`, `Constraint`, `Attention`,
        `DictionaryMetric` or an experiment.

    Returns
    -------
    type
        The same class.

    Examples
    --------
    >>> import unbraid as ub
    >>> @ub.register
    ... class ShortDecoder(ub.Mechanism):
    ...     weight: float = 0.1
    >>> from unbraid.dictionaries.mechanisms import MECHANISMS
    >>> MECHANISMS["short_decoder"] is ShortDecoder
    True
    """
    known = _by_module.get(cls.__module__)
    registry, source = registry_of(cls), inspect.getmodule(cls)
    if registry is None:
        raise UserError(f"{cls.__name__} derives from nothing that is registered; {_accepted()}")
    earlier = [other for other in _by_class if _is_same(other, cls)]
    name = registry.add(cls, source.__name__ if source else cls.__module__, earlier)
    if known is None:
        for other in earlier:
            del _by_class[other]
        _by_class[cls] = Plugin(
            "session", cls.__qualname__, _digest(cls), cls.__qualname__, (f"{registry.sort} {name}",)
        )
    return cls


def read_file(path: str | Path) -> Plugin:
    """What a plugin's file is and brings; it is run, unless it was and has not changed."""
    path = Path(path)
    try:
        text = path.read_bytes()
    except OSError as problem:
        why = problem.strerror or "unreadable"
        raise UserError(f"the plugin {path} cannot be read ({why}); accepted: a Python file") from None
    place = path.resolve()
    name = f"unbraid_plugin_{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    digest, before = hashlib.sha256(text).hexdigest(), _by_module.get(name)
    if before is not None and before.sha256 == digest:
        return before
    old = sys.modules.get(name)
    module = _executed(name, path, text)
    try:
        provides = _add_all(module, str(path), [] if old is None else list(vars(old).values()))
    except BaseException:
        _put_back(name, old)
        raise
    plugin = Plugin("file", path.name, digest, str(path), provides)
    _by_module[name] = plugin
    return plugin


def _executed(name: str, path: Path, text: bytes) -> ModuleType:
    """The module that a file's text makes; what it raises is told with the line."""
    module, old, place = ModuleType(name), sys.modules.get(name), path.resolve()
    module.__file__ = str(place)
    sys.modules[name] = module
    linecache.checkcache(str(place))
    try:
        exec(compile(text, str(place), "exec"), module.__dict__)
    except BaseException as problem:
        _put_back(name, old)
        if isinstance(problem, KeyboardInterrupt | UserError):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(place)]
        line = problem.lineno if isinstance(problem, SyntaxError) else (lines or [None])[-1]
        raise UserError(f"the plugin {path}{f', line {line}' if line else ''}: {_said(problem)}") from problem
    return module


def _put_back(name: str, old: ModuleType | None) -> None:
    sys.modules.pop(name, None)
    if old is not None:
        sys.modules[name] = old


def _add_all(module: ModuleType, source: str, replacing: Sequence[Any]) -> tuple[str, ...]:
    """Every class of a module that belongs in a registry; all of them, or none."""
    found = [(cls, registry) for cls in _classes(module) if (registry := registry_of(cls)) is not None]
    if not found:
        raise UserError(f"the plugin {source} has no class for a registry; {_accepted()}")
    before = {id(registry): (registry, dict(registry)) for registry in registries()}
    old = [value for value in replacing if isinstance(value, type)]
    try:
        for registry, kept in before.values():
            for name in [name for name, cls in kept.items() if cls in old]:
                del registry[name]
        return tuple(f"{registry.sort} {registry.add(cls, f'the plugin {source}')}" for cls, registry in found)
    except UserError:
        for registry, kept in before.values():
            registry.clear()
            registry.update(kept)
        raise


def _classes(module: ModuleType) -> list[type[Config]]:
    """Those that a module defines for others: concrete, and without an underscore."""
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    return [c for c in own if issubclass(c, Config) and not inspect.isabstract(c) and not c.__name__.startswith("_")]


def load_installed(name: str) -> None:
    """Import the entry point of this name, where an installed package has one."""
    for point in installed():
        if point.name == name and point.value not in _importing:
            read_entry_point(point)


def installed() -> list[EntryPoint]:
    """The entry points of installed packages, by name."""
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def read_entry_point(point: EntryPoint) -> Plugin:
    """Import what an installed package offers under a name."""
    source = _distribution(point)
    if (known := _by_module.get(point.module)) is not None and any(p.split()[-1] == point.name for p in known.provides):
        return known
    _importing.add(point.value)
    try:
        cls = point.load()
    except Exception as problem:
        raise PluginFault(f"the plugin '{point.name}' of {source} cannot be imported: {_said(problem)}") from problem
    finally:
        _importing.discard(point.value)
    registry = registry_of(cls) if isinstance(cls, type) else None
    if registry is None:
        raise PluginFault(f"the plugin '{point.name}' of {source}: {point.value} is none; {_accepted()}")
    if (name := name_of(cls, source)) != point.name:
        raise PluginFault(f"the plugin '{point.name}' of {source} calls itself '{name}'; accepted: one name for both")
    registry.add(cls, f"the plugin {source}")
    provides = (*(known.provides if known else ()), f"{registry.sort} {name}")
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    plugin = Plugin("package", source, digest, point.value, provides)
    _by_module[point.module] = plugin
    return plugin


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module


def registries() -> list[Registry[Any]]:
    """All that are open, in the order they are listed."""
    named = [place.split(":") for place in PLACES]
    return [getattr(importlib.import_module(module), name) for module, name in named]


def registry_of(cls: type) -> Registry[Any] | None:
    """Where a class belongs by what it derives from."""
    return next((registry for registry in registries() if issubclass(cls, registry.base)), None)


def plugins() -> list[Plugin]:
    """All that are loaded."""
    return [*_by_module.values(), *_by_class.values()]


def plugin_of(cls: type) -> Plugin | None:
    """Where a class comes from; None where it is built in, or nobody has loaded it as a plugin."""
    return _by_class.get(cls) or _of_module(cls.__module__)


def _of_module(name: str) -> Plugin | None:
    """The plugin that a module is of: its own, or one of the same package."""
    if name.partition(".")[0] == "unbraid":
        return None
    top = name.partition(".")[0]
    return _by_module.get(name) or next((p for m, p in _by_module.items() if m.partition(".")[0] == top), None)


def used_by(*values: object) -> tuple[Plugin, ...]:
    """The plugins whose classes are anywhere in these values, each once."""
    if not _by_module and not _by_class:
        return ()
    found: dict[str, Plugin] = {}
    left, seen = list(values), set[int]()
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if (plugin := plugin_of(type(value))) is not None:
            found[plugin.path] = plugin
        left += _parts(value)
    return tuple(sorted(found.values(), key=lambda plugin: plugin.name))


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Config):
        return [getattr(value, name) for name in type(value).model_fields] + list((value.model_extra or {}).values())
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, tuple | list) else ()


def take_plugins(data: JsonDict, source: str) -> JsonDict:
    """Load the files that a configuration names as `plugins`, relative to its own; the configuration without them.

    To be called where a person runs a configuration. One that lies in a run directory names none for us.
    """
    rest = {key: value for key, value in data.items() if key != "plugins"}
    if (files := data.get("plugins")) is None:
        return rest
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise UserError(f'{source}: plugins is {files!r:.60}; accepted: a list of files, as plugins = ["mine.py"]')
    folder = Path(source).parent
    if (folder / "run.json").exists():
        raise UserError(
            f"{source} is a run's, whose plugins are not run because it names them; accepted: --plugin FILE"
        )
    for file in files:
        read_file(folder / file)
    return rest


def check_loaded(cards: object, source: str, command: str) -> None:
    """Refuse what was made with plugins that are not loaded here, or have changed; nothing is run."""
    for card in cards if isinstance(cards, list) else ():
        for provided in card["provides"]:
            load_installed(provided.split()[-1])
        if any(plugin.sha256 == card["sha256"] for plugin in plugins()):
            continue
        changed = any(plugin.name == card["name"] for plugin in plugins())
        what = f"{source} was made with the plugin {card['name']} ({', '.join(card['provides'])})"
        why = "which has changed since" if changed else "and a run directory runs no code by itself"
        raise UserError(f"{what}, {why}; accepted: {_how(card['origin'], changed, command)}")


def _how(origin: str, changed: bool, command: str) -> str:
    if origin == "package":
        return "the package as it was" if changed else "that package installed"
    if origin == "session":
        return "the class registered first, as it was (ub.register)"
    return f"{command}, with the file as it was{' then' if changed else ''}"


def named_files() -> tuple[str, ...]:
    """The files that were loaded, as they were named."""
    return tuple(plugin.path for plugin in _by_module.values() if plugin.origin == "file")


def for_workers() -> tuple[tuple[str, str], ...]:
    """What a worker process must load before it is sent anything: files with their checksums, and entry points."""
    files = [(str(Path(p.path).resolve()), p.sha256) for p in _by_module.values() if p.origin == "file"]
    names = {provided.split()[-1] for p in _by_module.values() if p.origin == "package" for provided in p.provides}
    return (*files, *((name, "") for name in sorted(names)))


def load_for_worker(wanted: Sequence[tuple[str, str]]) -> None:
    """In a worker: what `for_workers` said."""
    for name, digest in wanted:
        if not digest:
            load_installed(name)
        elif read_file(name).sha256 != digest:
            raise UserError(f"the plugin {name} was changed while it was at work; accepted: the same command again")


def fault(problem: BaseException) -> PluginFault | None:
    """What a plugin did wrong, with its file and line, where the error arose in one."""
    frames = list(traceback.walk_tb(problem.__traceback__))[::-1]
    for frame, line in frames:
        plugin = _of_module(frame.f_globals.get("__name__", ""))
        if plugin is not None:
            place = f"{_shown(frame.f_code.co_filename)}, line {line}, in {frame.f_code.co_name}"
            return PluginFault(f"the plugin {place}: {_said(problem)}")
    return None


@contextmanager
def blamed() -> Iterator[None]:
    """What a plugin raises in here is told as its own error."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:
        if (told := fault(problem)) is not None:
            raise told from problem
        raise


def returned(function: Callable[..., object], what: str) -> PluginFault:
    """That a method returned what it may not, with where it stands: 'penalty returned …; accepted: …'."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f"{_shown(code.co_filename)}, line {code.co_firstlineno}" if code else repr(function)
    return PluginFault(f"the plugin {place}: {getattr(function, '__qualname__', function)} returned {what}")


def _shown(file: str) -> str:
    """A path as short as it can be said."""
    here = os.path.relpath(file) if file.startswith("/") else file
    return here if not here.startswith("..") else file


def _said(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {str(problem) or 'no message'}"[:300]


def _is_same(other: type, cls: type) -> bool:
    """Whether a class is another edition of one: a notebook's cell that was run again."""
    return (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)


def _digest(cls: type) -> str:
    try:
        text = inspect.getsource(cls)
    except (OSError, TypeError):
        text = repr(sorted(vars(cls)))
    return hashlib.sha256(text.encode()).hexdigest()


def _accepted() -> str:
    names = ", ".join(registry.base.__name__ for registry in registries())
    return f"accepted: a class without an underscore that derives from one of {names}"
