"""Seed 002's claims about its t-SNE pictures, by statistics of their points instead of by impression."""

from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Difference, Level
from unbraid.studies.results import Where
from unbraid.studies.rules import Above

STUDY = "002-tsne"
UNCORRELATED: Where = {"world.firing": "independent"}
CORRELATED: Where = {"world.firing": "correlated"}
STEEP: Where = {"world.decay": 0.95}
FLAT: Where = {"world.decay": 1.0}
SMALL = ("data.samples=1024", 'sweep."world.decay"=[0.95, 1.0]')

PICTURES = (
    Claim(
        id="002-decay-spreads",
        seed="002",
        statement="The nearer the decay is to 1, the more evenly t-SNE spreads the samples.",
        published="an impression of pictures at decay .95, .99 and 1",
        study=STUDY,
        overrides={"small": SMALL},
        parts=(
            Part(
                what="evenness, decay 1 minus .95, uncorrelated",
                statistic=Difference(metric="evenness", of=UNCORRELATED | FLAT, minus=UNCORRELATED | STEEP),
                rule=Above(),
            ),
            Part(
                what="evenness, decay 1 minus .95, correlated",
                statistic=Difference(metric="evenness", of=CORRELATED | FLAT, minus=CORRELATED | STEEP),
                rule=Above(),
            ),
        ),
        figures=("embedding-1", "embedding-2", "embedding-3", "embedding-4"),
    ),
    Claim(
        id="002-correlation-clusters",
        seed="002",
        statement="Correlated features make clusters in the t-SNE picture.",
        published="an impression of pictures at decay .95, .99 and 1",
        study=STUDY,
        overrides={"small": SMALL},
        parts=(
            Part(
                what="Hopkins statistic, correlated minus uncorrelated (samples that are not empty)",
                statistic=Difference(metric="hopkins", of=CORRELATED, minus=UNCORRELATED),
                rule=Above(),
            ),
            Part(
                what="Hopkins statistic, correlated, from that of the same features made independent",
                statistic=Level(metric="hopkins", of=CORRELATED),
                rule=Above(),
            ),
        ),
        figures=("embedding-1", "embedding-3"),
    ),
)
