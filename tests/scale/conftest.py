"""Tests that need an extra are read only where they are asked for: `make scale` installs what they need."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined


def pytest_ignore_collect(collection_path, config):
    """Not even imported by `make test`, which needs no extra."""
    return True if "not scale" in config.getoption("markexpr") else None
