"""The form of a constraint or mechanism whose settings name none.

A run keeps its cases as they were written, without defaults, and a report sees no constraint and no mechanism: what
they take when nothing is written stands here too. `tests/reports/test_forms.py` holds it against the registries.
"""

CORRECTED = "corrected"

UNWRITTEN: dict[str, dict[str, str]] = {
    "constraints": {
        "orthogonality": CORRECTED,
        "independence": CORRECTED,
        "attention_entropy": CORRECTED,
        "head_usage": CORRECTED,
    },
    "mechanisms": {
        "sparsity": "per_sample",
        "pair_orthogonality": CORRECTED,
        "adaptive_tau": CORRECTED,
        "dynamic_pairs": CORRECTED,
        "momentum_importance": CORRECTED,
        "adaptive_l1": CORRECTED,
        "lateral_inhibition": CORRECTED,
        "adaptive_neighbourhoods": CORRECTED,
        "correlation_pruning": CORRECTED,
        "reallocation": CORRECTED,
    },
}
"""By group of settings and name; what has one form only is not listed."""


def with_form(group: str, name: str, settings: dict[str, object]) -> dict[str, object]:
    """The settings with their form said, whether or not it was written."""
    form = UNWRITTEN.get(group, {}).get(name)
    return settings if form is None or "form" in settings else {**settings, "form": form}
