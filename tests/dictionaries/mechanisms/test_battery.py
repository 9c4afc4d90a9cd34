"""What every mechanism promises, over the registry: list a mechanism here and it is tested.

The promises themselves are in `unbraid/battery/mechanisms.py`, where `unbraid check-plugin` runs them too.
"""

import pytest

from unbraid.battery import Example
from unbraid.battery import mechanisms as battery
from unbraid.battery.mechanisms import DICTIONARIES, MechanismCase
from unbraid.dictionaries import AuxK, Relu, TopK
from unbraid.dictionaries.mechanisms import MECHANISMS, Mechanism, Signals

SPARSITY = {"sparsity": {"weight": 0.4}}
EXAMPLES = {
    "end_to_end": [
        Example({"weight": 3.0}, off={"weight": 0.0}),
        Example({"weight": 3.0, "loss": "cross_entropy"}, off={"weight": 0.0, "loss": "cross_entropy"}),
        Example({"weight": 3.0, "downstream": 2.0, "reconstruction": 0.0}, off=None, beside=SPARSITY),
    ],
    "sparsity": [
        Example({"weight": 0.4}, off={"weight": 0.0}),
        Example({"weight": 2.0, "form": "published"}, off={"weight": 0.0, "form": "published"}),
        Example({"weight": 0.4, "weigh_by": "decoder_norm"}, off={"weight": 0.0, "weigh_by": "decoder_norm"}),
        Example({"weight": 0.4, "cost": "tanh", "sharpness": 2.0}, off={"weight": 0.0, "cost": "tanh"}),
        Example({"weight": 0.4, "target_l0": 2.0}, off={"weight": 0.0, "target_l0": 2.0}),
    ],
    "p_annealing": [
        Example({"end": 0.3, "begin": 0.0}, off={"end": 1.0}, beside=SPARSITY),
        Example(
            {"end": 0.3, "begin": 0.1, "until": 0.5},
            off={"end": 1.0},
            beside={"sparsity": {"weight": 0.4, "weigh_by": "decoder_norm"}},
        ),
    ],
    "matryoshka": [
        Example({"weight": 0.5}, off={"weight": 0.0}),
        Example({"prefixes": [0.3, 0.6]}, off={"weight": 0.0}, beside={"sparsity": {"weight": 0.1}}),
    ],
    "adaptive_l1": [
        Example({"target": 0.1}, off={"rate": 0.0}, beside=SPARSITY),
        Example({"momentum": 0.5, "form": "published"}, off={"lowest": 1.0, "highest": 1.0}, beside=SPARSITY),
    ],
    "lateral_inhibition": [
        Example({"radius": 4, "every": 3}, off={"strength": 0.0}),
        Example({"radius": 4, "every": 3, "in_use": True}, off={"strength": 0.0}),
        Example({"radius": 4, "form": "published"}, off={"strength": 0.0, "form": "published"}, beside=SPARSITY),
    ],
    "adaptive_neighbourhoods": [
        Example({"share": 0.3}, off={"radius": 0}, beside={"lateral_inhibition": {"radius": 2}}),
        Example(
            {"share": 0.1, "radius": 3, "form": "published"},
            off={"radius": 0, "form": "published"},
            beside={"lateral_inhibition": {"form": "published", "radius": 4}},
        ),
    ],
    "reallocation": [
        Example({"every": 5, "threshold": 0.95}, off={"every": 5, "threshold": 0.0}, beside=SPARSITY),
        Example({"every": 5, "threshold": 0.95, "encoder_scale": 1.0}, off={"every": 5, "until": 0.0}),
        Example(
            {"every": 5, "threshold": 0.3, "form": "published"},
            off={"every": 5, "threshold": 0.0, "form": "published"},
        ),
    ],
    "pair_orthogonality": [
        Example({"weight": 20.0, "share": 0.3}, off={"tau": 0.0}),
        Example({"weight": 2.0, "tau": 1.0, "threshold": 0.1, "share": 0.3}, off={"weight": 0.0}),
        Example({"share": 0.3, "form": "published"}, off={"weight": 0.0, "form": "published"}),
        Example({"share": 0.3, "tau": 1.0, "form": "decoder_cosine"}, off={"weight": 0.0, "form": "decoder_cosine"}),
    ],
    "adaptive_tau": [
        Example(
            {"share": 1.0, "target": 0.05},
            off={"momentum": 1.0},
            beside={"pair_orthogonality": {"weight": 20.0, "share": 1.0}},
        ),
        Example(
            {"share": 0.3, "form": "published"},
            off={"momentum": 1.0, "form": "published"},
            beside={"pair_orthogonality": {"share": 0.3, "form": "published"}},
        ),
    ],
    "dynamic_pairs": [
        Example({"least": 2}, off={"least": 28}, beside={"pair_orthogonality": {"weight": 20.0, "share": 1.0}}),
        Example(
            {"least": 2, "form": "published"},
            off={"least": 28, "form": "published"},
            beside={"pair_orthogonality": {"share": 1.0, "form": "published"}},
        ),
    ],
    "correlation_pruning": [
        Example(
            {"threshold": 0.3, "every": 5, "least": 2, "directions": "random_orthogonal"},
            off={"threshold": 1.0, "every": 5, "least": 2},
        ),
        Example({"threshold": 0.3, "every": 5, "least": 2}, off={"threshold": 1.0, "every": 5, "least": 2}),
        Example(
            {"threshold": 0.3, "every": 5, "form": "published"},
            off={"threshold": 1.0, "every": 5, "form": "published"},
        ),
    ],
    "momentum_importance": [
        Example({}, off={"momentum": 1.0}, beside={"correlation_pruning": {"threshold": 0.2, "every": 5, "least": 2}}),
        Example(
            {"form": "published", "every": 3},
            off={"momentum": 1.0, "form": "published", "every": 3},
            beside={"correlation_pruning": {"threshold": 0.5, "every": 3, "form": "published"}},
        ),
    ],
}
CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
SWITCHED = [(name, example) for name, example in CASES if example.off is not None]
COSTLY = [(name, example) for name, example in CASES if MECHANISMS[name].penalty is not Mechanism.penalty]

