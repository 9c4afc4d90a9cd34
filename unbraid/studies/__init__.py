"""The configurations that ship, found by path or by name."""

from pathlib import Path

from unbraid.config import nearest
from unbraid.errors import Refusal

PACKAGE = Path(__file__).parents[1]


def shipped() -> list[Path]:
    """In an installed package they lie inside it; in a checkout, beside it."""
    inside = PACKAGE / "configs"
    return sorted((inside if inside.is_dir() else PACKAGE.parent / "configs").glob("*.toml"))


def find_config(text: str) -> Path:
    """A file by its path, or a configuration that ships by its name."""
    named = {path.stem: path for path in shipped()}
    path = Path(text)
    if path.exists() and (path.is_file() or text not in named):
        return path
    if path.stem in named and text in (path.stem, f"configs/{path.stem}.toml"):
        return named[path.stem]
    raise Refusal(f"{text}: there is no such file, nor a configuration of that name; {nearest(path.stem, named)}")
