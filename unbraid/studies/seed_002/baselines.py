"""Seed 002's claims about simpler methods: what k-means, k-medoids, PCA and ICA recover from 2048 samples."""

from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Difference, Level
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Within

STUDY = "002-baselines"
KMEANS: Where = {"baseline": "kmeans published"}
KMEDOIDS: Where = {"baseline": "kmedoids published"}
ROBUST_KMEDOIDS: Where = {"baseline": "kmedoids corrected"}
PCA: Where = {"baseline": "pca"}
ICA: Where = {"baseline": "ica published"}
UNCORRELATED: Where = {"world.firing": "independent"}
CORRELATED: Where = {"world.firing": "correlated"}
SMALL = (
    'sweep.baseline=[{kind="kmeans",form="published"},{kind="kmedoids",form="published"},'
    '{kind="kmedoids",form="corrected"},{kind="pca"},{kind="ica",form="published"}]',
)
"""The seed's own four methods as it used them, and k-medoids that leaves out empty samples."""

BASELINES = (
    Claim(
        id="002-kmeans-best",
        seed="002",
        statement="Of k-means, k-medoids, PCA and ICA, k-means recovers most.",
        published="MMCS .56 / .59 (correlated) against k-medoids .21 / .45, PCA .17 / .18, ICA .17 / .19",
        study=STUDY,
        overrides={"small": SMALL},
        parts=(
            Part(
                what="MMCS, k-means minus k-medoids, uncorrelated",
                statistic=Difference(metric="mmcs", of=KMEANS | UNCORRELATED, minus=KMEDOIDS | UNCORRELATED),
                rule=Above(),
            ),
            Part(
                what="MMCS, k-means minus k-medoids, correlated",
                statistic=Difference(metric="mmcs", of=KMEANS | CORRELATED, minus=KMEDOIDS | CORRELATED),
                rule=Above(),
            ),
            Part(
                what="MMCS, k-means minus PCA, both worlds",
                statistic=Difference(metric="mmcs", of=KMEANS, minus=PCA),
                rule=Above(),
            ),
            Part(
                what="MMCS, k-means minus ICA, both worlds",
                statistic=Difference(metric="mmcs", of=KMEANS, minus=ICA),
                rule=Above(),
            ),
        ),
        figures=("score-mmcs",),
    ),
    Claim(
        id="002-pca-ica-chance",
        seed="002",
        statement="PCA and ICA recover nothing beyond chance.",
        published="MMCS PCA .17 / .18, ICA .17 / .19; random directions of that number reach .176",
        study=STUDY,
        overrides={"small": SMALL},
        parts=(
            Part(what="MMCS of PCA, from chance", statistic=Level(metric="mmcs", of=PCA), rule=Within(margin=0.02)),
            Part(what="MMCS of ICA, from chance", statistic=Level(metric="mmcs", of=ICA), rule=Within(margin=0.02)),
        ),
        figures=("score-mmcs",),
    ),
    Claim(
        id="002-kmedoids-correlation",
        seed="002",
        statement="K-medoids recovers more from correlated data than from uncorrelated.",
        published="MMCS .21 uncorrelated, .45 correlated",
        study=STUDY,
        overrides={"small": SMALL},
        parts=(
            Part(
                what="MMCS of k-medoids as published, correlated minus uncorrelated",
                statistic=Difference(metric="mmcs", of=KMEDOIDS | CORRELATED, minus=KMEDOIDS | UNCORRELATED),
                rule=Above(),
            ),
            Part(
                what="the same, with empty samples left out",
                statistic=Difference(
                    metric="mmcs", of=ROBUST_KMEDOIDS | CORRELATED, minus=ROBUST_KMEDOIDS | UNCORRELATED
                ),
                rule=Above(),
            ),
        ),
        figures=("score-mmcs",),
    ),
)