over_examples = pytest.mark.parametrize(("name", "example"), CASES)
over_dictionaries = pytest.mark.parametrize("dictionary", DICTIONARIES.values(), ids=DICTIONARIES)


def test_every_registered_mechanism_has_an_example():
    assert set(EXAMPLES) == set(MECHANISMS)


@over_examples
def test_its_settings_survive_toml_and_its_presence_switches_it_on(name, example):
    battery.survives_toml(MechanismCase(name, example, DICTIONARIES["relu"]))


@over_dictionaries
@over_examples
def test_it_does_something(name, example, dictionary):
    battery.does_something(MechanismCase(name, example, dictionary))


@over_dictionaries
@pytest.mark.parametrize(("name", "example"), SWITCHED)
def test_off_is_identity(name, example, dictionary):
    assert battery.off_is_identity(MechanismCase(name, example, dictionary)) is None


@over_dictionaries
@over_examples
def test_company_does_not_matter(name, example, dictionary):
    battery.company_does_not_matter(MechanismCase(name, example, dictionary))


@over_dictionaries
@over_examples
def test_relabelling_features_commutes_with_training_unless_it_says_otherwise(name, example, dictionary):
    battery.relabelling_commutes(MechanismCase(name, example, dictionary))


@over_dictionaries
@over_examples
def test_stopping_half_way_and_going_on_ends_with_the_same_bits(name, example, dictionary):
    battery.resuming_is_exact(MechanismCase(name, example, dictionary))


@over_dictionaries
@pytest.mark.parametrize(("name", "example"), COSTLY)
def test_gradients_of_its_penalty_are_those_of_finite_differences(name, example, dictionary):
    assert battery.gradients_are_right(MechanismCase(name, example, dictionary)) is None


@pytest.mark.parametrize("activation", [Relu(), TopK(k=4)], ids=str)
@over_examples
def test_the_fast_step_is_the_readable_one_where_pairs_go_by_lists(name, example, activation):
    battery.fast_on_lists(MechanismCase(name, example, DICTIONARIES["relu"]), activation)


@over_dictionaries
@over_examples
def test_encode_only_lowers_or_silences_what_would_fire(name, example, dictionary):
    battery.encode_only_lowers(MechanismCase(name, example, dictionary))


@pytest.mark.parametrize("bias", [0.1, -0.4], ids=["dense", "sparse"])
@pytest.mark.parametrize("activation", [Relu(), TopK(k=4, auxk=AuxK(k=3, dead_after=64))], ids=["relu", "topk"])
@over_examples
def test_the_fast_step_is_the_readable_one(name, example, activation, bias):
    battery.fast_on_few(MechanismCase(name, example, DICTIONARIES["relu"]), activation, bias)


@over_examples
def test_what_it_reads_and_writes_are_signals(name, example):
    assert MECHANISMS[name].reads | MECHANISMS[name].writes <= set(Signals.__dataclass_fields__)
