"""Run a model over a text and store the activations at a site as shards; a stopped capture goes on where it was.

A shard is made of whole windows, in the order of the text, and written at once. Going on is making the shards that are
missing, so a capture that was stopped ends with the same files as one that was not.
"""

import hashlib
import json
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from unbraid.activations.huggingface import HuggingFaceModel, load_model
from unbraid.activations.shards import (
    MANIFEST,
    Dtype,
    Manifest,
    Origin,
    Shards,
    begin_manifest,
    read_manifest,
    weights_fingerprint,
    write_missing,
)
from unbraid.activations.sites import Site, find_site, read_sites
from unbraid.activations.text import (
    TextSource,
    Window,
    batch_by_length,
    context_length,
    cut_windows,
    pad_windows,
    windows_fingerprint,
)
from unbraid.axes import Tensor
from unbraid.config import Config
from unbraid.devices import Hardware, Precision
from unbraid.errors import Missing, UserError
from unbraid.progress import Progress, Silent, Task
from unbraid.signals import StopSignals

HOME = Path("activations")
ARROW = " → "
"""Between a site and its target, in the name of what was captured."""
ROW_BYTES = 12
"""Bytes of a row beside its activations: token, position, document."""
DECISIVE = ("model", "text", "column", "split", "subset", "site", "target", "tokens", "dtype", "context")
"""The fields that say what is captured; the others say how."""


class CaptureConfig(Config):
    """Which activations to capture: the arguments of `unbraid capture`, and the table [world.capture].

    Paths are relative to the working directory.

    Examples
    --------
    >>> import unbraid as ub
    >>> config = ub.CaptureConfig(model="gpt2", text="text.txt", site="blocks.3.hook_resid_post", tokens=100_000)
    >>> config.dtype, config.context
    ('float32', None)
    """

    model: str
    """A Hugging Face model: a folder, or its name on the hub."""
    text: str
    """A text file, a .jsonl file, or a folder of them; or a Hugging Face dataset: a folder, or its name on the hub."""
    column: str | None = None
    """Of a dataset, the column that holds the texts. None: `text`."""
    split: str | None = None
    """Of a dataset, which split, as `train`. None: the only one."""
    subset: str | None = None
    """Of a dataset with several configurations, which of them, as `wikitext-2-raw-v1`."""
    streaming: bool | None = None
    """Whether a dataset is read as rows are needed, without a copy on disk; `tokens` says how much. None: no."""
    site: str
    """Where in the model: a module, as `model.layers.3`, or a TransformerLens hook, as `blocks.3.hook_resid_post`."""
    target: str | None = None
    """Another site, that transcoders predict from the first, captured in the same pass; as `blocks.3.hook_mlp_out`."""
    tokens: int | None = Field(default=None, ge=1)
    """Number of tokens to capture; more give more training data, and take more disk and time. None: the whole text."""
    dtype: Dtype = "float32"
    """The type on disk; bfloat16 halves the size and keeps 8 bits of precision."""
    context: int | None = Field(default=None, ge=2)
    """Longest window in tokens; longer gives tokens more context. None: what the model takes, up to 1024."""
    batch: int = Field(default=4096, ge=1)
    """Tokens that run through the model at a time; more are faster and take more memory."""
    shard_bytes: int = Field(default=64 << 20, ge=1)
    """Bytes of a shard; larger shards are fewer files, and lose more work when a capture is stopped."""

    @model_validator(mode="after")
    def check_streaming(self) -> Self:
        if self.streaming and self.tokens is None:
            raise ValueError("streaming is true and tokens was not given; accepted: streaming with a number of tokens")
        return self

    @property
    def source(self) -> TextSource:
        """Where the documents come from."""
        return TextSource(self.text, self.column, self.split, self.subset, bool(self.streaming))

    @property
    def folder(self) -> Path:
        """Where the shards go if `world.path` is left out: another folder for every other choice of what to capture."""
        decisive = {name: value for name, value in self.to_dict().items() if name in DECISIVE}
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:8]
        return Path(f"{default_folder(self.model, '-to-'.join(self.names))}-{digest}")

    @property
    def names(self) -> tuple[str, ...]:
        """The site and, where there is one, the target."""
        return (self.site,) if self.target is None else (self.site, self.target)


def default_folder(model: str, site: str) -> Path:
    """activations/MODEL-SITE, by the last part of the model's name."""
    return HOME / f"{Path(model).name or 'model'}-{site.replace('/', '-')}"


