"""Dictionaries beside runs on the command line: what an imported one is, and exports to other libraries' files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from unbraid.cli.language_model_scores import print_scores
from unbraid.config import JsonDict
from unbraid.dictionaries.formats.convert import Written, export_several
from unbraid.dictionaries.formats.folder import is_folder
from unbraid.dictionaries.formats.load import load
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.pipeline.trained import load_stack
from unbraid.storage.files import json_bytes, read_arrays, read_object
from unbraid.storage.runs import LANGUAGE_MODEL, Run, find_run

MEMBER = re.compile(r"(?:(\d{1,4})/)?(\d{1,6})")
FACTS = ("model", "site", "target", "world", "text", "context", "run", "architecture")
"""What is told of a dictionary's metadata."""


@dataclass(frozen=True)
class Chosen:
    """One dictionary to export: from which stack, which member, and what is told of it."""

    stack: int
    member: int
    dictionary: Stack
    metadata: JsonDict


def print_dictionary(folder: Path) -> None:
    """What a dictionary is, where it comes from, how its conversion was checked; its scores, where it has some."""
    console, facts = Console(highlight=False), _facts(folder)
    console.print(Text(folder.name, style="bold"))
    width = max(map(len, facts))
    for name, value in facts.items():
        console.print(Text(f"{name:{width}}  {value}"), soft_wrap=True)
    if (folder / LANGUAGE_MODEL).is_file():
        console.print()
        print_scores(read_object(folder / LANGUAGE_MODEL, "settings", "differences", "warnings"))


def dictionary_as_json(folder: Path) -> str:
    """The same for programs."""
    stack = load(folder)
    described = {"name": folder.name, "path": str(folder.resolve()), "d_in": stack.d_in, "d_sae": stack.d_sae}
    described |= {"d_out": stack.d_out, "members": stack.members, "transcoder": stack.is_transcoder}
    described |= {
        "activation": stack.activation.to_dict(),
        "decoder_norm": stack.decoder_norm,
        "metadata": stack.metadata,
    }
    return json_bytes(described).decode().rstrip("\n")


def export_dictionaries(
    name: str | Path, members: Sequence[str], format: str, folder: Path, runs: Path, quiet: bool
) -> None:
    """Export the chosen dictionaries, one alone into the folder, several each into one of its own within."""
    chosen = [one for one in _dictionaries(name, runs) if _is_chosen(one, members)]
    if not chosen:
        raise UserError(
            f"{name} has no dictionary {', '.join(members) or 'at all'}; accepted: --member as `show --json` "
            "numbers them"
        )
    several_stacks = len({one.stack for one in chosen}) > 1
    parts: dict[str, tuple[Stack, JsonDict]] = {}
    for one in chosen:
        part = f"stack-{one.stack}-member-{one.member}" if several_stacks else f"member-{one.member}"
        parts[part if len(chosen) > 1 else ""] = one.dictionary, one.metadata
    for written in export_several(parts, format, folder):
        if not quiet:
            _print_written(written)


def _facts(folder: Path) -> dict[str, str]:
    stack = load(folder)
    known, rule = stack.metadata, stack.activation.to_dict()
    kind = "transcoder" if stack.is_transcoder else "autoencoder"
    size = f"{stack.d_sae} features, {stack.d_in} dimensions" + (f" to {stack.d_out}" if stack.is_transcoder else "")
    facts = {"kind": f"{stack.members} {kind}{'s' if stack.members > 1 else ''}, {rule.get('kind')}", "size": size}
    if "k" in rule:
        facts["k"] = str(rule["k"])
    facts |= {name: str(known[name]) for name in FACTS if known.get(name) is not None}
    facts["decoder"] = "rows of length one" if stack.decoder_norm == "unit" else "rows of free lengths"
    source = known.get("source")
    if isinstance(source, dict):
        facts["from"] = f"{source.get('format')}, {source.get('path')}"
        facts["folded"] = "; ".join(source.get("notes", [])) or "nothing"
        facts["check"] = str(source.get("check"))
    return facts


def _print_written(written: Written) -> None:
    for note in written.notes:
        typer.echo(f"{written.path}: {note}")
    typer.echo(f"{written.path}: {written.check.sentence() if written.check else 'exact; the files have checksums'}")


def _dictionaries(name: str | Path, runs: Path) -> Iterator[Chosen]:
    """Every dictionary of a run, or of whatever `ub.load` takes."""
    run = None if isinstance(name, Path) else _run(name, runs)
    if run is None:
        stack = load(name)
        yield from (Chosen(0, member, stack.member(member), {}) for member in range(stack.members))
        return
    run.check_finished()
    with run.advice():
        for index, folder in enumerate(run.stacks()):
            if is_folder(folder):
                stack, densities = load_stack(run.path, index), _densities(folder)
                for member in range(stack.members):
                    told: JsonDict = {"member": member}
                    told |= {"densities": densities[member]} if member < len(densities) else {}
                    yield Chosen(index, member, stack.member(member), told)


def _run(name: str, runs: Path) -> Run | None:
    """The run of this name or path; None where it is the path of something else, or there is none."""
    places = [path for path in (Path(name), runs / name) if (path / "run.json").is_file()]
    return find_run(name, runs) if places else None


def _densities(folder: Path) -> list[list[float]]:
    """How often each feature fires, by member; nothing where that is not known."""
    tables = read_arrays(folder / "tables.safetensors") if (folder / "tables.safetensors").is_file() else {}
    return tables["density"].tolist() if "density" in tables else []


def _is_chosen(one: Chosen, members: Sequence[str]) -> bool:
    if not members:
        return True
    asked = [MEMBER.fullmatch(text) for text in members]
    if wrong := [text for text, match in zip(members, asked, strict=True) if match is None]:
        raise UserError(
            f"--member {wrong[0]!r:.40} is no member; accepted: its number, or its stack's and its own, as 0/3"
        )
    return any(match and int(match[2]) == one.member and int(match[1] or 0) == one.stack for match in asked)
