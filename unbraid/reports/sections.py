"""The registry of report sections: a name, and a function from the results of a run to a section."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from unbraid.config import suggest
from unbraid.errors import UserError
from unbraid.reports.ablation_step_figures import steps
from unbraid.reports.canvas import Section, index_style
from unbraid.reports.cost_figures import costs
from unbraid.reports.embedding_figures import embeddings
from unbraid.reports.equal_accuracy import equal_accuracy
from unbraid.reports.equal_l0_figures import absorbed, correlations
from unbraid.reports.factor_figures import disentangled, recoveries
from unbraid.reports.feature_figures import cosines, firing_rates
from unbraid.reports.feature_pages import pages
from unbraid.reports.first_head_figures import first_heads
from unbraid.reports.forest_figures import forests
from unbraid.reports.head_figures import attention_and_support, routes
from unbraid.reports.head_maps import chosen_maps, head_maps
from unbraid.reports.heat_figures import chosen_heads, gallery
from unbraid.reports.irrep_figures import by_irrep
from unbraid.reports.language_figures import predictions
from unbraid.reports.learning_figures import learning
from unbraid.reports.matching_figures import concept_matching
from unbraid.reports.matrix_figures import matrices
from unbraid.reports.mechanism_effect_figures import additions
from unbraid.reports.pareto_figures import pareto
from unbraid.reports.probing_figures import probing
from unbraid.reports.published_accuracy import published_accuracies
from unbraid.reports.rate_figures import rates
from unbraid.reports.recovery_figures import recovery
from unbraid.reports.run_results import RunResults
from unbraid.reports.score_figures import scores
from unbraid.reports.size_figures import sizes
from unbraid.reports.summaries import SUMMARIES
from unbraid.reports.text_sections import all_scores, differences, text_samples
from unbraid.reports.timeline_figures import timelines
from unbraid.reports.tracking_figures import dead_entries, fates
from unbraid.reports.training_figures import curves
from unbraid.storage.files import write_bytes

SECTIONS: dict[str, Callable[[RunResults], Section]] = {
    "all_scores": all_scores,
    "differences": differences,
    "equal_accuracy": equal_accuracy,
    "text_samples": text_samples,
    "published_accuracy": published_accuracies,
    "task_scores": forests,
    "case_differences": costs,
    "learning_curves": learning,
    "attention_and_support": attention_and_support,
    "routing": routes,
    "chosen_heads": chosen_heads,
    "all_heads": gallery,
    "first_heads": first_heads,
    "perplexity": predictions,
    "head_uniformity": by_irrep,
    "head_maps": head_maps,
    "chosen_head_maps": chosen_maps,
    "grid": matrices,
    "score_figures": scores,
    "mechanism_effects": additions,
    "pareto_fronts": pareto,
    "absorption": absorbed,
    "feature_correlations": correlations,
    "sparse_probing": probing,
    "ablation_steps": steps,
    "dead_features": dead_entries,
    "tracking": fates,
    "timelines": timelines,
    "training_curves": curves,
    "training_curves_by_row": partial(curves, style=index_style),
    "recovery_by_samples": sizes,
    "recovery_by_rate": rates,
    "feature_recovery": recovery,
    "cosines": cosines,
    "firing_rates": firing_rates,
    "embeddings": embeddings,
    "factor_recovery": recoveries,
    "concept_matching": concept_matching,
    "disentanglement": disentangled,
    "feature_cards": pages,
}
"""Every section of a report by its name; a kind of experiment says which its report has, in order."""


def draw(results: RunResults) -> list[Section]:
    """The sections that this run names and has something to show in."""
    named = [name for name in results.sections if name not in SUMMARIES]
    unknown = [name for name in named if name not in SECTIONS]
    if unknown:
        raise UserError(f"{results.run.path} names the section {unknown[0]!r:.60}; {suggest(unknown[0], SECTIONS)}")
    drawn = [SECTIONS[name](results) for name in named]
    return [section for section in drawn if section.figures or section.numbers]


def save_figures(sections: list[Section], folder: Path) -> None:
    """Write every figure to this folder."""
    for section in sections:
        for figure in section.figures:
            write_bytes(folder / f"{figure.name}.png", figure.png)
