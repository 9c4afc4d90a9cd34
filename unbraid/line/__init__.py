"""The whole line: planted factors through a taught transformer to a dictionary that is scored against them."""

from unbraid.line.settings import Capture

__all__ = ["Capture"]
