"""Read a Hugging Face dataset: a folder that `save_to_disk` wrote, a folder of parquet or csv files, or a hub name."""

# pyright: reportMissingImports=false
# (`datasets` is an extra)

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from unbraid.config import is_encodable, suggest
from unbraid.errors import Missing, UserError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Rows = Dataset | IterableDataset

SAVED = ("dataset_dict.json", "state.json")
"""A folder that `save_to_disk` wrote holds one of these."""
BATCH = 256
"""Rows that are read at a time."""


def is_saved(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return any((path / name).is_file() for name in SAVED)


def open_splits(path: str, subset: str | None = None, streaming: bool = False) -> "dict[str, Rows]":
    """Every split of a dataset by its name; one that has none is called `train`.

    Parameters
    ----------
    path
        A folder, or a name on the hub. Where HF_HUB_OFFLINE is set, only the hub's local cache is searched.
    subset
        Which of a dataset's configurations.
    streaming
        Whether to read the files as rows are asked for, without a copy on disk.
    """
    with _report_errors(path):
        try:
            import datasets
        except ImportError:
            raise UserError(
                f"{path} is read as a Hugging Face dataset, and `datasets` is not installed here; accepted: "
                "`pip install 'unbraid[datasets]'`, or a text file"
            ) from None
        with _without_output(datasets):
            if is_saved(Path(path)):
                if subset is not None or streaming:
                    raise UserError(f"{path} was written by save_to_disk; accepted: without subset and streaming")
                loaded: Any = datasets.load_from_disk(path)
            else:
                loaded = datasets.load_dataset(path, subset, streaming=streaming)
    if isinstance(loaded, dict):
        return {str(name): rows for name, rows in loaded.items()}
    return {str(loaded.split or "train"): loaded}


def open_tables(path: str, subset: str | None = None) -> "dict[str, Dataset]":
    """Every split of a dataset, with all of its rows at hand."""
    return cast("dict[str, Dataset]", open_splits(path, subset))


def open_split(path: str, split: str | None, subset: str | None = None, streaming: bool = False) -> "Rows":
    """One split of a dataset: the one asked for, or the only one that there is."""
    splits = open_splits(path, subset, streaming)
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None:
        raise UserError(f"{path} has the splits {', '.join(splits)}; accepted: one of them")
    if split not in splits:
        raise UserError(f"{path} has no split '{split}'; {suggest(split, splits)}")
    return splits[split]


def columns_of(rows: "Rows") -> list[str]:
    """The names of the columns, also of a stream that does not know them yet."""
    names = rows.column_names
    return list(names if names is not None else next(iter(rows), {}))


def check_column(rows: "Rows", column: str, path: str) -> None:
    if column not in (columns := columns_of(rows)):
        raise UserError(f"{path} has no column '{column}'; {suggest(column, columns)}")


def read_column(rows: "Rows", column: str, path: str) -> Iterator[str]:
    """The texts of a column that are not empty, in order."""
    check_column(rows, column, path)
    batches = rows.select_columns([column]).iter(batch_size=BATCH)
    for batch in cast("Iterator[dict[str, list[Any]]]", batches):
        for text in batch[column]:
            yield from [check_text(text, column, path)] if text is not None and text != "" else []


def check_text(text: object, column: str, path: str) -> str:
    if not isinstance(text, str) or not is_encodable(text):
        raise UserError(f"the column '{column}' of {path} holds {text!r:.40}; accepted: a column of texts")
    return text


@contextmanager
def _report_errors(path: str) -> Iterator[None]:
    """Turn whatever loading a dataset can raise into one sentence."""
    try:
        yield
    except (MemoryError, UserError):
        raise
    except Exception as problem:  # damaged files and a silent network end in errors of many types
        first = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        if Path(path).exists():
            raise UserError(f"{path} cannot be loaded as a Hugging Face dataset: {first:.200}") from None
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        raise Missing(
            f"there is no folder '{path}' here and the hub gave no such dataset{offline}: {first:.160}; accepted: a "
            "text file, a folder of texts, or a Hugging Face dataset as a folder or by its name",
            path,
        ) from None


@contextmanager
def _without_output(datasets: Any) -> Iterator[None]:
    """Without the progress bars and notes that loading prints."""
    level, hidden = datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if not hidden:
            datasets.enable_progress_bars()
