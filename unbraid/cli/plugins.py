"""`unbraid plugins` and `unbraid check-plugin`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from unbraid.battery import Example, Promise, Verdict, activations, attention, examples_of, judge
from unbraid.battery import constraints as constraint_battery
from unbraid.battery import kinds as kind_battery
from unbraid.battery import mechanisms as mechanism_battery
from unbraid.battery import metrics as metric_battery
from unbraid.battery import worlds as world_battery
from unbraid.config import Config, suggest
from unbraid.config.plugins import Plugin, installed, plugins, read_entry_point, read_file, registries
from unbraid.errors import PluginFault, UserError

MARKS = {"kept": "yes", "broken": "NO", "does not apply": "–"}


@dataclass(frozen=True)
class Battery:
    """The promises of one sort, and the cases that an example of it is checked in."""

    promises: Sequence[Promise[Any]]
    cases: Callable[[str, Example], Mapping[str, Any]]


BATTERIES = {
    "mechanism": Battery(mechanism_battery.PROMISES, mechanism_battery.mechanism_cases),
    "activation rule": Battery(activations.PROMISES, activations.rule_cases),
    "world": Battery(world_battery.PROMISES, world_battery.world_cases),
    "firing rule": Battery(world_battery.PROMISES, world_battery.firing_cases),
    "constraint": Battery(constraint_battery.PROMISES, constraint_battery.constraint_cases),
    "attention kind": Battery(attention.PROMISES, attention.attention_cases),
    "metric": Battery(metric_battery.PROMISES, metric_battery.metric_cases),
    "experiment kind": Battery(kind_battery.PROMISES, kind_battery.kind_cases),
}


def print_plugins(everything: bool) -> None:
    """Name, sort and source of every plugin; one that cannot be imported with the reason."""
    problems: list[str] = []
    for point in installed():
        try:
            read_entry_point(point)
        except PluginFault as problem:
            problems.append(str(problem))
    console = Console(highlight=False, soft_wrap=True)
    table = Table("name", "sort", "from", box=None, padding=(0, 2, 0, 0))
    for registry in registries() if everything else ():
        for name in registry:
            if name in registry.built_in:
                table.add_row(name, registry.sort, "built in")
    for plugin in plugins():
        for sort, name in map(_parts, plugin.provides):
            table.add_row(name, sort, plugin.path if plugin.origin == "file" else plugin.name)
    if table.row_count:
        console.print(table)
    else:
        console.print("No installed package brings plugins; `unbraid plugins FILE` lists those of a file.")
    for problem in problems:
        console.print(problem, markup=False)


def check_and_print(named: str) -> bool:
    """Print what became of every promise; whether all that apply are kept."""
    plugin, console, kept = _plugin(named), Console(highlight=False, soft_wrap=True), True
    for sort, name in map(_parts, plugin.provides):
        cls = next(registry for registry in registries() if registry.sort == sort)[name]
        console.print(f"{sort} {name}, of {plugin.path}", markup=False)
        for verdict in _verdicts(sort, name, cls):
            why = f": {verdict.why}" if verdict.why else ""
            console.print(f"  {MARKS[verdict.state]:4}{verdict.sentence}{why}", markup=False)
            kept = kept and verdict.state != "broken"
    return kept


def _plugin(named: str) -> Plugin:
    if Path(named).is_file() or named.endswith(".py"):
        return read_file(named)
    points = {point.name: point for point in installed()}
    if named not in points:
        raise UserError(f"there is no plugin '{named}'; {suggest(named, points)}, or a file")
    return read_entry_point(points[named])


def _verdicts(sort: str, name: str, cls: type[Config]) -> list[Verdict]:
    battery = BATTERIES[sort]
    cases = {
        f"example {index + 1}, {case}" if case != name else f"example {index + 1}": made
        for index, example in enumerate(examples_of(name, cls))
        for case, made in battery.cases(name, example).items()
    }
    return list(judge(battery.promises, cases))


def _parts(provided: str) -> tuple[str, str]:
    """ "activation rule absolute": its sort, and its name."""
    sort, _, name = provided.rpartition(" ")
    return sort, name