def capture(
    config: CaptureConfig,
    folder: Path,
    progress: Progress | None = None,
    resume_command: str | None = None,
    device: str = "cpu",
    precision: Precision = "float32",
) -> Shards:
    """Run a Hugging Face model over a text and store its activations at one site.

    A capture that was stopped goes on when it is called again.

    Parameters
    ----------
    config : CaptureConfig
        Model, text, site, number of tokens and type.
    folder : Path
        Where the shards go: a new or empty folder, or one with the same capture unfinished.
    progress : Progress, optional
        Shows progress; by default nothing is shown.
    resume_command : str, optional
        The command that is shown to a user who interrupts; by default `unbraid capture` with the same arguments.
    device : str, default "cpu"
        Where the model runs: "auto", "cpu", "cuda", "cuda:1" or "mps".
    precision : {"float32", "bfloat16", "float16"}
        What the model runs in; a capture that was begun goes on with the same, and on the same sort of device.

    Returns
    -------
    Shards
        The activations, open for reading: `len(shards)` rows of `shards.width` numbers. `Activations` trains on them.

    Examples
    --------
    A tiny GPT-2 with random weights; for the real one, give `model="gpt2"`.

    >>> from pathlib import Path
    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    >>> words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "cat": 2, "sat": 3}, unk_token="[UNK]"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> _ = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained("tiny")
    >>> tiny = GPT2Config(vocab_size=4, n_embd=8, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)
    >>> GPT2LMHeadModel(tiny).save_pretrained("tiny")
    >>> _ = Path("text.txt").write_text("a cat sat " * 100)

    >>> import unbraid as ub
    >>> config = ub.CaptureConfig(model="tiny", text="text.txt", site="blocks.1.hook_resid_post", tokens=64)
    >>> shards = ub.capture(config, Path("activations"))
    >>> len(shards), shards.width
    (64, 8)
    >>> ub.Activations(path="activations").batch(position=0, size=5).x.shape
    torch.Size([5, 8])
    """
    if folder.is_file():
        raise UserError(f"--out {folder} is a file; accepted: a new folder, or one with a capture to go on with")
    next(config.source.documents())  # an unreadable text is reported before the model is loaded
    hardware = Hardware.of(device, precision)
    with progress or Silent() as progress, StopSignals(resume_command or capture_command(config, folder, hardware)):
        progress.status(f"loading {config.model}")
        model = load_model(config.model, hardware)
        return capture_sites(model, [find_site(model, name) for name in config.names], config, folder, progress)


def capture_command(config: CaptureConfig, folder: Path, hardware: Hardware | None = None) -> str:
    """The command that goes on with a capture, as it can be pasted into a shell."""
    values = {"tokens": config.tokens, "dtype": config.dtype, "context": config.context, "batch": config.batch}
    values |= {"column": config.column, "split": config.split, "subset": config.subset}
    if hardware is not None and hardware.facts():
        values |= {"device": hardware.device, "precision": hardware.precision}
    options = [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
    options += ["--streaming"] if config.streaming else []
    text, target = str(Path(config.text)), [] if config.target is None else ["--target", config.target]
    sites = ["--site", config.site, *target]
    return shlex.join(["unbraid", "capture", config.model, text, *sites, *options, "--out", str(folder)])


def capture_missing(
    config: CaptureConfig,
    folder: Path,
    progress: Progress,
    resume_command: str | None = None,
    device: str = "cpu",
    precision: Precision = "float32",
) -> None:
    """Capture what is not in the folder yet; raises for a folder that holds something else."""
    manifest = _finished(folder)
    if manifest is not None and not _may_be_more(config, manifest):
        check_same_capture(config, manifest, folder)
        return
    capture(config, folder, progress, resume_command, device, precision)


def check_captured(config: CaptureConfig, folder: Path) -> None:
    """Raise where the shards still have to be made, with what they are made from."""
    if _finished(folder) is None:
        absent = next((path for path in (config.model, config.text) if not Path(path).exists()), "")
        raise Missing(
            f"{folder} does not hold the activations of {config.model} at {config.site} yet; accepted: `unbraid run`, "
            "which captures them first",
            absent,
        )


def check_same_capture(config: CaptureConfig, manifest: Manifest, folder: Path) -> None:
    """Raise where a folder holds another capture than the one asked for, with what differs."""
    for name in ("model", "site", "text", "dtype", "context", "tokens"):
        asked, stored = getattr(config, name), getattr(manifest.origin, name)
        if name == "site":
            asked = ARROW.join(config.names)
        if name == "text":
            asked = config.source.name
        if asked is not None and asked != stored and not (name == "tokens" and stored < asked):
            raise UserError(
                f"{folder} holds activations with {name} {stored!r:.60}, and world.capture has {asked!r:.60}; "
                "accepted: world.path left out, or another folder"
            )


def _finished(folder: Path) -> Manifest | None:
    manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    return manifest if manifest is not None and manifest.is_finished else None


def _may_be_more(config: CaptureConfig, manifest: Manifest) -> bool:
    """Fewer tokens than asked for: a short text, or an older capture. Only the text can tell which."""
    return config.tokens is not None and manifest.origin.tokens < config.tokens


def capture_sites(
    model: HuggingFaceModel, sites: Sequence[Site], config: CaptureConfig, folder: Path, progress: Progress
) -> Shards:
    """Make the shards that are not in the folder yet, with a model that is loaded; a second site is the target."""
    progress.status(f"tokenizing {config.source.name}")
    context = context_length(model, config.context)
    windows = list(cut_windows(model, config.source.documents(), context, config.tokens))
    if not (folder / MANIFEST).is_file() and folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} holds other files; accepted: an empty or new folder, or a capture to go on with")
    manifest = begin_manifest(folder, _origin(model, sites, config, context, windows), progress.say)
    if manifest.shards:
        progress.say(f"{folder} holds {len(manifest.shards)} finished shards; going on from there")
    shards = list(_split_into_shards(windows, manifest.origin.shard_tokens))
    _check_disk_space(folder, manifest)
    progress.plan([Task(f"capturing {manifest.origin.site}", "capture", manifest.origin.tokens, 1e-4)])
    progress.advance(0, manifest.tokens)
    return write_missing(
        folder,
        manifest,
        len(shards),
        lambda number, written: _run_windows(model, sites, shards[number], written, progress),
    )


