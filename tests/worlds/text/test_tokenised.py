"""A text is made into numbers once, and again when it has changed; byte pairs are kept on disk by their checksum."""

from pathlib import Path

import numpy as np
import pytest

from unbraid.worlds.text import tokenised as module
from unbraid.worlds.text.tokenised import tokenised

LINES = "the cat sat on the mat and the dog sat on the cat\n" * 40


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(LINES)
    return "a.txt"


def test_a_text_that_has_changed_is_read_again(text: str):
    first = tokenised(text, None, None, None)
    assert tokenised(text, None, None, None) is first
    Path(text).write_text(LINES + "more of the same, and longer\n" * 20)
    again = tokenised(text, None, None, None)
    assert again.fingerprint != first.fingerprint
    assert len(again.training) > len(first.training)


def test_byte_pairs_are_learned_once(text: str, monkeypatch: pytest.MonkeyPatch):
    first = tokenised(text, 270, None, None)
    (folder,) = Path("tokens").iterdir()
    assert folder.name == f"a-270-{first.fingerprint[:8]}"
    module._tokenised.cache_clear()
    monkeypatch.setattr(module, "learn", lambda *_: pytest.fail("learned again"))
    again = tokenised(text, 270, None, None)
    np.testing.assert_array_equal(again.training, first.training)
    np.testing.assert_array_equal(again.validation, first.validation)
    assert again.units.vocabulary == first.units.vocabulary
    assert again.units.decode(again.training.tolist()) + again.units.decode(again.validation.tolist()) == LINES
