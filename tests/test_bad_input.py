"""Whatever is done to a configuration, a user gets a valid run or one sentence; never a traceback."""

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unbraid import cli
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.dictionaries.training.config import Training
from unbraid.pipeline.expand import expand

GOOD = """
title = "small"
seed = 1
[world]
kind = "superposition"
dimensions = 6
n_features = 9
decay = 0.9
active = 1.5
strength = "product"
noise = 0.1
[dictionary]
d_sae = 7
pre_bias = true
activation = { kind = "topk", k = 3 }
[training]
steps = 3
batch = 8
learning_rate = 0.01
warmup_steps = 1
decay_steps = 1
clip = 1.0
reconstruction_loss = "mean_square"
[mechanisms.sparsity]
weight = 0.1
form = "published"
[evaluation]
samples = 64
[checkpoints]
log_every = 1
every = 2
[sweep]
seed = [0, 1]
"mechanisms.sparsity.weight" = [0.0, 0.2]
"""

ALL = tomllib.loads(GOOD)
"""The same with every setting of the nine mechanisms of their source study, and time to reallocate once; not swept."""
del ALL["sweep"]
NINE = [name for name in MECHANISMS if name not in ("sparsity", "matryoshka", "end_to_end")]
ALL["mechanisms"] |= {name: MECHANISMS[name]().to_dict() for name in NINE}
ALL["mechanisms"]["reallocation"]["every"] = 2

VALUES = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([0.0, -0.5, 0.5, 1.0, 1.5, 1e-30, 1e9, float("nan"), float("inf")]),
    st.sampled_from(["", "relu", "topk", "published", "µ", "x" * 300, True, False]),
    st.lists(st.integers(-1, 3), max_size=3),
    st.sampled_from([{}, {"kind": "relu"}, {"kind": "topk", "k": 4}, {"weight": 0.3}, [{}], [[1]], [{"kind": "relu"}]]),
)


def tables(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Every table of a configuration, the whole included."""
    return [tree, *(found for value in tree.values() if isinstance(value, dict) for found in tables(value))]


@st.composite
def mutated_trees(draw: st.DrawFn, good: dict[str, Any], part: str | None = None) -> bytes:
    """One to three keys replaced, dropped, misspelt or added, anywhere or in one part."""
    tree = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        table = draw(st.sampled_from(tables(tree[part] if part else tree)))
        key = draw(st.sampled_from(sorted(table) or ["k"]))
        match draw(st.sampled_from(["replace", "drop", "misspell", "add"])):
            case "replace":
                table[key] = draw(VALUES)
            case "drop":
                table.pop(key, None)
            case "misspell":
                table[key[:-1] + "x"] = table.pop(key, 0)
            case _:
                table[draw(st.text("abcs._", max_size=5))] = draw(VALUES)
    return tomli_w.dumps(tree).encode()


@st.composite
def mutated_bytes(draw: st.DrawFn) -> bytes:
    """A byte dropped, doubled or replaced in the text of the file."""
    text = bytearray(GOOD.encode())
    place = draw(st.integers(0, len(text) - 1))
    text[place : place + 1] = draw(st.sampled_from([b"", b"\xff", b"\x00", b"'", b"]", b"=", b"-", b"\n", b"0", b"."]))
    return bytes(text)


def leaves_out_steps(content: bytes) -> bool:
    """Whether it would train for as many as there are by default, which is two thousand and as good as three."""
    try:
        training = tomllib.loads(content.decode()).get("training", {})
    except ValueError:
        return False
    return isinstance(training, dict) and "steps" not in training


def run(content: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    (folder / "mutated.toml").write_bytes(content)
    words = ["run", str(folder / "mutated.toml"), "--runs", str(folder / "runs"), "-q"]
    words += ["training.steps=3"] * leaves_out_steps(content)
    code = cli.guarded(lambda: cli.app(words))
    out, err = capsys.readouterr()
    if code == 0:
        assert Path(out.strip(), "scores.json").is_file()
    else:
        assert code == 2 or (code == 1 and "is not finite at step" in err), err
        assert err.startswith("unbraid: ")
        assert len(err.splitlines()) == 1, err
        assert "error of ours" not in err
    return code


def test_steps_that_are_left_out_are_those_by_default():
    tree = tomllib.loads(GOOD)
    del tree["training"]["steps"]
    assert leaves_out_steps(tomli_w.dumps(tree).encode())
    assert expand(tree, "here").config["training"]["steps"] == Training().steps


@pytest.mark.parametrize(
    ("mutation", "examples"),
    [(mutated_trees(tomllib.loads(GOOD)), 200), (mutated_trees(ALL, "mechanisms"), 100), (mutated_bytes(), 200)],
    ids=["keys and values", "mechanisms", "bytes"],
)
def test_a_mutated_configuration_is_run_or_refused(
    mutation: st.SearchStrategy[bytes],
    examples: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("unbraid.work.write_report", lambda runs, path: path)  # drawing is tested elsewhere
    codes: list[int] = []

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(mutation)
    def check(content: bytes) -> None:
        codes.append(run(content, tmp_path, capsys))

    check()
    assert len(codes) >= examples
    assert codes.count(0) >= 5  # some mutations are harmless and run
    assert codes.count(2) >= examples / 4
