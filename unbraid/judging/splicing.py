"""Fidelity on the model: splice a dictionary's reconstruction in for the activations, and see what the model loses.

At every token that is text, the activation x at the site is replaced by x̂ (or by zero, or by the mean over the text);
special and padding tokens keep theirs. Where a token and the next are text, the prediction is counted.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from unbraid.axes import Float, Tensor
from unbraid.capture.models import Model
from unbraid.capture.sites import Site, replace
from unbraid.capture.windows import Window
from unbraid.errors import Refusal
from unbraid.judging.lens import BLOCK, Lens
from unbraid.judging.passage import Passage, passages, rows
from unbraid.metrics import language, sparsity
from unbraid.metrics.fidelity import Moments
from unbraid.metrics.language import Losses
from unbraid.progress import Told, unwatched
from unbraid.randomness import stream

Change = Callable[[Float[Tensor, "b d"]], Float[Tensor, "b d"]]
Scores = dict[str, tuple[float, float | None]]
"""Each score's value, and its standard error from the luck of the text where it is known."""

CLEAN, ZERO, MEAN = "clean", "zero", "mean"


def fidelity(
    model: Model, site: Site, chosen: Sequence[Window], lenses: Mapping[str, Lens], told: Told = unwatched
) -> dict[str, Scores]:
    """What each dictionary scores, by its name; `mean` is the ablation by the mean. Encoders have no loss to score."""
    x = torch.cat([rows(model, site, passage) for passage in passages(model, chosen)])
    found = {name: reconstruction(lens, x) for name, lens in lenses.items()}
    if not model.is_causal:
        return found
    if not any((window.kept[:-1] & window.kept[1:]).any() for window in chosen):
        raise Refusal(
            "no token of the text is followed by another in its window, so no prediction can be judged; accepted: "
            "texts of at least two tokens, in windows that hold two of them beside the special ones"
        )
    middle = x.mean(0)
    changes: dict[str, Change] = {ZERO: torch.zeros_like, MEAN: lambda part: middle.expand_as(part)}
    changes |= {f"lens {name}": lens.reconstruct for name, lens in lenses.items()}
    lost = splice(model, site, chosen, changes, told)
    scored = {name: loss_scores(lost, f"lens {name}") for name in lenses}
    return {MEAN: loss_scores(lost, MEAN), **{name: {**scored[name], **found[name]} for name in lenses}}


def loss_scores(lost: Mapping[str, Losses], name: str) -> Scores:
    three = lost[CLEAN], lost[name], lost[ZERO]
    values, errors = language.recovered(*three), language.errors(*three, stream(0, "windows"))
    tokens = float(lost[CLEAN].tokens.sum())
    fixed = {f"ce_{other}": (float(lost[other].cross_entropy.sum()) / tokens, None) for other in (CLEAN, ZERO, MEAN)}
    return {**{each: (values[each], errors[each]) for each in values}, **fixed}


@torch.no_grad()
def splice(
    model: Model, site: Site, chosen: Sequence[Window], changes: Mapping[str, Change], told: Told = unwatched
) -> dict[str, Losses]:
    """What the model loses by each change of its activations, and `clean` as it is."""
    parts: dict[str, list[Losses]] = {name: [] for name in (CLEAN, *changes)}
    some = list(passages(model, chosen))
    for place, passage in enumerate(some):
        where = language.counted(passage.kept)
        clean = language.log_probabilities(_logits(model, passage), where)
        parts[CLEAN].append(language.losses(clean, clean, passage.tokens, where))
        for number, (name, change) in enumerate(changes.items()):
            told((place + number / len(changes)) / len(some))
            with replace(site, _on_text(passage, change)):
                found = language.log_probabilities(_logits(model, passage), where)
            parts[name].append(language.losses(clean, found, passage.tokens, where))
    return {name: language.joined(each) for name, each in parts.items()}


def reconstruction(lens: Lens, x: Float[Tensor, "b d"]) -> Scores:
    """Explained variance, cosine, L0 and dead features on these activations."""
    moments, cosine, counts = None, 0.0, torch.zeros(1, lens.stack.features, dtype=torch.long)
    for part in x.split(BLOCK):
        codes = lens.encode(part)
        again = lens.decode(codes)
        both = Moments.of(part, again[None])
        moments = both if moments is None else moments + both
        cosine += float(torch.cosine_similarity(part, again, dim=1).double().sum())
        counts += codes.counts()
    assert moments is not None
    return {
        "explained_variance": (float(moments.explained_variance()), None),
        "reconstruction_error": (float(moments.reconstruction_error()), None),
        "cosine": (cosine / len(x), None),
        "l0": (float(sparsity.l0(counts, len(x))), None),
        "dead": (float(sparsity.dead(counts)), None),
    }


def _logits(model: Model, passage: Passage) -> Tensor:
    return model.model(input_ids=passage.tokens, attention_mask=passage.mask).logits


def _on_text(passage: Passage, change: Change) -> Callable[[Tensor], Tensor]:
    """The change, of tokens that are text only."""

    def changed(value: Tensor) -> Tensor:
        value = value.clone()
        value[passage.kept] = change(value[passage.kept])
        return value

    return changed
