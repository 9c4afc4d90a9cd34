"""CaptureConfig activations against the bare forward pass: the same batches through a model cut off at that layer.

Ours tokenizes, runs, stops at the site, keeps the rows, takes checksums and writes; the rival only runs. What
`make real-data` fetched must be there.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.figure import Figure, medians
from unbraid.activations.capture import CaptureConfig, capture_sites
from unbraid.activations.huggingface import HuggingFaceModel, load_model
from unbraid.activations.sites import find_site
from unbraid.activations.text import batch_by_length, cut_windows, pad_windows, read_documents
from unbraid.progress import Silent

REAL = Path(__file__).parents[1] / "real-data"
TEXT = REAL / "wikitext-2" / "test.txt"
TOKENS, LAYER, REPEATS = 32_768, 3, 5
SITE = f"blocks.{LAYER}.hook_resid_post"


def capture() -> Iterator[Figure]:
    for name in ("stories15M", "all-MiniLM-L6-v2"):
        ours, bare = medians(_ours(load_model(REAL / name)), _bare(load_model(REAL / name)), REPEATS)
        yield Figure(f"{name}: tokens a second kept", TOKENS / ours, 0, "higher", "")
        yield Figure(f"{name}: capture / bare forward, speed", bare / ours, 0.9, "higher", "×")


def _ours(model: HuggingFaceModel) -> Callable[[], object]:
    site, config = find_site(model, SITE), _config(model)
    folder, names = tempfile.TemporaryDirectory(), itertools.count()
    return lambda: capture_sites(model, [site], config, Path(folder.name) / str(next(names)), Silent())


def _config(model: HuggingFaceModel) -> CaptureConfig:
    return CaptureConfig(model=model.name, text=str(TEXT), site=SITE, tokens=TOKENS)


def _bare(model: HuggingFaceModel) -> Callable[[], object]:
    """Its batches are ready, and its model ends at the layer."""
    base: Any = model.model.base_model
    blocks = base.layers if model.is_causal else base.encoder.layer
    del blocks[LAYER + 1 :]
    windows = list(cut_windows(model, read_documents(TEXT), min(model.context, 1024), TOKENS))
    chosen = batch_by_length(windows, _config(model).batch)
    batches = [pad_windows(model, [windows[index] for index in batch]) for batch in chosen]

    @torch.no_grad()
    def run() -> None:
        for tokens, mask in batches:
            base(input_ids=tokens, attention_mask=mask)

    return run
