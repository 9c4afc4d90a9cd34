"""How much of a dictionary comes again in another one, feature by feature; no truth is needed.

    by directions   π = the one-to-one matching of largest Σ cos(w_i, v_π(i))                    (Hungarian)
    by codes        π = that of largest Σ correlation(a_i, b_π(i)), codes of the same inputs
    stability       mean over the features i of the first of cos(w_i, v_π(i)); 0 where i has no match

A feature has no match where the second dictionary has fewer, so that a small dictionary does not have all of a large
one. Where codes have either sign, as those of PCA, a direction and its opposite are the same: absolute values.

On planted worlds t_i = max over true t of cos(w_i, t) says how true a feature is, and is compared with its stability:

    rank         Spearman's correlation of stability and t over the features             chance 0
    stable true  share of the stable features (≥ .9) that are true (t ≥ .9)              chance: that share of all
"""

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.metrics.catalog import FOUND
from unbraid.metrics.recovery import best_cosine, cosines, match, matched_cosine


def direction_table(
    first: Float[Tensor, "f d"], second: Float[Tensor, "g d"], either_sign: bool = False
) -> Float[Tensor, "f g"]:
    """The cosine of every direction of one dictionary with every one of another; absolute where signs mean nothing."""
    table = cosines(first, second[None])[0]
    return table.abs() if either_sign else table


def code_table(
    first: Float[Tensor, "b f"], second: Float[Tensor, "b g"], either_sign: bool = False
) -> Float[Tensor, "f g"]:
    """The correlation of the codes of every two features over the same inputs; 0 where one never changes."""
    table = _standardized(first).T @ _standardized(second)
    return table.abs() if either_sign else table


def matched_correlation(
    first: Float[Tensor, "b f"], second: Float[Tensor, "b g"], matched: Int[Tensor, "f"], either_sign: bool = False
) -> Float[Tensor, "f"]:
    """The correlation of the codes of each feature with those of its match; 0 where it has none."""
    partner = _standardized(second)[:, matched.clamp_min(0)]
    correlation = (_standardized(first) * partner).sum(0) * (matched >= 0)
    return correlation.abs() if either_sign else correlation


def _standardized(codes: Float[Tensor, "b f"]) -> Float[Tensor, "b f"]:
    """Each column about its mean with length one; zeros where it never changes."""
    about = codes.double() - codes.double().mean(0)
    length = about.norm(dim=0)
    changes = length > 1e-9 * codes.double().norm(dim=0)
    return torch.where(changes, about / length.clamp_min(torch.finfo(torch.float64).tiny), 0)


def match_features(table: Float[Tensor, "f g"]) -> Int[Tensor, "f"]:
    """The feature of the second that each of the first is matched with, one to one; -1 where none is left."""
    return match(table[None])[0]


def inverse_match(matched: Int[Tensor, "f"], features: int) -> Int[Tensor, "g"]:
    """The same matching seen from the second dictionary, which has so many features."""
    inverse = torch.full((features,), -1, device=matched.device)
    has = (matched >= 0).nonzero()[:, 0]
    inverse[matched[has]] = has
    return inverse


def matched_values(table: Float[Tensor, "f g"], matched: Int[Tensor, "f"]) -> Float[Tensor, "f"]:
    """What the table has for each feature and its match; 0 where it has none."""
    return matched_cosine(table[None], matched[None])[0]


def truth_of_features(
    directions: Float[Tensor, "f d"], truth: Float[Tensor, "n d"], either_sign: bool = False
) -> Float[Tensor, "f"]:
    """How true each learned feature is: its cosine with the true feature most like it."""
    return best_cosine(direction_table(directions, truth, either_sign)[None])[0]


def rank_with_truth(stability: Float[Tensor, "f"], truth: Float[Tensor, "f"]) -> float:
    """Spearman's correlation of the two over features; NaN where one of them is the same for all."""
    from scipy.stats import rankdata  # takes half a second, and only scoring asks

    ranks = [torch.from_numpy(rankdata(values.cpu().double().numpy())) for values in (stability, truth)]
    if any(bool((rank == rank[0]).all()) for rank in ranks):
        return float("nan")
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def stable_true(
    stability: Float[Tensor, "f"], truth: Float[Tensor, "f"], at_least: float = FOUND
) -> tuple[float, float]:
    """The share of the stable features that are true, NaN where none is stable; and the share of all that are."""
    stable, true = stability >= at_least, truth >= at_least
    return float(true[stable].double().mean()), float(true.double().mean())
