"""Head 0 of the last layer on the first test item, as the notebook of the head-constraints study draws it."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as MatplotlibFigure

from unbraid.reports.canvas import GREY, Figure, Section, plain, png, short
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.story_attention import story_attention

SIZE = (10, 8)
MOST_TOKENS = 60
DPI = 100


def first_heads(results: RunResults) -> Section:
    """A figure a setting, of a few of them."""
    figures = [figure for setting in results.panels if (figure := _figure(results, setting))]
    caption = (
        "As the head-constraints study draws it: head 0 of the last layer, first test item, no more than 60 tokens, "
        "colours from the lowest to the highest value of each figure. Which head is number 0 is an accident of the "
        "initialization; the figures above show all heads."
    )
    return Section("The first head, as the source draws it", caption, figures)


def tick_step(tokens: int) -> int:
    return 1 if tokens <= 30 else 2 if tokens <= 50 else 3


def _figure(results: RunResults, setting: Setting) -> Figure | None:
    one = story_attention(results, setting, whole=True)
    if one is None:
        return None
    tokens = min(len(one.words), MOST_TOKENS)
    figure = MatplotlibFigure(figsize=SIZE, dpi=DPI, layout="tight", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = axes.imshow(one.patterns[-1, 0, :tokens, :tokens], aspect="auto")
    figure.colorbar(drawn, ax=axes)
    places = range(0, tokens, tick_step(tokens))
    axes.set_xticks(places, [one.words[place] for place in places], rotation=90)
    axes.set_yticks(places, [one.words[place] for place in places])
    axes.set_xlabel("Key tokens")
    axes.set_ylabel("Query tokens")
    axes.set_title(plain(short(f"{setting.label} ({results.source})", 90)), fontsize=10, color=GREY, loc="right")
    name = f"first-head-{setting.index + 1}"
    return Figure(name, png(figure), f"Attention of head 0, last layer, {setting.label}: {tokens} × {tokens} tokens.")
