"""What dictionaries are judged on, as a table of a configuration: `[judging]`."""

from collections import Counter
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from unbraid.config import Record
from unbraid.errors import Missing

STAGE = 1000
"""Of so many steps every stage is told."""


class Judging(Record):
    """A model, a text to splice reconstructions into, labelled texts to probe on; and how much of them is read.

    Tokens of the text, labelled texts of each file, tokens of a window; and letters or not. Without a model, the one
    that the activations are of; without a site, the one they are taken at.
    """

    text: str
    model: str | None = None
    site: str | None = None
    labels: tuple[str, ...] = Field(default=(), strict=False)
    tokens: int = Field(default=8192, ge=2, le=10**9)
    texts: int = Field(default=1000, ge=100, le=10**7)
    context: int = Field(default=128, ge=2, le=1 << 20)
    letters: bool = True

    @model_validator(mode="after")
    def name_every_set_once(self) -> Self:
        stems = Counter(Path(path).stem for path in self.labels)
        if twice := [path for path in self.labels if stems[Path(path).stem] > 1]:
            raise ValueError(
                f"labels {' and '.join(twice)} are of one name; accepted: labelled files whose names differ"
            )
        return self

    @property
    def stages(self) -> int:
        """One for the text, one for every file of labelled texts, one for the letters."""
        return 1 + len(self.labels) + self.letters

    @property
    def steps(self) -> int:
        return STAGE * self.stages


def refuse_absent(settings: Judging) -> None:
    """Say which of the texts is not on this machine."""
    for path in (settings.text, *settings.labels):
        if not Path(path).exists():
            raise Missing(f"{path}: there is no such text to judge on", path)
