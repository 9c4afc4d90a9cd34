"""Print what a training step takes: a row a model, each held against the plain transformer of its width."""

from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.models.profile import StepProfile

COLUMNS = ("width", "model", "heads", "parameters", "step, ms", "/ plain", "memory, MiB", "/ plain")
WORDS = ("model", "heads")
"""Columns that are not numbers."""


def profiles_as_json(profiles: list[StepProfile], tokens: int, batch: int) -> JsonDict:
    """With the size of the step that they are of."""
    return {"tokens": tokens, "batch": batch, "profiles": [asdict(profile) for profile in profiles]}


def print_profiles(profiles: list[StepProfile], tokens: int, batch: int) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading in WORDS else "right", overflow="fold")
    plain = {profile.width: profile for profile in profiles if profile.model == "plain"}
    for profile in profiles:
        table.add_row(*map(Text, _row(profile, plain[profile.width])))
    console = Console(highlight=False)
    console.print(Text(f"One training step, one layer, {batch} windows of {tokens} tokens, 100 tokens to choose from."))
    console.print(table)
    console.print(Text("Time: median, in turns. Memory: the most during a step beyond what was there before it."))


def _row(profile: StepProfile, plain: StepProfile) -> tuple[str, ...]:
    return (
        str(profile.width),
        profile.model,
        profile.heads,
        f"{profile.parameters:,}",
        f"{profile.milliseconds:.1f}",
        f"{profile.milliseconds / plain.milliseconds:.1f}×",
        f"{profile.mebibytes:.1f}",
        f"{profile.mebibytes / plain.mebibytes:.1f}×" if plain.mebibytes else "",
    )
