"""Which settings each kind of experiment reads, and what is said of those that it does not."""

import pytest

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.figures import SECTIONS
from unbraid.metrics.catalog import METRICS
from unbraid.pipeline.expand import expand, kind_of
from unbraid.pipeline.experiment import Experiment, Member, check_memory
from unbraid.pipeline.kinds import KINDS

STORIES = {"kind": "stories"}


def read(data: dict[str, object]) -> Experiment:
    return check(kind_of(data, "c.toml"), data, "c.toml")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"kind": "models", "model": {"d_model": 64, "heads": 5}}, r"heads is 5, which does not divide d_model 64"),
        (
            {"kind": "models", "world": {**STORIES, "task": "one_fakt"}},
            r"world\.task is 'one_fakt'; did you mean 'one_fact'\?",
        ),
        (
            {"kind": "models", "constraints": {"orthogonality": {"layers": [2]}}},
            r"Orthogonality was asked for layer 2 of a model of 2 layers; accepted",
        ),
        ({"kind": "models", "mechanisms": {}}, r"there is no setting 'mechanisms'; .*accepted: .*constraints"),
        ({"kind": "models", "baseline": {"kind": "pca"}}, r"there is no setting 'baseline'"),
        ({"kind": "models", "samples": {}}, r"there is no setting 'samples'"),
        ({"kind": "models", "world": {"kind": "superposition"}}, r"world"),
        ({"model": {}}, r"there is no setting 'model'"),
        ({"world": STORIES}, r"world\.kind is 'stories', on which models are trained; accepted: .* kind = 'models'"),
        ({"teaching": {"steps": 3}}, r"`teaching` is now `model\.training`"),
        (
            {"kind": "models", "constraints": {"orthogonalty": {}}},
            r"no setting 'constraints\.orthogonalty'; did you mean",
        ),
        ({"kind": "models", "model": {"attention": {"kind": "hopfeld"}}}, r"'hopfeld'; did you mean 'hopfield'"),
        ({"kind": "model"}, r"kind is 'model'; did you mean 'models'\?"),
        ({"kind": 3}, r"kind is 3; accepted: dictionaries, "),
        ({"kind": "language_models", "model": {"causal": False}}, r"model\.causal is false, so that a token would see"),
        ({"kind": "embedding", "samples": {"n": 8}}, r"perplexity is 30 and there are 8 samples; accepted: less than"),
        ({"baseline": {"kind": "kmeans"}, "dictionary": {"d_sae": 8}}, "baseline and dictionary were both given"),
        ({"baseline": {"kind": "kmeans", "seed": 3}}, "accepted: seed = 3 instead"),
        ({"baseline": {"kind": "kmeans"}, "samples": {"batch": 0}}, "accepted: 1 or more, or 'all'"),
        ({"samples": {"n": 8}}, "accepted: training"),
        ({"kind": "embedding", "baseline": {"kind": "kmeans"}}, "there is no setting 'baseline'"),
    ],
    ids=str,
)
def test_what_a_kind_does_not_read_is_refused_in_a_sentence(data, sentence):
    with pytest.raises(UserError, match=sentence) as refusal:
        read(data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"activations": {"site": "blocks.7.hook_resid_post"}}, "activations.site is 'blocks.7.hook_resid_post'"),
        ({"activations": {"site": "blocks.0.attn.hook_pattern"}}, "which the model has not"),
        ({"world": {"kind": "superposition"}}, "world"),
        ({"tracking": {"checks": 2}}, "there is no setting 'tracking'"),
        ({"activations": {"storys": 3}}, "did you mean 'stories'"),
        ({"activations": {"stories": 3}}, "activations.stories"),
        ({"evaluation": {"samples": 20}}, "evaluation.samples is 20, too few tokens to tell concepts by"),
        ({"capture": {"stories": 200}}, "`capture` is now `activations`"),
        (
            {
                "model": {"kind": "transformer", "attention": {"kind": "hopfield"}},
                "activations": {"site": "blocks.0.attn.hook_memory"},
            },
            "which the model has not",
        ),
    ],
    ids=str,
)
def test_what_a_pipeline_does_not_read_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(UserError, match=sentence.replace(".", r"\.")):
        read({"kind": "pipeline", **changes})


def test_a_model_keeps_only_what_it_reads_and_is_the_same_when_read_again():
    experiment = read({"kind": "models", "constraints": {"head_usage": {}}})
    tree = experiment.to_dict()
    assert {"model", "constraints", "checkpoints"} <= tree.keys()
    assert {"training", "evaluation"} <= tree["model"].keys()
    assert not {"dictionary", "training", "mechanisms", "samples", "evaluation", "tracking"} & tree.keys()
    assert read(tree) == experiment
    assert list(experiment.enabled_constraints()) == ["head_usage"]


@pytest.mark.parametrize("data", [{}, {"baseline": {"kind": "pca"}}, *({"kind": kind} for kind in KINDS)], ids=str)
def test_an_experiment_read_from_what_it_writes_is_the_same(data):
    experiment = read(data)
    assert read(experiment.to_dict()) == experiment


def test_a_dictionary_keeps_nothing_of_models_nor_of_baselines():
    tree = read({}).to_dict()
    assert not {"model", "constraints", "activations", "baseline", "samples"} & tree.keys()
    fitted = read({"baseline": {"kind": "pca"}}).to_dict()
    assert not {"dictionary", "training", "mechanisms", "checkpoints", "tracking"} & fitted.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_which_metric_leads_and_which_sections_its_report_has(kind):
    facts = expand({"kind": kind}, "here").facts()
    assert facts["kind"] == kind
    assert facts["leading"] in METRICS
    assert facts["sections"] == list(KINDS[kind].sections)
    assert {"all_scores", "differences"} <= set(facts["sections"]) <= set(SECTIONS)


def test_a_model_that_does_not_fit_is_refused_before_its_width_is_asked_for():
    large = {"d_model": 1 << 14, "layers": 1024, "d_ff": 1 << 16}
    with pytest.raises(UserError, match="fewer layers, a smaller d_model"):
        check_memory([Member(read({"kind": "pipeline", "model": large}), {})])
