"""Whether seed 002's panels carry each other's labels: our worlds against its pictures, read cell by cell.

The figures are read off the colour bars of the published pictures, ± .005, at ratio ¼.
"""

from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Cell, Panels
from unbraid.studies.rules import Above

PANELS = {
    "mmcs": {"uncorrelated": (0.377, 0.258), "correlated": (0.372, 0.197)},
    "reconstruction_error": {"uncorrelated": (0.00034, 0.00165), "correlated": (0.00007, 0.00040)},
}
"""Each panel at L1 .01 and .178, under the label it was published with."""


def _cells(metric: str) -> tuple[Cell, ...]:
    panels, swapped = PANELS[metric], {"uncorrelated": "correlated", "correlated": "uncorrelated"}
    return tuple(
        Cell(
            of={"case": label, "mechanisms.sparsity.weight": weight},
            same=panels[label][place],
            other=panels[swapped[label]][place],
        )
        for label in panels
        for place, weight in enumerate((0.01, 0.178))
    )


LABELS = (
    Claim(
        id="002-labels-swapped",
        seed="002",
        statement="Ours: the published panels of correlated and uncorrelated autoencoders carry each other's labels.",
        published="error at ratio ¼, L1 .01: .00034 uncorrelated, .00007 correlated; MMCS at L1 .18: .258, .197",
        study="002-labels",
        parts=(
            Part(
                what="error: squared distance to the panel of the same label minus to the other, in logarithms",
                statistic=Panels(metric="reconstruction_error", cells=_cells("reconstruction_error"), ratio=True),
                rule=Above(),
            ),
            Part(
                what="MMCS: squared distance to the panel of the same label minus to the other",
                statistic=Panels(metric="mmcs", cells=_cells("mmcs")),
                rule=Above(),
            ),
        ),
        figures=("score-mmcs",),
    ),
)
