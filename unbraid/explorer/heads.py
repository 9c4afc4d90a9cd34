"""Attention of a story or a text by layer and head: who looks where, at what supports the answer, how sharply."""

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from unbraid.config import JsonDict
from unbraid.explorer.members import Member, choose, names_in, of_member
from unbraid.explorer.parameters import choice, integer, texts
from unbraid.explorer.site import NothingHere, Site, Tab
from unbraid.figures.marks import png_uri
from unbraid.results import RunResults

PICKS = {"random": "a random head", "best": "most on the support", "sharpest": "the sharpest"}
FAINTEST = 0.02
"""Attention below which a cell of the large map is left empty."""
COLUMNS = {
    "support": "mass on the support, all stories",
    "attention_entropy": "entropy (1 = even)",
    "sharpness": "sharpness",
    "effective_keys": "effective keys",
    "importance": "drop when ablated",
    "rank": "rank",
}


@dataclass(frozen=True)
class Example:
    """A story or a text as one model saw it."""

    words: list[str]
    patterns: np.ndarray
    """Layers × heads × queries × keys."""
    questions: list[tuple[int, list[int], str, str]]
    """Of each question: where it is asked, what supports it, the answer, and what the model said."""

    @cached_property
    def support_mass(self) -> np.ndarray | None:
        """Layers × heads: attention of what asks to what supports, mean over the questions; None of a text."""
        if not self.questions:
            return None
        return np.mean([self.patterns[:, :, asked, support].sum(-1) for asked, support, *_ in self.questions], axis=0)

    @cached_property
    def entropy(self) -> np.ndarray:
        """Layers × heads: mean over queries of the entropy, as a share of that of even attention."""
        safe = np.clip(self.patterns, 1e-9, 1)
        keys = np.maximum((self.patterns > 0).sum(-1), 2)
        return (-(self.patterns * np.log(safe)).sum(-1) / np.log(keys)).mean(-1)


def _example(results: RunResults, member: Member, number: int) -> Example:
    patterns = results.model_arrays(member.stack)[f"pattern.{member.member}"][number].astype(float)
    card = _cards(results, member)[number]
    size = min(len(card["words"]), patterns.shape[-1])
    questions = [
        (asked, [place for place in support if place < size], str(answer), str(said))
        for asked, support, answer, said in zip(
            card.get("asked", []), card.get("support", []), card.get("answers", []), card.get("said", []), strict=True
        )
        if asked < size
    ]
    return Example(card["words"][:size], patterns[:, :, :size, :size], questions)


def _cards(results: RunResults, member: Member) -> list[JsonDict]:
    kept = results.notes(member.stack, "stories") or results.notes(member.stack, "texts")
    return kept.get("members", {}).get(str(member.member), [])


def heads_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen = choose(request, results, lambda s, m: f"pattern.{m}" in _names(results.run.stack(s)))
    if chosen is None:
        raise NothingHere(f"the run {results.run.name} kept no attention; accepted: a run that trains models")
    member = chosen.chosen
    count = min(len(_cards(results, member)), len(results.model_arrays(member.stack)[f"pattern.{member.member}"]))
    number = integer(request, "example", 0, 0, max(0, count - 1))
    example = _example(results, member, number)
    layers, heads = example.patterns.shape[:2]
    pick = choice(request, "pick", PICKS, "")
    if pick:
        layer, head = _picked(pick, example)
        return RedirectResponse(
            str(request.url.remove_query_params("pick").include_query_params(layer=layer, head=head)), 303
        )
    first = _picked("best" if example.questions else "sharpest", example)
    layer, head = integer(request, "layer", first[0], 0, layers - 1), integer(request, "head", first[1], 0, heads - 1)
    asked = example.questions[-1][0] if example.questions else len(example.words) - 1
    query = integer(request, "query", asked, 0, len(example.words) - 1)
    kept = _chosen_heads(request, layers, heads)
    support = next((support for place, support, *_ in example.questions if place == query), [])
    table = of_member(results, member.stack, member.member).heads
    return site.render(
        request,
        "heads.html.jinja",
        results=results,
        choice=chosen,
        example=example,
        number=number,
        count=count,
        layer=layer,
        head=head,
        query=query,
        support=support,
        supports={place for _, support, *_ in example.questions for place in support},
        maps=[
            (one, other, _small(example.patterns[one, other]))
            for one in range(layers)
            for other in range(heads)
            if not kept or (one, other) in kept
        ],
        kept=kept,
        picks=PICKS if example.questions else {name: text for name, text in PICKS.items() if name != "best"},
        irreps=results.notes(member.stack, "texts").get("heads"),
        rows=table.to_dict("records"),
        columns={name: text for name, text in COLUMNS.items() if name in table},
        chance=_chance(results, member),
        cells=cells(example.patterns[layer, head]),
        lit=lambda value: min(8, int(np.ceil(8 * value))) if value >= FAINTEST else 0,
        link=lambda **changes: "?" + str(request.url.include_query_params(**changes).query),
    )


def _chance(results: RunResults, member: Member) -> float | None:
    """What even attention would have on the support."""
    uniform = results.model_arrays(member.stack).get("uniform")
    return None if uniform is None else float(uniform[member.member])


def _picked(pick: str, example: Example) -> tuple[int, int]:
    if pick == "random":
        return random.randrange(example.patterns.shape[0]), random.randrange(example.patterns.shape[1])
    mass = example.support_mass
    place = np.argmax(mass) if pick == "best" and mass is not None else np.argmin(example.entropy)
    layer, head = np.unravel_index(int(place), example.entropy.shape)
    return int(layer), int(head)


def _chosen_heads(request: Request, layers: int, heads: int) -> set[tuple[int, int]]:
    """Heads that were ticked, as LAYER.HEAD."""
    pairs = [word.split(".") for word in texts(request, "chosen")]
    numbers = [
        (int(p[0]), int(p[1]))
        for p in pairs
        if len(p) == 2 and all(n.isascii() and n.isdecimal() and len(n) < 6 for n in p)
    ]
    return {(layer, head) for layer, head in numbers if layer < layers and head < heads}


def _small(pattern: np.ndarray) -> str:
    return png_uri(pattern, (0.0, max(0.5, float(pattern.max()))))


def cells(pattern: np.ndarray) -> list[tuple[int, int, float]]:
    """Query, key and attention of every cell that is not faint."""
    queries, keys = np.nonzero(pattern >= FAINTEST)
    return [(q, k, float(pattern[q, k])) for q, k in zip(queries.tolist(), keys.tolist(), strict=True)]


def _names(folder: Path) -> frozenset[str]:
    return names_in(folder / "heads.safetensors") or names_in(folder / "tables.safetensors")


def has_attention(results: RunResults) -> bool:
    return any(name.startswith("pattern.") for folder in results.run.stacks()[:1] for name in _names(folder))


ROUTES = [Route("/runs/{name}/heads", heads_page)]
TABS = [Tab("Heads", "heads", has_attention)]
