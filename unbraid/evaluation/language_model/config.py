"""What dictionaries are evaluated on, as a table of a configuration."""

from collections import Counter
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from unbraid.config import Config
from unbraid.errors import Missing

PROGRESS_STEPS = 1000
"""Steps of progress that each part of an evaluation reports."""


class LanguageModelEvaluation(Config):
    """A model, a text to splice reconstructions into, labelled texts to probe on, and how much of them is read."""

    text: str
    """A text file, a .jsonl file or a folder of them; reconstructions are spliced into the model's run on it."""
    model: str | None = None
    """A Hugging Face model; None: the one that the activations are of."""
    site: str | None = None
    """Where in the model; None: the site of the activations."""
    labels: tuple[str, ...] = Field(default=(), strict=False)
    """Files of labelled texts (.jsonl) for sparse probing; each adds a data set to the mean."""
    tokens: int = Field(default=8192, ge=2, le=10**9)
    """Tokens of the text that are read; more make the loss more precise."""
    texts: int = Field(default=1000, ge=100, le=10**7)
    """Labelled texts of each file; more make probing more precise."""
    context: int = Field(default=128, ge=2, le=1 << 20)
    """Longest window in tokens; longer windows give tokens more context and take more memory."""
    letters: bool = True
    """Whether to measure the absorption of first letters."""

    @model_validator(mode="after")
    def name_every_set_once(self) -> Self:
        stems = Counter(Path(path).stem for path in self.labels)
        if twice := [path for path in self.labels if stems[Path(path).stem] > 1]:
            raise ValueError(
                f"labels {' and '.join(twice)} are of one name; accepted: labelled files whose names differ"
            )
        return self

    @property
    def steps(self) -> int:
        """Steps of progress: of the text, of every file of labelled texts, of the letters."""
        return PROGRESS_STEPS * (1 + len(self.labels) + self.letters)


def check_texts_exist(config: LanguageModelEvaluation) -> None:
    """Raise where one of the texts is not on this machine."""
    for path in (config.text, *config.labels):
        if not Path(path).exists():
            raise Missing(f"{path}: there is no such text to evaluate on", path)
