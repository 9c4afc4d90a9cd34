"""The page of all runs: filter, sort, watch those at work, tick some to compare."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.explorer.parameters import choice, text
from unbraid.explorer.site import RunCard, Site
from unbraid.metrics.catalog import find

ORDERS = {
    "newest": lambda card: card.began,
    "name": lambda card: card.name,
    "state": lambda card: card.state,
    "kind": lambda card: card.kind,
    "time": lambda card: card.seconds,
    "settings": lambda card: card.settings,
}
"""What runs are sorted by; largest first where a reader looks for the largest."""
LARGEST_FIRST = ("newest", "time", "settings")
STATES = ("running", "finished", "stopped", "killed", "failed", "damaged")


def page(request: Request) -> Response:
    site: Site = request.app.state.site
    cards, words = site.all_runs(), text(request, "q")
    order, state = choice(request, "sort", ORDERS, "newest"), choice(request, "state", STATES, "")
    kind = choice(request, "kind", sorted({card.kind for card in cards if card.kind}), "")
    shown = [card for card in cards if _fits(card, words, state, kind)]
    shown.sort(key=ORDERS[order], reverse=order in LARGEST_FIRST)
    context = {"words": words, "order": order, "state": state, "kind": kind, "orders": list(ORDERS)}
    return site.render(
        request,
        "runs.html.jinja",
        cards=shown,
        all=cards,
        states=[name for name in STATES if any(card.state == name for card in cards)],
        kinds=sorted({card.kind for card in cards if card.kind}),
        live=site.live() if any(card.is_live for card in cards) else {},
        best=_best,
        took=_took,
        **context,
    )


def _fits(card: RunCard, words: str, state: str, kind: str) -> bool:
    if (state and card.state != state) or (kind and card.kind != kind):
        return False
    return has_words(words, [card.name, card.title, card.kind, card.state])


def has_words(words: str, texts: Sequence[str]) -> bool:
    """Whether every word stands somewhere in these texts, in whatever letters."""
    whole = " ".join(texts).lower()
    return all(word in whole for word in words.lower().split())


def _best(card: RunCard) -> str:
    """The best setting by the metric that its settings are ranked by; figures, which write numbers too, load slowly."""
    record = find(card.metric)
    if card.best is None or record is None:
        return ""
    return f"{record.label} {format(card.best, record.format).removesuffix('.')}: {card.best_label}"


def _took(card: RunCard) -> str:
    minutes, rest = divmod(round(card.seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{card.seconds:.1f} s" if card.seconds else ""


ROUTES = [Route("/runs", page)]
