"""What had another name before: the configurations that ship, and the claims.

Settings of a configuration know their old names themselves (`Config.renamed`), and so do commands
(`cli/group.py`).
"""

SOURCES = {"000": "head-constraints", "001": "gauge", "002": "superposition", "003": "mechanisms"}
"""The source studies by the numbers that they had."""
CONFIGS = {
    "003-ladder": "mechanisms/ablation",
    "line": "pipeline/demo",
    "line-architectures": "pipeline/architectures",
    "line-dropout": "pipeline/dropout",
}
"""Configurations of which more than the number was renamed."""


def current_name(name: str) -> str | None:
    """The name that a configuration that ships or a claim has now; None where this was never the name of one."""
    number, _, rest = name.partition("-")
    return CONFIGS.get(name) or (f"{SOURCES[number]}/{rest}" if number in SOURCES and rest else None)
