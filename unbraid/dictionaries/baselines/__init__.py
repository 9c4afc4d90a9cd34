"""Baselines: simpler ways to find directions; they encode and decode like a dictionary, so scores treat them alike.

The libraries that do the finding are imported when something is fitted: they take a second.
"""

from typing import TYPE_CHECKING

from unbraid.config import tagged
from unbraid.dictionaries.baselines.baseline import Baseline, FittedBaseline, Oracle, Random
from unbraid.dictionaries.baselines.clusters import KMeans, KMedoids
from unbraid.dictionaries.baselines.factors import Ica, Nmf, Pca

BASELINES: dict[str, type[Baseline]] = {
    "kmeans": KMeans,
    "kmedoids": KMedoids,
    "pca": Pca,
    "ica": Ica,
    "nmf": Nmf,
    "random": Random,
    "oracle": Oracle,
}

if TYPE_CHECKING:
    AnyBaseline = Baseline
else:
    AnyBaseline = tagged(BASELINES)

__all__ = [
    "BASELINES",
    "AnyBaseline",
    "Baseline",
    "FittedBaseline",
    "Ica",
    "KMeans",
    "KMedoids",
    "Nmf",
    "Oracle",
    "Pca",
    "Random",
]