def _origin(
    model: HuggingFaceModel, sites: Sequence[Site], config: CaptureConfig, context: int, windows: Sequence[Window]
) -> Origin:
    source = config.source
    if not windows:
        raise UserError(f"{source.name} holds no tokens but special ones; accepted: a text with at least one word")
    widths = [rows.shape[-1] for rows in read_sites(model, sites, torch.from_numpy(windows[0].tokens[:2])[None])]
    return Origin(
        model=model.name,
        weights=weights_fingerprint(model.model.state_dict()),
        tokenizer=model.tokenizer_fingerprint(),
        site=ARROW.join(site.name for site in sites),
        width=sum(widths),
        targets=tuple(widths[1:]),
        dtype=config.dtype,
        context=context,
        batch=config.batch,
        text=source.name,
        text_sha256=windows_fingerprint(windows) if source.is_dataset else source.fingerprint(),
        tokens=sum(window.n_kept for window in windows),
        shard_tokens=max(1, config.shard_bytes // _row_bytes(config.dtype, sum(widths))),
        made_by=tuple(_hardware(model).facts()),
    )


def _hardware(model: HuggingFaceModel) -> Hardware:
    """Where a model that is loaded runs, and in what."""
    precision: Any = str(model.model.dtype).removeprefix("torch.")
    return Hardware(str(model.device), precision)


def _row_bytes(dtype: Dtype, width: int) -> int:
    return getattr(torch, dtype).itemsize * width + ROW_BYTES


def _check_disk_space(folder: Path, manifest: Manifest) -> None:
    origin = manifest.origin
    left = origin.tokens - manifest.tokens
    needed = left * _row_bytes(origin.dtype, origin.width)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"the activations of {left:,} tokens take {needed / 1e9:.2f} GB and {folder} has "
            f"{free / 1e9:.2f} GB free; accepted: fewer --tokens, --dtype bfloat16, or another --out"
        )


def _split_into_shards(windows: Sequence[Window], shard_tokens: int) -> Iterator[list[Window]]:
    """The windows of every shard: as many as do not exceed its tokens, and at least one."""
    shard: list[Window] = []
    tokens = 0
    for window in windows:
        if shard and tokens + window.n_kept > shard_tokens:
            yield shard
            shard, tokens = [], 0
        shard.append(window)
        tokens += window.n_kept
    yield shard


def _run_windows(
    model: HuggingFaceModel, sites: Sequence[Site], windows: Sequence[Window], manifest: Manifest, progress: Progress
) -> dict[str, Tensor]:
    """The tensors of one shard: batches run longest first, and rows are in the order of the text."""
    ends = np.cumsum([window.n_kept for window in windows])
    done, began, before = manifest.tokens, time.monotonic(), manifest.tokens
    activations = torch.empty(int(ends[-1]), manifest.origin.width, dtype=getattr(torch, manifest.origin.dtype))
    for batch in batch_by_length(windows, manifest.origin.batch):
        output = torch.cat(read_sites(model, sites, *pad_windows(model, [windows[index] for index in batch])), -1)
        for row, index in enumerate(batch):
            window = windows[index]
            positions = torch.from_numpy(np.flatnonzero(window.kept))
            activations[ends[index] - window.n_kept : ends[index]] = output[row, positions].to(activations.dtype)
            done += window.n_kept
        progress.advance(0, done)
        speed = (done - before) / max(time.monotonic() - began, 1e-9)
        progress.note(f"{done:,} of {manifest.origin.tokens:,} tokens  {speed:,.0f} a second")
    columns = {
        "tokens": [window.tokens[window.kept] for window in windows],
        "positions": [np.flatnonzero(window.kept) for window in windows],
        "documents": [np.full(window.n_kept, window.document) for window in windows],
    }
    integers = {name: torch.from_numpy(np.concatenate(parts).astype(np.int32)) for name, parts in columns.items()}
    return {"activations": activations, **integers}
