"""Files that the libraries themselves saved, and what they made of inputs: we read them to the same numbers.

`python -m benchmarks.interop --golden tests/dictionaries/formats/golden` makes them, in `make bench`'s environment.
"""

from pathlib import Path

import pytest
from safetensors.torch import load_file

import unbraid as ub
from tests.dictionaries.formats.conftest import run, same
from unbraid.dictionaries.formats import FORMATS

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(str(path.parent.relative_to(GOLDEN)) for path in GOLDEN.rglob("expected.safetensors"))
RULES = {
    "standard": "Relu",
    "topk": "TopK",
    "jumprelu": "JumpRelu",
    "gated": "Gated",
    "transcoder": "Relu",
    "skip_transcoder": "Relu",
    "jumprelu_transcoder": "JumpRelu",
    "jumprelu_skip_transcoder": "JumpRelu",
    "batchtopk": "BatchTopK",
    "matryoshka": "BatchTopK",
    "AutoEncoder": "Relu",
    "AutoEncoderTopK": "TopK",
    "BatchTopKSAE": "BatchTopK",
    "MatryoshkaBatchTopKSAE": "BatchTopK",
    "GatedAutoEncoder": "Gated",
    "JumpReluAutoEncoder": "JumpRelu",
    "AutoEncoderNew": "Relu",
    "ReLU": "Relu",
    "transcode": "TopK",
    "second_release": "JumpRelu",
}


def path_of(case):
    folder = GOLDEN / case
    return next(folder.glob("*.pt"), folder)


def expected_of(case):
    held = load_file(GOLDEN / case / "expected.safetensors")
    return held["x"], (held["codes"], held["reconstruction"])


def rule_of(case):
    """By the architecture; Gemma Scope's transcoders are jump-relus."""
    return "JumpRelu" if case.startswith("gemma_scope") else RULES[case.split("/")[1].partition("-")[0]]


def test_every_architecture_is_there():
    assert len(CASES) >= 37
    assert {case.split("/")[0] for case in CASES} == {
        *("saelens", "dictionary_learning", "sparsify", "gemma_scope", "llama_scope", "openai")
    }


@pytest.mark.parametrize("case", CASES)
def test_what_a_library_saved_does_here_what_it_does_there(case):
    x, expected = expected_of(case)
    stack = ub.load(path_of(case))
    assert type(stack.activation).__name__ == rule_of(case)
    same(expected, run(stack, x))


@pytest.mark.parametrize("case", CASES)
def test_the_formula_of_a_format_is_the_librarys(case):
    """What conversions are checked against, held against the library."""
    x, expected = expected_of(case)
    ran = FORMATS[case.split("/")[0]].run(path_of(case), x)
    same(expected, (ran.codes, ran.reconstruction))


@pytest.mark.parametrize("case", CASES)
def test_where_from_and_how_well_is_told(case):
    source = ub.load(path_of(case)).metadata["source"]
    assert source["format"] == case.split("/")[0]
    assert max(source["codes"], source["reconstructions"]) <= source["tolerance"] == 1e-5
    assert f"differ by {source['codes']:.1e} of the largest" in source["check"]


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("saelens/standard-b_dec_not_subtracted", "b_dec"),
        ("saelens/topk-rescaled", "lengths"),
        ("saelens/standard-scaled_inputs", "inputs scaled by 0.37"),
        ("dictionary_learning/JumpReluAutoEncoder", "b_dec"),
        ("sparsify/topk-multi_topk", "multi_topk"),
        ("gemma_scope/jumprelu", "b_dec"),
        ("gemma_scope/transcoder", "transcoder"),
        ("llama_scope/jumprelu", "average lengths"),
    ],
)
def test_what_is_folded_is_told(case, word):
    assert any(word in note for note in ub.load(path_of(case)).metadata["source"]["notes"])


def test_metadata_of_libraries_are_kept():
    known = ub.load(GOLDEN / "saelens/standard").metadata
    assert (known["model"], known["site"]) == ("gpt2", "blocks.3.hook_resid_pre")
    known = ub.load(GOLDEN / "dictionary_learning/MatryoshkaBatchTopKSAE/ae.pt").metadata
    assert (known["model"], known["site"]) == ("EleutherAI/pythia-70m", "blocks.3.hook_resid_post")
    assert known["dictionary_learning"]["group_sizes"] == [4, 6]


def test_rows_of_other_lengths_stay_as_they_are():
    free = ub.load(GOLDEN / "saelens/standard")
    assert free.decoder_norm == "free"
    held = load_file(GOLDEN / "saelens/standard/sae_weights.safetensors")
    assert free.W_dec[0].equal(held["W_dec"])
    assert free.W_enc[0].equal(held["W_enc"])
    assert ub.load(GOLDEN / "sparsify/topk").decoder_norm == "unit"
