"""Loss recovered: replace the activations at a site by a dictionary's reconstruction, and measure the model's loss.

At every token that is text, the activation x at the site is replaced by x̂ (or by zero, or by the mean over the text);
special and padding tokens keep theirs. Where a token and the next are text, the prediction is counted.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site, replace_between
from unbraid.activations.text import Window
from unbraid.axes import Float, Tensor
from unbraid.errors import UserError
from unbraid.evaluation.language_model.sae import BLOCK, SAE, TokenBatch, read_rows, token_batches
from unbraid.metrics import firing, language
from unbraid.metrics.firing import Moments
from unbraid.metrics.language import Losses
from unbraid.progress import ReportShare, ignore_share
from unbraid.randomness import stream

Change = Callable[[Float[Tensor, "b d"]], Float[Tensor, "b o"]]
Scores = dict[str, tuple[float, float | None]]
"""Each score's value, and its standard error from the choice of the text where it is known."""

CLEAN, ZERO, MEAN = "clean", "zero", "mean"


def score_reconstructions(
    model: HuggingFaceModel,
    site: Site,
    windows: Sequence[Window],
    saes: Mapping[str, SAE],
    progress: ReportShare = ignore_share,
    target: Site | None = None,
) -> dict[str, Scores]:
    """Scores of each dictionary by name; `mean` is the ablation by the mean. Encoder models have no loss to score.

    With a `target`, dictionaries are transcoders: they read at the site, and the target is what they replace.
    """
    x = torch.cat([read_rows(model, site, batch) for batch in token_batches(model, windows)])
    y = x if target is None else torch.cat([read_rows(model, target, b) for b in token_batches(model, windows)])
    scores = {name: score_reconstruction(sae, x, y) for name, sae in saes.items()}
    if not model.is_causal:
        return scores
    if not any((window.kept[:-1] & window.kept[1:]).any() for window in windows):
        raise UserError(
            "no token of the text is followed by another in its window, so no prediction can be scored; accepted: "
            "texts of at least two tokens, in windows that hold two of them beside the special ones"
        )
    mean = y.mean(0)
    zero = torch.zeros_like(mean)
    changes: dict[str, Change] = {name: partial(_constant, row) for name, row in ((ZERO, zero), (MEAN, mean))}
    changes |= {f"sae {name}": sae.reconstruct for name, sae in saes.items()}
    losses = splice(model, site, windows, changes, progress, target)
    loss = {name: loss_scores(losses, f"sae {name}") for name in saes}
    return {MEAN: loss_scores(losses, MEAN), **{name: {**loss[name], **scores[name]} for name in saes}}


def loss_scores(losses: Mapping[str, Losses], change: str) -> Scores:
    """Loss recovered and divergence by this change, with the loss of the clean model and of both ablations."""
    three = losses[CLEAN], losses[change], losses[ZERO]
    values, errors = language.recovered(*three), language.errors(*three, stream(0, "windows"))
    tokens = float(losses[CLEAN].tokens.sum())
    fixed = {f"ce_{name}": (float(losses[name].cross_entropy.sum()) / tokens, None) for name in (CLEAN, ZERO, MEAN)}
    return {**{name: (values[name], errors[name]) for name in values}, **fixed}


@torch.no_grad()
def splice(
    model: HuggingFaceModel,
    site: Site,
    windows: Sequence[Window],
    changes: Mapping[str, Change],
    progress: ReportShare = ignore_share,
    target: Site | None = None,
) -> dict[str, Losses]:
    """The model's loss with each change of its activations, and `clean` without.

    A change is a function of the rows at the site; what it gives is put there or, if given, at the target.
    """
    losses: dict[str, list[Losses]] = {name: [] for name in (CLEAN, *changes)}
    batches = list(token_batches(model, windows))
    for index, batch in enumerate(batches):
        tokens, counted = (part.to(model.device) for part in (batch.tokens, language.counted(batch.kept)))
        clean = language.log_probabilities(_logits(model, batch), counted)
        losses[CLEAN].append(language.losses(clean, clean, tokens, counted))
        for number, (name, change) in enumerate(changes.items()):
            progress((index + number / len(changes)) / len(batches))
            with replace_between(site, target, partial(_put, change, batch)):
                changed = language.log_probabilities(_logits(model, batch), counted)
            losses[name].append(language.losses(clean, changed, tokens, counted))
    return {name: language.joined(by_batch) for name, by_batch in losses.items()}


def score_reconstruction(sae: SAE, x: Float[Tensor, "b d"], y: Float[Tensor, "b o"]) -> Scores:
    """Explained variance, cosine, L0 and dead features on these inputs and targets, the same in an autoencoder."""
    moments, cosine, counts = None, 0.0, torch.zeros(1, sae.stack.features, dtype=torch.long)
    for block, wanted in zip(x.split(BLOCK), y.split(BLOCK), strict=True):
        codes = sae.encode(block)
        reconstruction = sae.decode(codes, block)
        of_block = Moments.of(wanted, reconstruction[None])
        moments = of_block if moments is None else moments + of_block
        cosine += float(torch.cosine_similarity(wanted, reconstruction, dim=1).double().sum())
        counts += codes.counts()
    assert moments is not None
    return {
        "explained_variance": (float(moments.explained_variance()), None),
        "reconstruction_error": (float(moments.reconstruction_error()), None),
        "cosine": (cosine / len(x), None),
        "l0": (float(firing.l0(counts, len(x))), None),
        "dead": (float(firing.dead(counts)), None),
    }


def _logits(model: HuggingFaceModel, batch: TokenBatch) -> Tensor:
    mask = None if batch.mask is None else batch.mask.to(model.device)
    return model.model(input_ids=batch.tokens.to(model.device), attention_mask=mask).logits.float()


def _constant(row: Float[Tensor, "o"], rows: Float[Tensor, "b d"]) -> Float[Tensor, "b o"]:
    return row.to(rows.device).expand(len(rows), -1)


def _put(
    change: Change, batch: TokenBatch, x: Float[Tensor, "b t d"], y: Float[Tensor, "b t o"]
) -> Float[Tensor, "b t o"]:
    """What the change makes of tokens that are text; the others keep what they have."""
    y, kept = y.clone(), batch.kept.to(y.device)
    y[kept] = change(x[kept].float()).to(y.dtype)
    return y
