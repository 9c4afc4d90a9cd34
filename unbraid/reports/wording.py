"""What is said of a metric."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """How a metric is called, what it means in one line, which way is better, and how its numbers are written."""

    heading: str
    meaning: str
    better: str = "higher is better"
    digits: str = ".3f"
