"""Draw every figure of a finished run, and keep each as a PNG."""

from pathlib import Path

from unbraid.reports.matching_figures import concept_matching
from unbraid.reports.mechanism_effect_figures import additions
from unbraid.reports.canvas import Section
from unbraid.reports.cost_figures import costs
from unbraid.reports.embedding_figures import embeddings
from unbraid.reports.equal_l0_figures import absorbed, correlations
from unbraid.reports.factor_figures import disentangled, recoveries
from unbraid.reports.feature_figures import cosines, firing_rates
from unbraid.reports.feature_pages import pages
from unbraid.reports.run_results import RunResults
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
from unbraid.reports.ablation_step_figures import steps
from unbraid.reports.score_figures import scores
from unbraid.reports.first_head_figures import first_heads
from unbraid.reports.head_figures import attention_and_support, routes
from unbraid.reports.size_figures import sizes
from unbraid.reports.timeline_figures import timelines
from unbraid.reports.tracking_figures import dead_entries, fates
from unbraid.reports.training_figures import curves
from unbraid.storage.files import write_bytes

PLATES = (
    *(published_accuracies, forests, predictions, costs, learning, attention_and_support, routes, chosen_heads, gallery, first_heads),
    *(by_irrep, head_maps, chosen_maps),
    *(matrices, scores, additions, pareto, absorbed, correlations, probing, steps),
    *(dead_entries, fates, timelines, curves),
    *(sizes, rates, recovery, cosines, firing_rates, embeddings),
)
"""In the order a reader meets them."""
OF_A_LINE = (recoveries, concept_matching, disentangled, pages, curves)
"""Those of a line: it has no planted directions, and of its models it is the accuracy that matters."""
NEEDED = {recovery: "best_cosine", rates: "seen", firing_rates: "density"}
"""The table without which a section has nothing to show."""


def draw(results: RunResults) -> list[Section]:
    """All sections of this run that have something to show."""
    sections = OF_A_LINE if results.is_line else PLATES
    possible = [draw_section for draw_section in sections if results.has(NEEDED.get(draw_section))]
    drawn = [draw_section(results) for draw_section in possible]
    return [section for section in drawn if section.figures or section.numbers]


def keep(sections: list[Section], folder: Path) -> None:
    """Write every figure to this folder."""
    for section in sections:
        for figure in section.figures:
            write_bytes(folder / f"{figure.name}.png", figure.png)
