"""Every key that CHANGELOG.md lists as renamed is refused, and the refusal names the key it is now."""

import re
from pathlib import Path

import pytest

from unbraid.config import JsonDict, merge
from unbraid.config.sweep import at_path
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "CHANGELOG.md").read_text().split("#### Configuration keys\n")[1].split("\n\nNew:")[0]
KEYS = [tuple(re.findall(r"`([^`]+)`", row)) for row in TABLE.splitlines() if row.startswith("| `")]
FORMER_TABLES = {"capture.": "activations.", "saving.": "checkpoints.", "data.": "samples."}
"""Tables that were renamed with keys in them: a key is looked for where its table is now."""
WORLDS = {"world.normalise": {"world": {"kind": "activations"}}}
BASELINE: JsonDict = {"kind": "pipeline", "baseline": {"kind": "kmeans"}}


def config_for(key: str) -> JsonDict:
    """An experiment that has the table of this key, and the key in it."""
    former = next((table for table in FORMER_TABLES if key.startswith(table)), "")
    path = FORMER_TABLES[former] + key.removeprefix(former) if former else key
    base: JsonDict = {"kind": "pipeline"}
    if key.startswith("world."):
        base = WORLDS.get(key, {"world": {"kind": "superposition"}})
    elif key.startswith("baseline."):
        base = BASELINE
    return merge(base, at_path(path, 1))


def test_the_table_lists_keys():
    assert len(KEYS) >= 15
    assert all(len(row) == 2 for row in KEYS)


@pytest.mark.parametrize(("before", "now"), KEYS, ids=[row[0] for row in KEYS])
def test_a_renamed_key_is_refused_with_its_new_name(before: str, now: str):
    with pytest.raises(UserError) as refusal:
        expand(config_for(before), "a.toml")
    sentence = str(refusal.value)
    assert re.search(r"`[\w.]+` is now `([\w.]+)`", sentence), sentence
    named = re.findall(r"is now `([\w.]+)`", sentence)[0]
    assert now == named or now.endswith(f".{named}"), sentence
