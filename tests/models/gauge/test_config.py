"""Irreps are read as e3nn writes them or as the seed did, and what is none is refused in one sentence."""

import pytest

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.models import Gauge
from unbraid.models.gauge.config import Family, families

SEEDS_OWN = [["ℓ0", 5, 1], ["ℓ1", 3, 3], ["ℓ2", 1, 5]]


def test_heads_stand_side_by_side():
    assert families("5x0e + 3x1e + 1x2e") == (Family(0, 5, 0), Family(1, 3, 5), Family(2, 1, 14))
    assert [family.columns for family in families("2e")] == [slice(0, 5)]


def test_the_seeds_own_way_means_the_same():
    assert Gauge.model_validate({"irreps": SEEDS_OWN}) == Gauge(irreps="5x0e + 3x1e + 1x2e")


def test_scalar_heads_fill_what_is_left():
    settings = Gauge(irreps="1x2e", d_model=7)
    assert settings.width == 7
    assert settings.head_labels == ("ℓ2", "ℓ0", "ℓ0")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"irreps": "5x0"}, "irreps is '5x0'; accepted: heads by degree, for example 5x0e + 3x1e + 1x2e"),
        ({"irreps": ""}, "irreps is '', which has no head; accepted: for example"),
        ({"irreps": "2x2e", "d_model": 9}, "irreps '2x2e' take 10 dimensions and d_model is 9; accepted: at most 9"),
        ({"irreps": [["ℓ1", 3, 4]]}, "['ℓ1', 3, 4] is no irrep; accepted: [name, heads, width] with width 2ℓ+1"),
        ({"irreps": "1x12e"}, "irreps '1x12e' have a degree of 12; accepted: 0 to 11"),
        ({"irreps": "1x1e", "kappa": 0.0}, "kappa is 0.0"),
        ({"covariance": "diagonal", "free_energy": {}}, "covariance is 'diagonal', which is of pairs"),
        (
            {"transport": "identity", "free_energy": {"frame_step": 0.1}},
            "transport is 'identity', which has no frames, and free_energy.frame_step is 0.1; accepted: transport",
        ),
    ],
)
def test_what_is_no_irrep_is_refused_in_one_sentence(wrong, words):
    with pytest.raises(UserError) as refused:
        check(Gauge, wrong, "model")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
