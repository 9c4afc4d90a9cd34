"""Figures of attention heads: maps of chosen, random and all heads; dependence, rank, sharpness, gradients."""

from collections.abc import Callable, Iterator, Sequence

import altair as alt
import numpy as np
import pandas as pd

from unbraid.figures import marks
from unbraid.figures.figure import Figure, Parts, section
from unbraid.figures.scores import metric_figures
from unbraid.metrics.catalog import MEDIUM, SHARP
from unbraid.results import First, RunResults

MOST_SETTINGS, MOST_MAPS = 3, 8
MOST_WORDS = 40
"""Of a map with a tooltip for each cell; larger ones are images."""
MAP, SMALL = 330, 92
"""Pixels a side of a map, and of one in a gallery."""
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""What queries are multiplied by in the tables of gradients."""
COLOUR = "Colour by the square root of attention"
Place = tuple[int, int, str]
"""Layer, head, and why it is shown."""
Choose = Callable[[RunResults, First], list[Place]]
SHOWN = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})


def head_words(results: RunResults, stack: int, member: int) -> tuple[list[str], list[int]]:
    """The words of the first example of a member, and which of them are in the facts that its first question needs."""
    notes = results.notes(stack, "stories") or results.notes(stack, "texts")
    for example in notes.get("members", {}).get(str(member), []):
        support = example.get("support") or [[]]
        return [word.translate(SHOWN) for word in example["words"]], sorted(set(support[0]))
    return [], []


def matrix_map(
    matrix: np.ndarray, names: Sequence[str], titles: tuple[str, str, str], most: float, root: bool = True
) -> alt.Chart | alt.LayerChart:
    """A square matrix whose cells of 0 stay blank; an image where it is large."""
    if len(names) > MOST_WORDS:
        return marks.image(np.nan_to_num(matrix), titles, (0.0, most), names=(names, names), root=root)
    places, cell = np.array([f"{place:02d} {name}" for place, name in enumerate(names)]), MAP // max(len(names), 16)
    down, across = np.nonzero(np.nan_to_num(matrix))
    frame = pd.DataFrame({"down": places[down], "across": places[across], "value": matrix[down, across].round(4)})
    names, label = places.tolist(), "slice(datum.label, 3)"
    return marks.heatmap(frame, titles, (0.0, most), cell, words=False, root=root, names=names, label=label)


def _seen(results: RunResults, first: First) -> tuple[np.ndarray, list[str], list[int]]:
    """Layers × heads × words × words of a setting's first replicate on its first example, its words and its facts."""
    pattern, (words, support) = first.own("pattern"), head_words(results, first.stack, first.member)
    pattern = np.zeros((1, 0, 0, 0, 0)) if pattern is None or not words else pattern
    return pattern[0, ..., : len(words), : len(words)].astype(float), words, support


def _maps(results: RunResults, choose: Choose, name: str) -> Iterator[Figure]:
    """The maps of the heads that `choose` names, of the first replicate of a few settings."""
    for first in results.firsts(MOST_SETTINGS):
        patterns, words, support = _seen(results, first)
        starred = [f"{word}{' ★' if number in support else ''}" for number, word in enumerate(words)]
        for layer, head, why in choose(results, first) if len(patterns) else ():
            pattern = patterns[layer, head]
            chart = matrix_map(pattern, starred, ("query", "key", "attention"), float(pattern.max()))
            title = f"{marks.short(first.label, 40)}: layer {layer}, head {head}{f' ({why})' if why else ''}"
            caption = f"{COLOUR}, up to {pattern.max():.2f}; blank: none."
            caption += " ★ marks the facts that the first question needs." if support else ""
            yield Figure(f"{name}-{first.setting}-{layer}-{head}", title, chart, caption)


def _extreme(*measures: tuple[str, Callable, str]) -> Choose:
    """The heads of a setting's first replicate that have the most, or the least, of these tables; none twice."""

    def choose(_: RunResults, first: First) -> list[Place]:
        chosen: dict[tuple[int, int], str] = {}
        for name, find, why in measures:
            table = first.own(name)
            if table is not None and np.isfinite(table).any():
                layer, head = map(int, np.unravel_index(find(table), table.shape))
                chosen[layer, head] = f"{chosen[layer, head]} and {why}" if (layer, head) in chosen else why
        return [(layer, head, why) for (layer, head), why in chosen.items()]

    return choose


def _drawn(results: RunResults, first: First) -> list[Place]:
    drawn = results.notes(first.stack, "stories").get("drawn", {}).get(str(first.member), [])
    return [(layer, head, "") for layer, head in drawn[:2]]


def _first_of_the_last(results: RunResults, first: First) -> list[Place]:
    return [(len(_seen(results, first)[0]) - 1, 0, "")]


