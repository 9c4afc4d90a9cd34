"""What dictionaries are evaluated on, as a table of a configuration."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from unbraid.activations.text import TextSource
from unbraid.config import Config
from unbraid.evaluation.language_model.labelled import LabelColumns, is_file, read_labelled

PROGRESS_STEPS = 1000
"""Steps of progress that each part of an evaluation reports."""


class LanguageModelEvaluation(Config):
    """A model, a text to splice reconstructions into, labelled texts to probe on, and how much of them is read."""

    text: str
    """A text file, a .jsonl file, a folder of them or a Hugging Face dataset; reconstructions are spliced into the
    model's run on it."""
    column: str | None = None
    """Of a dataset, the column that holds the texts. None: `text`."""
    split: str | None = None
    """Of a dataset, which split, as `test`. None: the only one."""
    subset: str | None = None
    """Of a dataset with several configurations, which of them."""
    model: str | None = None
    """A Hugging Face model; None: the one that the activations are of."""
    site: str | None = None
    """Where in the model; None: the site of the activations."""
    labels: tuple[str, ...] = Field(default=(), strict=False)
    """Files of labelled texts (.jsonl), Hugging Face datasets, or SAEBench's by their names there, for sparse probing;
    each adds a data set to the mean."""
    label_text: str | None = None
    """Of datasets among the labels, the column that holds the texts. None: `text`."""
    label_column: str | None = None
    """Of datasets among the labels, the column that holds the labels. None: `label`."""
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
    def source(self) -> TextSource:
        """Where the documents come from."""
        return TextSource(self.text, self.column, self.split, self.subset)

    @property
    def label_columns(self) -> LabelColumns:
        """Of datasets among the labels."""
        return LabelColumns(self.label_text or "text", self.label_column or "label")

    @property
    def steps(self) -> int:
        """Steps of progress: of the text, of every file of labelled texts, of the letters."""
        return PROGRESS_STEPS * (1 + len(self.labels) + self.letters)


def check_texts_exist(config: LanguageModelEvaluation) -> None:
    """Raise where one of the texts is not on this machine."""
    config.source.check_exists()
    for path in config.labels:
        if is_file(Path(path)):
            TextSource(path).check_exists()


def labels_fingerprint(path: Path, config: LanguageModelEvaluation) -> str:
    """The checksum of a file of labels; of a dataset, of what is drawn from it."""
    if is_file(path):
        return TextSource(str(path)).fingerprint()
    drawn = read_labelled(path, config.texts, config.label_columns)
    words = json.dumps([drawn.names, drawn.texts, drawn.classes.tolist(), drawn.train.tolist()])
    return hashlib.sha256(words.encode()).hexdigest()
