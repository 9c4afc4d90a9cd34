"""What the correlated rule refuses, and in which words."""

import pytest

from unbraid.config import check
from unbraid.errors import Refusal
from unbraid.worlds import Superposition


@pytest.mark.parametrize(
    ("firing", "words"),
    [
        ({"rank": 2}, "rank 2 needs a correlation; accepted: at least 0 and below 1"),
        ({"correlation": 0.5}, "correlation is 0.5 and rank 0 does not read it; accepted: rank above 0"),
        ({"form": "published", "rank": 2, "correlation": 0.5}, "the published form has none; accepted: 0"),
        ({"rank": 2, "correlation": 1.0}, "it should be less than 1"),
        ({"rank": 2, "correlation": -0.1}, "it should be greater than or equal to 0"),
        ({"rank": -1}, "it should be greater than or equal to 0"),
        ({"rank": 13, "correlation": 0.5}, "accepted: at most the number of features, 12"),
        ({"form": "other"}, "it should be 'corrected' or 'published'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(firing, words):
    settings = {"features": 12, "active": 1.0, "firing": {"kind": "correlated", **firing}}
    with pytest.raises(Refusal, match=r"here: .*firing|here: rank is 13") as refused:
        check(Superposition, settings, "here")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_a_matrix_too_large_is_refused_before_it_is_made(form):
    settings = {"features": 5000, "firing": {"kind": "correlated", "form": form}}
    with pytest.raises(Refusal, match="accepted: features up to 4096, or form 'corrected' with a rank above 0"):
        check(Superposition, settings, "here")
    assert Superposition(features=5000, firing={"kind": "correlated", "rank": 3, "correlation": 0.1})


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_more_active_than_the_decay_allows_is_refused(form):
    settings = {"decay": 0.9, "active": 10.1, "firing": {"kind": "correlated", "form": form}}
    with pytest.raises(Refusal, match="accepted: active below 10"):
        check(Superposition, settings, "here")


def test_an_unknown_rule_is_refused_with_those_there_are():
    with pytest.raises(Refusal, match=r"did you mean 'hierarchy'.*independent, correlated, hierarchy"):
        check(Superposition, {"firing": {"kind": "hierarchies"}}, "here")