def _maps_section(name: str, heading: str, which: str, choose: Choose) -> None:
    """Register a section of maps of these heads."""
    said = f"Of the first replicate of at most {MOST_SETTINGS} settings, on its first example: {which}."
    section(heading, said, name)(lambda results: _maps(results, choose, name.partition("_")[0]))


_maps_section(
    *("chosen_heads", "Chosen heads", "the head most on the supporting facts, and the sharpest"),
    _extreme(
        ("support", np.nanargmax, "most on the supporting facts"), ("attention_entropy", np.nanargmin, "sharpest")
    ),
)
_maps_section(
    *("chosen_head_maps", "The sharpest and the flattest heads", "␣ is a space, ↵ the end of a line"),
    _extreme(("sharpness", np.nanargmax, "sharpest"), ("sharpness", np.nanargmin, "flattest")),
)
_maps_section(
    *("first_heads", "The first head, as the study draws it"),
    "head 0 of the last layer. Which head is number 0 is an accident of the initialization",
    _first_of_the_last,
)
_maps_section(*("drawn_heads", "Randomly drawn heads", "two heads drawn by a seed, not for what they show"), _drawn)


def _gallery(results: RunResults, first: First, places: Sequence[Place], name: str, note: str = "") -> Iterator[Figure]:
    """Small maps of these heads of a setting's first replicate, in one scale of colour."""
    pattern, words, support = _seen(results, first)
    if not len(pattern) or not places:
        return
    most = max(float(pattern[layer, head].max()) for layer, head, _ in places)
    urls = [marks.png_uri(np.sqrt(pattern[layer, head]), (0.0, most**0.5), pixels=SMALL) for layer, head, _ in places]
    maps = pd.DataFrame({"head": [why for _, _, why in places], "url": urls})
    picture = alt.Chart(width=SMALL, height=SMALL + 5)
    picture = picture.mark_image(width=SMALL, height=SMALL, align="left", baseline="top", aspect=False)
    picture = picture.encode(url=alt.Url("url:N"), x=alt.XValue(0), y=alt.YValue(0), tooltip=alt.Tooltip("head:N"))
    facts = alt.Chart(pd.DataFrame({"word": support, "end": [word + 1 for word in support]}))
    facts = facts.mark_rect(color=marks.COLOURS[1]).encode(
        x=alt.X("word:Q", scale=alt.Scale(domain=[0, len(words)], nice=False), axis=None),
        x2=alt.X2("end:Q"),
        y=alt.YValue(SMALL + 2),
        y2=alt.Y2Value(SMALL + 5),
    )
    facet = alt.Facet("head:N", sort=maps["head"].tolist(), title=None)
    chart = alt.layer(picture, facts, data=maps).facet(facet, columns=min(pattern.shape[1], MOST_MAPS))
    caption = f"Query words down, key words across. {COLOUR}, from 0 (light) to {most:.2f} (dark)."
    caption += " Orange: the facts that the first question needs." if support else ""
    yield Figure(f"{name}-{first.setting}", marks.short(first.label), chart, caption + note, wide=True)


@section("All heads")
def all_heads(results: RunResults) -> Parts:
    """Every head of every layer of the first and of the last setting, first replicate, first example."""
    for first in results.firsts()[:: max(1, len(results.drawn) - 1)]:
        places = [
            (layer, head, f"layer {layer}, head {head}")
            for layer, head in np.ndindex(_seen(results, first)[0].shape[:2])
        ]
        yield from _gallery(results, first, places, "all-heads")


@section("Attention of every head")
def head_maps(results: RunResults) -> Parts:
    """Heads of the last layer, first replicate, first window of the text."""
    for first in results.firsts():
        labels, sharpness = results.notes(first.stack, "texts").get("heads", []), first.own("sharpness")
        if sharpness is not None:
            layer, shown = len(sharpness) - 1, enumerate(sharpness[-1, :MOST_MAPS])
            places = [(layer, head, f"{head}: {labels[head]}, {value:.2f}") for head, value in shown]
            note = " Over each map: number of the head, its kind, its sharpness."
            note += f" The first {MOST_MAPS} of {len(labels)} heads." if len(labels) > MOST_MAPS else ""
            yield from _gallery(results, first, places, "head-maps", note)


WHEN = {"sharpness": "trained", "untrained_sharpness": "before training", "expected_sharpness": "expected by chance"}


def _kinds(results: RunResults, *families: str) -> pd.DataFrame:
    """Metrics by kind of head, of the settings that are drawn."""
    frame = marks.of_drawn(results, results.of_family(*families))
    return frame.assign(row=frame.pop("label").map(lambda label: marks.short(label, 40)) + ": " + frame["of"])


