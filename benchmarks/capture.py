"""Capturing activations against the bare forward pass: the same batches through a model cut off at that layer.

Ours tokenises, runs, stops at the site, keeps the rows, takes checksums and writes; the rival only runs. What
`make real-data` fetched must be there.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.figure import Figure, medians
from unbraid.capture.capturing import Capturing
from unbraid.capture.capturing import capture as keep
from unbraid.capture.models import Model, load
from unbraid.capture.sites import site
from unbraid.capture.texts import documents
from unbraid.capture.windows import by_length, padded, windows
from unbraid.progress import Silent

REAL = Path(__file__).parents[1] / "real-data"
TEXT = REAL / "wikitext-2" / "test.txt"
TOKENS, LAYER, REPEATS = 32_768, 3, 5


def capture() -> Iterator[Figure]:
    for name in ("stories15M", "all-MiniLM-L6-v2"):
        ours, bare = medians(_ours(load(REAL / name)), _bare(load(REAL / name)), REPEATS)
        yield Figure(f"{name}: tokens a second kept", TOKENS / ours, 0, "higher", "")
        yield Figure(f"{name}: capture / bare forward, speed", bare / ours, 0.9, "higher", "×")


def _ours(model: Model) -> Callable[[], object]:
    where, settings = site(model, f"blocks.{LAYER}.hook_resid_post"), Capturing(tokens=TOKENS)
    folder, names = tempfile.TemporaryDirectory(), itertools.count()
    return lambda: keep(model, where, TEXT, Path(folder.name) / str(next(names)), settings, Silent())


def _bare(model: Model) -> Callable[[], object]:
    """Its batches are ready, and its model ends at the layer."""
    base: Any = model.model.base_model
    blocks = base.layers if model.is_causal else base.encoder.layer
    del blocks[LAYER + 1 :]
    settings = Capturing(tokens=TOKENS)
    chosen = list(windows(model, documents(TEXT), min(model.context, 1024), TOKENS))
    batches = [padded(model, [chosen[i] for i in some]) for some in by_length(chosen, settings.batch)]

    @torch.no_grad()
    def run() -> None:
        for tokens, mask in batches:
            base(input_ids=tokens, attention_mask=mask)

    return run
