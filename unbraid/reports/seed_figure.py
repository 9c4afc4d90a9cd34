"""The seed's own figure: head 0 of the last layer on the first test item, drawn as its notebook draws it."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from unbraid.reports.canvas import GREY, Picture, Plate, plain, png, short
from unbraid.reports.findings import Findings, Setting
from unbraid.reports.watched import watched

SIZE = (10, 8)
MOST_TOKENS = 60
DPI = 100


def seed_figures(findings: Findings) -> Plate:
    """A picture a setting, of a few of them."""
    pictures = [picture for setting in findings.panels if (picture := _picture(findings, setting))]
    caption = (
        "As seed 000 draws it: head 0 of the last layer, first test item, no more than 60 tokens, colours from the "
        "lowest to the highest value of each picture. Which head is number 0 is an accident of the start; the "
        "pictures above show all heads."
    )
    return Plate("The seed's figure", caption, pictures if findings.is_taught else [])


def tick_step(tokens: int) -> int:
    return 1 if tokens <= 30 else 2 if tokens <= 50 else 3


def _picture(findings: Findings, setting: Setting) -> Picture | None:
    one = watched(findings, setting, whole=True)
    if one is None:
        return None
    tokens = min(len(one.words), MOST_TOKENS)
    figure = Figure(figsize=SIZE, dpi=DPI, layout="tight", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = axes.imshow(one.patterns[-1, 0, :tokens, :tokens], aspect="auto")
    figure.colorbar(drawn, ax=axes)
    places = range(0, tokens, tick_step(tokens))
    axes.set_xticks(places, [one.words[place] for place in places], rotation=90)
    axes.set_yticks(places, [one.words[place] for place in places])
    axes.set_xlabel("Key tokens")
    axes.set_ylabel("Query tokens")
    axes.set_title(plain(short(f"{setting.label} ({findings.source})", 90)), fontsize=10, color=GREY, loc="right")
    name = f"seed-figure-{setting.index + 1}"
    return Picture(name, png(figure), f"Attention of head 0, last layer, {setting.label}: {tokens} × {tokens} tokens.")
