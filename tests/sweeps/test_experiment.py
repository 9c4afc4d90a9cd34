"""Which settings go together, and what is said of those that do not."""

import pytest

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.pipeline.experiment import Experiment

STORIES = {"kind": "stories"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"world": STORIES, "model": {"d_model": 64, "heads": 5}}, r"heads is 5, which does not divide d_model 64"),
        ({"world": {**STORIES, "task": "one_fakt"}}, r"world\.task is 'one_fakt'; did you mean 'one_fact'\?"),
        (
            {"world": STORIES, "constraints": {"orthogonality": {"layers": [2]}}},
            r"Orthogonality was asked for layer 2 of a model of 2 layers; accepted",
        ),
        (
            {"world": STORIES, "mechanisms": {}},
            r"mechanisms was given, and on stories a model is taught; accepted: model",
        ),
        ({"world": STORIES, "baseline": {"kind": "pca"}}, r"baseline was given, and on stories a model is taught"),
        ({"world": STORIES, "data": {}}, r"data was given, and on stories"),
        ({"model": {}}, r"model is for a model, which is taught on stories or text; accepted: world\.kind = 'stories'"),
        ({"teaching": {"steps": 3}}, r"teaching is for a model"),
        (
            {"world": STORIES, "constraints": {"orthogonalty": {}}},
            r"no setting 'constraints\.orthogonalty'; did you mean",
        ),
        ({"world": STORIES, "model": {"attention": {"kind": "hopfeld"}}}, r"'hopfeld'; did you mean 'hopfield'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(data, sentence):
    with pytest.raises(UserError, match=sentence):
        check(Experiment, data, "c.toml")


def test_a_model_keeps_only_what_it_reads_and_is_the_same_when_read_again():
    one = check(Experiment, {"world": STORIES, "constraints": {"head_usage": {}}}, "c.toml")
    tree = one.to_dict()
    assert {"model", "constraints", "teaching", "examining", "saving"} <= tree.keys()
    assert not {"dictionary", "training", "mechanisms", "data", "scoring", "tracking"} & tree.keys()
    assert check(Experiment, tree, "again") == one
    assert list(one.constraining()) == ["head_usage"]
    assert one.is_taught
    assert not one.is_trained


def test_a_dictionary_keeps_nothing_of_models():
    tree = check(Experiment, {}, "c.toml").to_dict()
    assert not {"model", "constraints", "teaching", "examining"} & tree.keys()
