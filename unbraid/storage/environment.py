"""What a result may depend on beyond its configuration: versions, machine, threads, the commit of the code."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("unbraid", "torch", "numpy", "scipy", "safetensors", "pydantic")


def environment() -> dict[str, Any]:
    """As it is now."""
    import torch  # here, because listing and reporting need no torch

    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the code that runs, with `+` if it was changed since; None outside a checkout."""
    here = Path(__file__).parent.parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, timeout=10, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit}+" if commit and git("status", "--porcelain", "--", str(here)) else commit
