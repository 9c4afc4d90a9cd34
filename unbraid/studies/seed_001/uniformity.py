"""Seed 001's claim that low-spin heads cannot turn sharp, and the explanations that its own code offers.

The study is factorial: each of four causes with and without each of the others, so that the effect of one is a mean
over all eight states of the rest. Sharpness is 0 for a head that looks everywhere alike and 1 for one that looks at one
token, whatever the length.
"""

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.measures import Level
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Below, Rule, Within

STUDY = "001-uniformity"
SHARP = 0.1
"""Of sharpness: a head below this looks nearly everywhere alike."""
AS_PUBLISHED: Where = {
    "model.temperature": "shared",
    "model.priors": "gauge_fixed",
    "model.alignment": 1.0,
    "model.start": "published",
}
MENDED: Where = {
    "model.temperature": "head",
    "model.priors": "free",
    "model.alignment": 0.0,
    "model.start": "published",
}
"""But for the start, at which heads of any degree are uniform: what is sharp afterwards was learned."""
FIGURES = ("sharpness-by-irrep", "row-std-by-irrep")
NO_FIGURE = "none: named in the code, never tested"


def _level(metric: str, what: str, of: Where, rule: Rule) -> Part:
    return Part(what=what, statistic=Level(metric=metric, of=of), rule=rule)


def _explains(path: str, mended: str | float, published: str | float, words: str) -> tuple[Part, ...]:
    """Without this cause the heads of every degree are sharper."""
    return tuple(
        difference(
            f"sharpness_l{degree}",
            f"sharpness of ℓ{degree} heads, {words}",
            {path: mended},
            {path: published},
            Above(),
        )
        for degree in (0, 1, 2)
    )


UNIFORMITY = (
    Claim(
        id="001-low-spin",
        seed="001",
        statement="Heads of low spin cannot become sharp by training, from a start at which they are uniform.",
        published="row_std of ℓ0 .024 – .030, ℓ1 .030 – .045, ℓ2 .065 – .090; at N = 64 a uniform head has .019",
        study=STUDY,
        parts=tuple(
            _level(
                f"sharpness_l{degree}",
                f"sharpness of ℓ{degree} heads, no other cause as published",
                MENDED,
                Below(margin=SHARP),
            )
            for degree in (0, 1)
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-low-spin-as-published",
        seed="001",
        statement="With the four causes of the published code together, heads look everywhere alike.",
        published="8 of 9 heads UNIFORM",
        study=STUDY,
        parts=tuple(
            _level(
                f"sharpness_l{degree}",
                f"sharpness of ℓ{degree} heads, all four as published",
                AS_PUBLISHED,
                Below(margin=SHARP),
            )
            for degree in (0, 1, 2)
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-cause-priors",
        seed="001",
        statement="Gauge-fixed priors make heads uniform: in the common frame all tokens then believe the same.",
        published=NO_FIGURE,
        study=STUDY,
        parts=_explains("model.priors", "free", "gauge_fixed", "free priors minus gauge-fixed"),
        figures=FIGURES,
    ),
    Claim(
        id="001-cause-temperature",
        seed="001",
        statement="One temperature for all heads makes scalar heads flatter: their KL has a single term.",
        published=NO_FIGURE,
        study=STUDY,
        parts=_explains("model.temperature", "head", "shared", "a temperature a head minus one for all")[:1],
        figures=FIGURES,
    ),
    Claim(
        id="001-cause-start",
        seed="001",
        statement="A start at which all tokens are .02 apart makes heads uniform.",
        published=NO_FIGURE,
        study=STUDY,
        parts=_explains("model.start", "spread", "published", "tokens 1 apart minus .02"),
        figures=FIGURES,
    ),
    Claim(
        id="001-cause-alignment",
        seed="001",
        statement="The alignment cost makes heads uniform (the author's own correction).",
        published="0 of 9 heads sharp at weight 1, 4 of 9 at 0",
        study=STUDY,
        parts=_explains("model.alignment", 0.0, 1.0, "weight 0 minus weight 1"),
        figures=FIGURES,
    ),
    Claim(
        id="001-diversity",
        seed="001",
        statement="A lack of diversity among tokens is not the cause: with tokens farther apart heads are no sharper.",
        published="mu_dist .50, called healthy",
        study=STUDY,
        parts=(
            difference(
                "mean_distance",
                "distance of tokens' means, 1 apart at the start minus .02, free priors",
                {"model.start": "spread", "model.priors": "free"},
                {"model.start": "published", "model.priors": "free"},
                Above(),
            ),
            difference(
                "sharpness",
                "sharpness of all heads, the same",
                {"model.start": "spread", "model.priors": "free"},
                {"model.start": "published", "model.priors": "free"},
                Within(margin=0.05),
            ),
        ),
        figures=FIGURES,
    ),
)
