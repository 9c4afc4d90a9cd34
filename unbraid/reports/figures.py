"""Draw every figure of a finished run, and keep each as a PNG."""

from pathlib import Path

from unbraid.reports.account_figures import accounts
from unbraid.reports.addition_figures import additions
from unbraid.reports.canvas import Plate
from unbraid.reports.cost_figures import costs
from unbraid.reports.embedding_figures import embeddings
from unbraid.reports.equal_l0_figures import absorbed, correlations
from unbraid.reports.factor_figures import disentangled, recoveries
from unbraid.reports.feature_figures import cosines, firing_rates
from unbraid.reports.feature_pages import pages
from unbraid.reports.findings import Findings
from unbraid.reports.forest_figures import forests
from unbraid.reports.head_maps import chosen_maps, head_maps
from unbraid.reports.heat_figures import chosen_heads, gallery
from unbraid.reports.irrep_figures import by_irrep
from unbraid.reports.language_figures import predictions
from unbraid.reports.learning_figures import learning
from unbraid.reports.matrix_figures import matrices
from unbraid.reports.pareto_figures import pareto
from unbraid.reports.probing_figures import probing
from unbraid.reports.published_accuracy import published_accuracies
from unbraid.reports.rate_figures import rates
from unbraid.reports.recovery_figures import recovery
from unbraid.reports.rung_figures import rungs
from unbraid.reports.score_figures import scores
from unbraid.reports.seed_figure import seed_figures
from unbraid.reports.sight_figures import routes, sights
from unbraid.reports.size_figures import sizes
from unbraid.reports.timeline_figures import timelines
from unbraid.reports.tracking_figures import dead_entries, fates
from unbraid.reports.training_figures import curves
from unbraid.storage.files import write_bytes

PLATES = (
    *(published_accuracies, forests, predictions, costs, learning, sights, routes, chosen_heads, gallery, seed_figures),
    *(by_irrep, head_maps, chosen_maps),
    *(matrices, scores, additions, pareto, absorbed, correlations, probing, rungs),
    *(dead_entries, fates, timelines, curves),
    *(sizes, rates, recovery, cosines, firing_rates, embeddings),
)
"""In the order a reader meets them."""
OF_A_LINE = (recoveries, accounts, disentangled, pages, curves)
"""Those of a line: it has no planted directions, and of its models it is the accuracy that matters."""
NEEDED = {recovery: "best_cosine", rates: "seen", firing_rates: "density"}
"""The table without which a plate has nothing to show."""


def draw(findings: Findings) -> list[Plate]:
    """All plates of this run that have something to show."""
    plates = OF_A_LINE if findings.is_line else PLATES
    possible = [draw_plate for draw_plate in plates if findings.has(NEEDED.get(draw_plate))]
    drawn = [draw_plate(findings) for draw_plate in possible]
    return [plate for plate in drawn if plate.pictures or plate.numbers]


def keep(plates: list[Plate], folder: Path) -> None:
    """Write every picture to this folder."""
    for plate in plates:
        for picture in plate.pictures:
            write_bytes(folder / f"{picture.name}.png", picture.png)
