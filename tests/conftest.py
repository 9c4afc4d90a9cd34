"""Every test runs with the shapes and types in unbraid's annotations checked at run time."""

import os
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from hypothesis import settings

from tests.checking import check_annotations

check_annotations("unbraid")

# The tests' sizes are tiny, and CI may share its cores: more threads would only wait for each other.
torch.set_num_threads(1)
numba.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

settings.register_profile("unbraid", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("unbraid")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def undrawn(monkeypatch):
    """Reports without figures, for tests of what is written, or of what has nothing to do with reports."""
    from unbraid.figures import draw

    monkeypatch.setattr("unbraid.report.page.draw", lambda results: draw(results, ["all_scores"]))


@pytest.fixture
def keep_as_shards():
    """Writes rows as a finished capture of several shards, in documents of eight tokens."""

    def keep(folder, rows, shard_tokens=400, dtype="float32"):
        from unbraid.activations.shards import Manifest, Origin, write_shard

        cards = []
        for number, start in enumerate(range(0, len(rows), shard_tokens)):
            part = rows[start : start + shard_tokens]
            places = torch.arange(start, start + len(part), dtype=torch.int32)
            columns = {"tokens": places % 50, "positions": places % 8, "documents": places // 8}
            cards.append(write_shard(folder, number, {"activations": part.to(getattr(torch, dtype)), **columns}))
        origin = Origin(
            model="tiny",
            weights="w",
            tokenizer="t",
            site="model.layers.1",
            width=rows.shape[1],
            dtype=dtype,
            context=8,
            batch=8,
            text="a.txt",
            text_sha256="x",
            tokens=len(rows),
            shard_tokens=shard_tokens,
        )
        Manifest(origin=origin, shards=tuple(cards)).write(folder)
        return folder

    return keep


@pytest.fixture
def pretend_to_capture(keep_as_shards):
    """Activations of nothing, where a configuration says that it has those of a model: nobody needs the model.

    And a text of nothing where it names a real one.
    """

    def pretend(config):
        from unbraid.activations.capture import ARROW
        from unbraid.activations.shards import read_manifest
        from unbraid.worlds.activations import source_of

        world = config.get("world", {})
        if world.get("text") == "wikitext-2" and not (folder := Path("real-data/wikitext-2")).exists():
            folder.mkdir(parents=True)
            letters = np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), (6000, 8))
            for part in ("train.txt", "valid.txt"):  # words enough for thousands of byte pairs
                (folder / part).write_text("\n".join("".join(word) for word in letters))
        source = source_of(world)
        if source is not None:
            keep_as_shards(source.folder, torch.randn(400, 12))
            manifest = read_manifest(source.folder)
            facts = {name: getattr(source, name) for name in ("model", "text", "dtype", "context")}
            facts["site"] = ARROW.join(source.names)
            facts = {name: value for name, value in facts.items() if value is not None}
            manifest.model_copy(update={"origin": manifest.origin.model_copy(update=facts)}).write(source.folder)

    return pretend
