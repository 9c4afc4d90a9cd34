"""Cards of chosen features: the concept each matches, how it fires, the stories it fires in, its neighbours."""

from collections.abc import Sequence

from unbraid.config import JsonDict
from unbraid.reports import markup
from unbraid.reports.canvas import Section
from unbraid.reports.histograms import histogram
from unbraid.reports.markup import Group, escape
from unbraid.reports.matching_words import FEATURES
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import number

SHOWN = 2
"""Settings that have cards; those after the first are folded away."""
STRONGEST, FAINTEST = 0.55, 0.04
"""Opacity of the strongest word's ground, under which words can be read in light and in dark; and what is not lit."""
WARM, COLD = "230, 159, 0", "86, 180, 233"
"""Of what fires, and of what is below 0, as red, green and blue."""


def pages(results: RunResults) -> Section:
    """The cards of the first settings, each in its first replicate; no figures, as they are HTML."""
    shown = results.settings[:SHOWN]
    found = [(one, cards) for one in shown if (cards := results.card(one).get("pages"))]
    parts = [
        _titled(f"{one.label}, first replicate", "".join(map(card, cards)), place > 0)
        for place, (one, cards) in enumerate(found)
    ]
    caption = (
        "Chosen features: the best match of every factor, and the most active one of each other verdict. A word's "
        "ground is the stronger the more the feature fires there (orange above 0, blue below), the strongest is "
        "underlined, and its value shows when the pointer rests on it. The bars count the tokens at which it fires, "
        "by how strongly; the dashed line is the threshold above which it counts as active."
    )
    return Section("Feature cards", caption, [], "".join(parts))


def _titled(name: str, cards: str, folded: bool) -> str:
    inside = f'<div class="cards">{cards}</div>'
    return markup.fold(f"Features of {name}", inside) if folded else markup.paragraph(name, "soft") + inside


def card(page: JsonDict) -> str:
    """All about one feature."""
    stories = "".join(f"<li>{lit(context['words'], context['values'])}</li>" for context in page["contexts"])
    counts, edges = page["histogram"]["counts"], page["histogram"]["edges"]
    fires = f"Fires at {100 * page['fires']:.1f} % of tokens; {_meaning(page)}."
    return (
        f'<article class="card"><p class="title">{escape(title(page))}</p>{markup.paragraph(fires)}'
        f"{histogram(counts, edges, page['threshold'])}"
        f'<ul class="contexts">{stories}</ul>{_neighbours(page["neighbours"])}</article>\n'
    )


def title(page: JsonDict) -> str:
    """`Feature 17: person = mary (match, φ .93)`"""
    return f"Feature {page['feature']}: {matched_concepts(page)} ({_verdict(page)})"


def matched_concepts(page: JsonDict) -> str:
    return " or ".join(page["concepts"]) or "no concept"


def _verdict(page: JsonDict) -> str:
    if page["verdict"] in ("dead", "spurious") or page["phi"] is None:
        return page["verdict"]
    return f"{page['verdict']}, φ\N{NO-BREAK SPACE}{page['phi']:.2f}".replace("0.", ".")


def _meaning(page: JsonDict) -> str:
    return f"{page['verdict']}: {FEATURES.get(page['verdict'], '')}".removesuffix(": ")


def lit(words: Sequence[str], values: Sequence[float]) -> str:
    """The words of a story, each on a ground as strong as the feature fires there; the strongest is marked."""
    most = max((abs(value) for value in values), default=0.0)
    return " ".join(_word(word, value, most) for word, value in zip(words, values, strict=True))


def _word(word: str, value: float, most: float) -> str:
    if not value or not most:
        return escape(word)
    share = abs(value) / most
    ground = f"rgba({WARM if value > 0 else COLD}, {max(FAINTEST, STRONGEST * share):.2f})"
    strongest = ' class="strongest"' if abs(value) == most else ""
    described = f"{value:.3g}".replace("-", "−")
    return f'<span{strongest} style="background: {ground}" title="{described}">{escape(word)}</span>'


def _neighbours(found: Sequence[JsonDict]) -> str:
    if not found:
        return ""
    rows = [
        [
            f"{one['feature']}: {matched_concepts(one)} ({_verdict(one)})",
            number("cosine", one["cosine"]),
            number("cosine", one["correlation"]),
        ]
        for one in found
    ]
    return markup.table("Nearest features", ("nearest features", "cosine", "correlation"), [Group(rows)])
