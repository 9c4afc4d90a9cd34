"""Seed 001's claims on what might help: lower temperatures, more tensor heads; and the author's retraction."""

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.measures import Level, Relative
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Below

TEMPERATURE, IRREPS, ALIGNMENT = "001-temperature", "001-irreps", "001-alignment"
SEEDS = 0.25
"""The seed's kappa: .43 with 19 dimensions."""
FIFTIETH, THOUSANDTH = 0.005, 0.00025
ITS_OWN: Where = {"model.irreps": "5x0e + 3x1e + 1x2e"}
UNIFORM = 0.1
"""Of sharpness: a head below this looks nearly everywhere alike."""
FIGURES = ("sharpness-by-irrep", "row-std-by-irrep", "forest-perplexity")


def _at(kappa: float) -> Where:
    return {"model.kappa": kappa, "model.temperature": "shared"}


def _weighed(alignment: float) -> Where:
    """From the author's own start, at which tokens are .02 apart."""
    return {"model.alignment": alignment, "model.start": "published"}


def _sharper(irreps: str) -> Part:
    return difference(
        "sharpness", f"sharpness of all heads, {irreps} minus the seed's", {"model.irreps": irreps}, ITS_OWN, Above()
    )


REMEDIES = (
    Claim(
        id="001-temperature-destabilises",
        seed="001",
        statement="A temperature a thousand times lower only destabilises: gradients explode, predictions spoil.",
        published="357 explosions, perplexity 1475 against 900",
        study=TEMPERATURE,
        parts=(
            difference("explosions", "exploding steps, κ .00043 minus .43", _at(THOUSANDTH), _at(SEEDS), Above()),
            difference("perplexity", "perplexity, κ .00043 minus .43", _at(THOUSANDTH), _at(SEEDS), Above()),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-temperature-low-spin",
        seed="001",
        statement="At a temperature fifty times lower scalar heads stay uniform.",
        published="8 of 9 heads uniform at κ .0086",
        study=TEMPERATURE,
        parts=(
            Part(
                what="sharpness of ℓ0 heads, κ .0086",
                statistic=Level(metric="sharpness_l0", of=_at(FIFTIETH)),
                rule=Below(margin=UNIFORM),
            ),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-tensor-heads",
        seed="001",
        statement="More tensor heads sharpen attention at the published κ, which grows with width: all proposals.",
        published="proposed, not run",
        study=IRREPS,
        parts=(
            _sharper("2x0e + 2x1e + 4x2e"),
            _sharper("4x1e + 3x2e + 2x3e"),
            _sharper("10x0e + 10x1e + 8x2e + 4x3e"),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-pure-tensor",
        seed="001",
        statement="Heads of tensors alone are sharper than scalars alone at equal width.",
        published="an ablation, proposed",
        study=IRREPS,
        parts=(
            difference(
                "sharpness",
                "sharpness of all heads, 4x2e minus 20x0e",
                {"model.irreps": "4x2e"},
                {"model.irreps": "20x0e"},
                Above(),
            ),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-one-high-irrep",
        seed="001",
        statement="A single head of high degree is uniform, by the law of large numbers.",
        published="'one uniform attention head', of ℓ9, not run",
        study=IRREPS,
        parts=(
            Part(
                what="sharpness of 1x9e",
                statistic=Level(metric="sharpness", of={"model.irreps": "1x9e"}),
                rule=Below(margin=UNIFORM),
            ),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-retraction-uniform",
        seed="001",
        statement="The alignment weight causes uniformity (the author's retraction, part one).",
        published="sharp heads 4, 4, 0 of 9 and row_std .118, .118, .080 at weights 0, .1, 1",
        study=ALIGNMENT,
        parts=(
            difference(
                "sharpness",
                "sharpness of all heads, 1 minus 0",
                _weighed(1.0),
                _weighed(0.0),
                Below(),
            ),
            difference(
                "row_std",
                "row_std of all heads, 1 minus 0",
                _weighed(1.0),
                _weighed(0.0),
                Below(),
            ),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-retraction-better",
        seed="001",
        statement="Aligned, uniform heads predict better (the author's retraction, part two).",
        published="validation perplexity 1875.6, 1091.5, 783.6 at weights 0, .1, 1",
        study=ALIGNMENT,
        parts=(
            Part(
                what="perplexity, weight 1 over weight 0, less 1",
                statistic=Relative(metric="perplexity", of=_weighed(1.0), minus=_weighed(0.0)),
                rule=Below(),
            ),
        ),
        figures=FIGURES,
    ),
)
