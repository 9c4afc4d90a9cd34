"""Join runs that were cut by seed or by setting into one run, with intervals and paired differences over all.

Each part is a finished run of one configuration, with other seeds, other values of a sweep or other cases. What their
sweeps make together must be there once: nothing twice, and nothing missing. Files of stacks are copied, verified, as
they are; what several stacks have together, and all summaries, are made anew. Scores that look at the replicates of a
stack, as stability does, stay those of the parts.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.config import JsonDict, to_toml
from unbraid.config.sweep import MERGED, REPLICATE, SEEDS, flatten
from unbraid.errors import UserError
from unbraid.pipeline.expand import Plan, expand
from unbraid.pipeline.experiment import Member, MemberStack
from unbraid.pipeline.run import WriteReport
from unbraid.pipeline.summary import summarize
from unbraid.storage.files import read_bytes, read_checksums, read_json, write_bytes, write_json
from unbraid.storage.runs import LANGUAGE_MODEL, Run

NAMES = ("title", "scale")
"""What a configuration is called; the first one's names stay."""
DECIDE = ("unbraid", "torch")
"""Packages whose versions decide results, as they do in the cache."""
MADE_ANEW = ("members.json", "larger.json")


@dataclass(frozen=True)
class _Part:
    """A run to join, and the members of each of its stacks."""

    run: Run
    config: JsonDict
    stacks: tuple[tuple[Member, ...], ...]

    @classmethod
    def of(cls, run: Run) -> "_Part":
        run.check_finished()
        config = run.config()
        members = {_place(member): member for member in expand(config, str(run.path / "config.toml")).members}
        cards = [read_json(folder / "members.json") for folder in run.stacks()]
        stacks = [tuple(members[_key(card["setting"]), card["replicate"]] for card in each) for each in cards]
        return cls(run, config, tuple(stacks))

    @property
    def members(self) -> list[Member]:
        return [member for stack in self.stacks for member in stack]

    def sweep(self) -> JsonDict:
        """What it sweeps, by path."""
        return flatten(self.config.get("sweep", {}))

    def base(self) -> JsonDict:
        """What it sets, by path, but for what cases and sweep set."""
        return flatten({name: value for name, value in self.config.items() if name not in (*MERGED, *NAMES)})


def join(runs: Sequence[Run], name: str, write_report: WriteReport) -> Run:
    """A new run beside the first of these, of all their members; what does not fit together is refused in one line."""
    if len(runs) < 2:
        raise UserError(f"{len(runs)} run was given; accepted: two or more to join")
    parts = [_Part.of(run) for run in runs]
    for part in parts[1:]:
        _check_alike(parts[0], part)
    _check_once(parts)
    plan = expand(_joined(parts), f"{' and '.join(run.name for run in runs)}")
    _check_whole(parts, plan)
    return _write(parts, plan, name, write_report)


def laid_out(plan: Plan, run: Run) -> Plan:
    """The plan with the stacks that a run has: those of a joined one are those of its parts."""
    if "joined" not in run.facts():
        return plan
    members = {_place(member): member for member in plan.members}
    cards = [read_json(folder / "members.json") for folder in run.stacks()]
    stacks = [tuple(members[_key(card["setting"]), card["replicate"]] for card in each) for each in cards]
    return Plan(plan.config, plan.members, tuple(MemberStack(index, each) for index, each in enumerate(stacks)))


def _check_alike(first: _Part, other: _Part) -> None:
    """Refuse a part of another kind, another version, or with another setting than those that are swept."""
    names = f"{first.run.path} and {other.run.path}"
    kinds = [part.run.facts()["kind"] for part in (first, other)]
    if kinds[0] != kinds[1]:
        raise UserError(f"{names} are of kinds '{kinds[0]}' and '{kinds[1]}'; accepted: runs of one kind")
    for package in DECIDE:
        versions = [part.run.environment()["packages"].get(package) for part in (first, other)]
        if versions[0] != versions[1]:
            raise UserError(
                f"{names} were made by {package} {versions[0]} and {versions[1]}; accepted: runs of one version"
            )
    for path, *values in _differing(first, other):
        ours, theirs = (f"{value!r:.40}" if value is not None else "not set" for value in values)
        raise UserError(
            f"{names} do not fit together: {path} is {ours} in one and {theirs} in the other; accepted: runs that "
            "differ in seeds, cases or what both sweep"
        )


def _differing(first: _Part, other: _Part) -> Iterator[tuple[str, Any, Any]]:
    """Paths that are neither seeds nor swept in both, with their values in both."""
    sweeps = first.sweep(), other.sweep()
    both = sweeps[0].keys() & sweeps[1].keys()
    for path in sorted(sweeps[0].keys() ^ sweeps[1].keys()):
        if path not in SEEDS or REPLICATE in both:
            yield f'sweep."{path}"', sweeps[0].get(path), sweeps[1].get(path)
    ours, theirs = first.base(), other.base()
    for path in [*ours, *(path for path in theirs if path not in ours)]:
        is_swept = any(path == swept or path.startswith(f"{swept}.") for swept in both)
        if ours.get(path) != theirs.get(path) and path not in SEEDS and not is_swept:
            yield path, ours.get(path), theirs.get(path)
    cases = first.config.get("cases", {}), other.config.get("cases", {})
    for name in cases[0].keys() & cases[1].keys():
        if cases[0][name] != cases[1][name]:
            yield f"cases.{name}", cases[0][name], cases[1][name]
    if bool(cases[0]) != bool(cases[1]) or first.config.get("tasks") != other.config.get("tasks"):
        table = "tasks" if bool(cases[0]) == bool(cases[1]) else "cases"
        yield table, first.config.get(table), other.config.get(table)


