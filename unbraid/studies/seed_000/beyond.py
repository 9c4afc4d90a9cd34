"""Seed 000's claims on ways out: more capacity, and heads set apart by routing or memory and not by a cost."""

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Within
from unbraid.studies.seed_000.constraints import NONE

CAPACITY, ROUTES = "000-capacity", "000-routes"
BASE: Where = {"model": "d_ff 32"}
LOST = 0.02
"""Of accuracy: a difference within this is none to speak of."""
LARGER = {
    "ffn": ("A wider feed-forward", "d_ff 128"),
    "width": ("A wider model", "d_model 96"),
    "depth": ("A deeper model", "layers 3"),
    "heads": ("A model of more heads", "heads 8"),
}
SEPARATE = {
    "routing": ("Routed heads separate", "routed"),
    "routing-all": ("Routed heads and experts separate", "routed-all"),
    "hopfield": ("Hopfield retrieval separates", "hopfield"),
    "hopfield-memories": ("Hopfield retrieval with memories separates", "hopfield-memories"),
}
SOFTMAX: Where = {"case": "softmax"}


def _wins_back(case: str, model: str) -> tuple[Part, ...]:
    """It gains with constraints, and reaches what the small model has without them."""
    larger: Where = {"case": case, "model": model}
    return (
        difference("accuracy", f"accuracy, {case}: {model} minus the base", larger, {"case": case, **BASE}, Above()),
        difference(
            "accuracy",
            f"accuracy, {case}: {model} minus the base without constraints",
            larger,
            {**NONE, **BASE},
            Above(margin=-LOST),
        ),
    )


BEYOND = (
    *(
        Claim(
            id=f"000-capacity-{name}{tail}",
            seed="000",
            statement=f"{words} wins back what constraints cost, at {strength}.",
            published=".371 → .414 (192/16/3), .360 (wider feed-forward alone), .412 (both, twice as long)",
            study=CAPACITY,
            parts=_wins_back(case, model),
            figures=("forest-accuracy-coreference",),
        )
        for name, (words, model) in LARGER.items()
        for case, tail, strength in (
            ("constrained", "", "the seed's weights"),
            ("strongly", "-strong", "twenty times the seed's weights"),
        )
    ),
    *(
        Claim(
            id=f"000-{name}-separates",
            seed="000",
            statement=f"{words} factors without losing accuracy.",
            published="named as future work; no code",
            study=ROUTES,
            parts=(
                difference("separation", f"separation, {case} minus softmax", {"case": case}, SOFTMAX, Above()),
                difference("accuracy", f"accuracy, {case} minus softmax", {"case": case}, SOFTMAX, Within(margin=LOST)),
            ),
            figures=("forest-separation-one-fact", "cost-accuracy-one-fact"),
        )
        for name, (words, case) in SEPARATE.items()
    ),
)
