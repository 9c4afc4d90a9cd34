"""The form that is said where none was written is the one that was used."""

import pytest

from unbraid.config import Config
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.models.constraints import CONSTRAINTS
from unbraid.reports.dictionary_sentences import what_was_run
from unbraid.reports.forms import UNWRITTEN, with_form

REGISTRIES: dict[str, dict[str, type[Config]]] = {"constraints": {**CONSTRAINTS}, "mechanisms": {**MECHANISMS}}


@pytest.mark.parametrize("group", REGISTRIES)
def test_forms_are_those_of_the_registries(group: str):
    kinds = REGISTRIES[group]
    forms = {name: kind.model_fields["form"].default for name, kind in kinds.items() if "form" in kind.model_fields}
    assert UNWRITTEN[group] == forms
    assert UNWRITTEN.keys() == REGISTRIES.keys()


def test_a_written_form_stays_and_what_has_none_gets_none():
    assert with_form("constraints", "independence", {"form": "club"}) == {"form": "club"}
    assert with_form("mechanisms", "matryoshka", {"sizes": [1]}) == {"sizes": [1]}
    assert with_form("constraints", "orthogonality", {"weight": 1}) == {"weight": 1, "form": "corrected"}


def test_mechanisms_are_said_with_their_form():
    cases = {"one": {"mechanisms": {"sparsity": {"weight": 0.1}, "adaptive_tau": {}, "matryoshka": {}}}}
    config = {"world": {"kind": "superposition"}, "dictionary": {"d_sae": 8}, "cases": cases}
    said = " ".join(what_was_run(config))
    assert "sparsity (weight 0.1, form per_sample); adaptive_tau (form corrected); matryoshka." in said