@section("How uniform heads are")
def head_uniformity(results: RunResults) -> Parts:
    """By kind of head of the last layer: ℓ0 scalars, ℓ1 vectors, ℓ2 tensors. Sharpness is 0 for uniform attention and 1
    for attention on one token, at any length. row_std is the gauge study's measure: it leaves out the token itself.
    """
    frame, spread = _kinds(results, *WHEN), _kinds(results, "row_std")
    if len(frame):
        frame = frame.assign(when=frame["family"].map(WHEN)).drop(columns=["chance", "ceiling"])
        colour = marks.colours("when", WHEN.values(), (*marks.COLOURS[:2], marks.GREY))
        chart = marks.rows(frame, "sharpness", "row", colour, by="when")
        caption = "Trained, before training, and expected if beliefs were drawn as far apart; with 95 % intervals."
        yield Figure("sharpness", "Sharpness by kind of head", chart, caption)
    if len(spread):
        lines_at = [marks.line_at(MEDIUM, f"MEDIUM above {MEDIUM}"), marks.line_at(SHARP, f"SHARP above {SHARP}")]
        chart = alt.layer(*lines_at, marks.rows(spread, "row_std", "row"))
        caption = f"Light tick: uniform attention at this length. Dashed: MEDIUM above {MEDIUM}, SHARP above {SHARP}."
        yield Figure("row-std", "row_std by kind of head", chart, caption)


@section("Dependence of heads")
def head_dependence(results: RunResults) -> Parts:
    """The largest held-out R² of what one head of the last layer writes of a story from what another does. Light tick,
    chance: each head's stories permuted on their own.
    """
    before = _dependence_before(results)
    yield from metric_figures(results, ("head_dependence",), "dependence", before, "the same model before training")
    yield from metric_figures(results, ("head_dependence_nonlinear",), "dependence")


def _dependence_before(results: RunResults) -> dict[str, float]:
    """Of each setting the mean over replicates of the largest R² of two heads of the last layer before training."""
    rows = []
    for label, stack, member in results.members[["label", "stack", "member"]].itertuples(index=False):
        if (table := results.arrays(stack).get("dependence_untrained")) is not None:
            others = table[member, -1][~np.eye(table.shape[-1], dtype=bool)]
            rows.append((label, float(np.nanmax(others, initial=-np.inf))))
    means = pd.DataFrame(rows, columns=["label", "value"]).groupby("label", sort=False)["value"].mean()
    return means[np.isfinite(means.astype(float))].to_dict()


@section("Redundancy across layers")
def layer_redundancy(results: RunResults) -> Parts:
    """CKA of all heads with all heads of a first replicate, layer by layer; its mean over heads of different layers;
    the effective rank of what a head writes. Light tick: the same model before training.
    """
    titles = ("layer and head", "layer and head ", "CKA")
    for first in results.firsts(2):
        cka, entropy = first.own("cka_layers"), first.own("attention_entropy")
        if cka is not None and entropy is not None:
            names = [f"{layer}.{head}" for layer, head in np.ndindex(entropy.shape)]
            chart = matrix_map(np.clip(cka, 0, 1), names, titles, 1.0, root=False)
            yield Figure(f"cka-{first.setting}", marks.short(first.label), chart)
    yield from metric_figures(results, ("layer_cka", "head_rank"), "redundancy")


@section(
    "Gradients through peaked attention",
    f"The queries of the last layer are multiplied by {FACTORS[0]:g} to {FACTORS[-1]:g}: how much of the gradient "
    "reaches the embeddings through attention weights, as attention gets sharper. Means over replicates with 95 % "
    "intervals; dashed before training.",
)
def gradient_through_attention(results: RunResults) -> Parts:
    found = []
    for index, label, stack, member in results.members[["setting", "label", "stack", "member"]].itertuples(index=False):
        tables = results.arrays(stack)
        for ending, when in (("", "trained"), ("_untrained", "before training")):
            if index in results.drawn and f"gradient_share{ending}" in tables:
                columns = (tables[f"gradient_{name}{ending}"][member].tolist() for name in ("sharpness", "share"))
                found += [(label, when, *point) for point in zip(FACTORS, *columns, strict=True)]
    if found:
        frame = pd.DataFrame(found, columns=["label", "when", "factor", "sharpness", "value"])
        keys = ["label", "when", "factor"]
        sharpness = frame.groupby(keys)["sharpness"].mean().reset_index()
        means = marks.mean_curves(frame, by=keys[:2], x="factor").merge(sharpness, on=keys)
        x = alt.X("sharpness:Q", title="sharpness of attention (0 uniform, 1 a single key)")
        dash = alt.StrokeDash("when:N", legend=None, sort=["trained", "before training"])
        title = "share of the gradient through attention weights"
        chart = marks.lines(means, x, title, marks.setting_colour(results), dash, order="factor")
        yield Figure("gradients", "Gradient against sharpness", chart)
