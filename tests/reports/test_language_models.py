"""What is said of language models is what they are."""

from unbraid.models.config import Transformer
from unbraid.models.gauge.config import Gauge
from unbraid.reports.language_model_sentences import what_was_run
from unbraid.reports.language_models import UNWRITTEN

TEXT = {"world": {"kind": "text", "text": "primer", "units": "characters", "context": 8}, "sweep": {"seed": [0, 1]}}


def test_what_is_unwritten_is_the_default_of_the_models():
    for kind, model in (("gauge", Gauge()), ("transformer", Transformer())):
        tree = model.to_dict()
        assert UNWRITTEN[kind] == {name: tree.get(name) for name in UNWRITTEN[kind]}


def test_a_mixed_run_says_of_each_kind_what_it_is():
    cases = {
        "gauge": {"model": {"kind": "gauge", "irreps": "5x0e + 2x1e"}},
        "tensor": {"model": {"kind": "gauge", "irreps": "4x2e", "free_energy": {}, "temperature": "shared"}},
        "plain": {"model": {"d_model": 12, "heads": 3, "layers": 1, "d_ff": 24}},
        "default": {},
    }
    said = " ".join(what_was_run({**TEXT, "cases": cases}))
    assert "8 language models (4 settings × 2 replicates) (gauge or transformer) of 1 or 2 layers" in said
    assert "Gauge models (2 of 4 settings): heads are irreps of SO(3), 5x0e + 2x1e or 4x2e; temperature" in said
    assert "kappa · √width of each head (head) or kappa · d_model/11 for all heads (shared) with kappa 1;" in said
    assert "free energy in 1 of 2 settings (iterations 1)" in said
    assert "Plain transformers (2 of 4 settings): 3 or 4 heads (softmax), d_model 12 or 64, d_ff 24 or 256" in said


def test_what_was_swept_of_gauge_models_is_described():
    sweep = {"model.priors": ["gauge_fixed", "free"], "model.alignment": [1.0, 0.0], "seed": [0]}
    model = {"kind": "gauge", "self_attention": False, "free_energy": {"sign": "published"}}
    said = " ".join(what_was_run({**TEXT, "model": model, "sweep": sweep}))
    assert "priors gauge_fixed (one belief for all tokens, each in its own frame) or free (a belief a token)" in said
    assert "alignment of beliefs weighs 1 or 0 and their distance from priors 0;" in said
    assert "after attention beliefs go down a free energy (iterations 1, sign published)" in said
    assert said.count("tokens do not see themselves") == 1
    assert "in some settings" not in said
    assert "of 4 settings" not in said