def _check_once(parts: Sequence[_Part]) -> None:
    """Refuse a member that two parts have: it would count twice."""
    seen: dict[tuple[str, str], Run] = {}
    for part in parts:
        for member in part.members:
            if (other := seen.get(_place(member))) is not None:
                raise UserError(
                    f"{other.path} and {part.run.path} both have '{member.name}'; accepted: each replicate of a "
                    "setting once"
                )
            seen[_place(member)] = part.run


def _joined(parts: Sequence[_Part]) -> JsonDict:
    """The configuration whose members are those of all parts: every value that is swept anywhere."""
    sweeps = [part.sweep() for part in parts]
    axes = dict.fromkeys(path for sweep in sweeps for path in sweep)
    if REPLICATE not in axes:
        bases = [part.base() for part in parts]
        axes |= dict.fromkeys(path for path in SEEDS if len({base.get(path) for base in bases}) > 1)
    joined: JsonDict = {path: [] for path in axes}
    for part, sweep in zip(parts, sweeps, strict=True):
        for path, values in joined.items():
            values += [value for value in sweep.get(path, [part.base().get(path)]) if value not in values]
    cases = {name: case for part in parts for name, case in part.config.get("cases", {}).items()}
    rest = {name: value for name, value in parts[0].config.items() if name not in ("sweep", "cases")}
    return {**rest, **({"cases": cases} if cases else {}), **({"sweep": joined} if joined else {})}


def _check_whole(parts: Sequence[_Part], plan: Plan) -> None:
    """Refuse parts that leave a hole in the sweep that they make together."""
    there = {_place(member): member for part in parts for member in part.members}
    missing = [member for member in plan.members if _place(member) not in there]
    if missing:
        raise UserError(
            f"together the runs lack {len(missing)} of {len(plan.members)} members, as '{missing[0].name}'; accepted: "
            "runs that make up a whole sweep, so run what is missing"
        )
    for member in plan.members:
        ours, theirs = (_written(each) for each in (there[_place(member)], member))
        if ours != theirs:
            raise UserError(
                f"'{member.name}' would be another experiment in the joined run; accepted: parts of one file"
            )


def _written(member: Member) -> JsonDict:
    return {name: value for name, value in member.experiment.to_dict().items() if name not in NAMES}


def _write(parts: Sequence[_Part], plan: Plan, name: str, write_report: WriteReport) -> Run:
    """The run appears under its name when all but its report is there."""
    parent = parts[0].run.path.parent
    if (parent / name).exists():
        raise UserError(f"{parent / name} exists already; accepted: another --as")
    temporary = parent / f".{name}.{os.getpid()}.part"
    facts = {**plan.facts(), "joined": [str(part.run.path) for part in parts]}
    try:
        made = Run.create(temporary, name, to_toml(plan.config), facts)
        plan.first.after_stacks(made, _copy_stacks(parts, plan, made))
        write_json(made.path / "scores.json", summarize(made, plan.members))
        made.path.rename(parent / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    run = Run(parent / name)
    seconds = sum(part.run.status()["seconds"] for part in parts)
    with run.locked():
        run.set_status("finished", "", seconds)
        write_report(run)
        run.finish(seconds)
    return run


def _copy_stacks(parts: Sequence[_Part], plan: Plan, run: Run) -> list[MemberStack]:
    """The stacks of all parts, one part after the other, with the settings as the joined run has them."""
    members = {_place(member): member for member in plan.members}
    stacks: list[MemberStack] = []
    for part in parts:
        listed = read_checksums(part.run.path)["files"]
        for source, own in zip(part.run.stacks(), part.stacks, strict=True):
            stack = MemberStack(len(stacks), tuple(members[_place(member)] for member in own))
            inside = source.relative_to(part.run.path).as_posix()
            names = [path.removeprefix(f"{inside}/") for path in listed if path.startswith(f"{inside}/")]
            with part.run.advice():
                for each in names:
                    if each not in MADE_ANEW:
                        write_bytes(run.stack(stack.index) / each, read_bytes(source / each))
            write_json(run.stack(stack.index) / "members.json", [member.card() for member in stack.members])
            stacks.append(stack)
    return stacks


def left_out(runs: Sequence[Run]) -> str | None:
    """What the joined run does not have of its parts, in words."""
    if not any((run.path / LANGUAGE_MODEL).is_file() for run in runs):
        return None
    return "scores on a language model are not joined; `unbraid evaluate` makes them for the joined run"


def _place(member: Member) -> tuple[str, str]:
    return _key(member.setting), member.experiment.replicate()


def _key(setting: JsonDict) -> str:
    return json.dumps(setting, sort_keys=True)
