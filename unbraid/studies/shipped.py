"""The configurations that ship, found by path or by name.

A name is the path inside `configs/` without its ending: `superposition/grid`, `quickstart`.
"""

from pathlib import Path

from unbraid.config import suggest
from unbraid.errors import UserError

PACKAGE = Path(__file__).parents[1]
SOURCES = {"000": "head-constraints", "001": "gauge", "002": "superposition", "003": "mechanisms"}
"""The source studies by the numbers that they had."""
CONFIGS = {
    "003-ladder": "mechanisms/ablation",
    **{f"{study}run-{run}": "mechanisms/published" for study in ("003-", "mechanisms/") for run in range(10)},
    "line": "pipeline/demo",
    "line-architectures": "pipeline/architectures",
    "line-dropout": "pipeline/dropout",
}
"""Configurations of which more than the number was renamed."""


def shipped() -> dict[str, Path]:
    """Every configuration that ships, by its name. In an installed package they lie inside it, in a checkout beside."""
    inside = PACKAGE / "configs"
    folder = inside if inside.is_dir() else PACKAGE.parent / "configs"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def find_config(text: str) -> Path:
    """A file by its path, or a configuration that ships by its name or by `configs/NAME.toml`."""
    configs, path = shipped(), Path(text)
    name = text.removeprefix("configs/").removesuffix(".toml") if text.startswith("configs/") else text
    if path.exists() and (path.is_file() or name not in configs):
        return path
    if name in configs:
        return configs[name]
    if (now := current_name(name.removesuffix(".toml"))) in configs:
        raise UserError(f"the configuration `{text}` is now `{now}`")
    raise UserError(f"{text}: there is no such file, nor a configuration of that name; {_suggestion(name, configs)}")


def current_name(name: str) -> str | None:
    """The name that a configuration that ships or a claim has now; None where this was never the name of one."""
    number, _, rest = name.partition("-")
    return CONFIGS.get(name) or (f"{SOURCES[number]}/{rest}" if number in SOURCES and rest else None)


def config_name(path: Path) -> str:
    """The name of a configuration that ships; of any other file its stem."""
    names = {shipped_path: name for name, shipped_path in shipped().items()}
    return names.get(path, path.stem)


def _suggestion(name: str, configs: dict[str, Path]) -> str:
    """`grid` alone is not accepted, since another study may have a `grid` tomorrow; but it says what is meant."""
    same_stem = [f"'{full}'" for full, path in configs.items() if path.stem == Path(name).stem]
    if same_stem:
        return f"did you mean {' or '.join(same_stem)}? accepted: {', '.join(configs)}"
    return suggest(name, configs)
