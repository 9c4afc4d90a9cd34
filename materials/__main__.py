"""`python -m materials FOLDER`: fetch and convert whatever is not in the folder yet."""

import sys
from collections.abc import Callable
from pathlib import Path

from materials import labelled, minilm, stories, wikitext

MADE: dict[str, Callable[[Path, Path], None]] = {
    "stories15M": stories.make,
    "all-MiniLM-L6-v2": minilm.make,
    "wikitext-2": wikitext.make,
    "labelled": labelled.make,
}
"""A folder each; it counts as made when it is there, and it appears whole."""


def main(folder: Path) -> None:
    for name, make in MADE.items():
        if not (folder / name).is_dir():
            print(f"making {folder / name}", flush=True)
            aside = folder / f".{name}.part"
            aside.mkdir(parents=True, exist_ok=True)
            make(folder / "downloads", aside)
            aside.rename(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
