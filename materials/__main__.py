"""`python -m materials FOLDER [--without NAME]...`: fetch and convert whatever is not in the folder yet."""

import argparse
from collections.abc import Callable, Collection
from pathlib import Path

from materials import labelled, minilm, stories, told, wikitext

MADE: dict[str, Callable[[Path, Path], None]] = {
    "stories15M": stories.make,
    "all-MiniLM-L6-v2": minilm.make,
    "wikitext-2": wikitext.make,
    "labelled": labelled.make,
    "told-stories": told.make,
}
"""A folder each, made in this order; it counts as made when it is there, and it appears whole."""


def main(folder: Path, without: Collection[str]) -> None:
    for name, make in MADE.items():
        if name not in without and not (folder / name).is_dir():
            print(f"making {folder / name}", flush=True)
            aside = folder / f".{name}.part"
            aside.mkdir(parents=True, exist_ok=True)
            make(folder / "downloads", aside)
            aside.rename(folder / name)


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("folder", type=Path)
    words.add_argument("--without", action="append", choices=MADE, default=[])
    given = words.parse_args()
    main(given.folder, given.without)
