"""Say what is measured of the heads of language models, of all or of those of one kind, and of beliefs behind them."""

from unbraid.reports.thresholds import MEDIUM, SHARP
from unbraid.reports.wording import Wording

FACT = "a fact of the model"

HEADS = {
    "row_std": Wording(
        "row_std",
        "as published: standard deviation of a head's attention over all other tokens, also those it may not see, mean "
        "over queries and heads of the last layer; it leaves out the token itself; chance is exactly uniform attention "
        "at this length",
        "at chance is uniform",
        ".4f",
    ),
    "sharpness": Wording(
        "Sharpness",
        "how far heads of the last layer are from looking at all they may see alike (0, which is chance) towards a "
        "single token (1), at any length; the token itself counts",
        "0 is uniform, 1 is one token",
    ),
    "untaught_sharpness": Wording(
        "Sharpness before teaching", "the same of the same models as they started, which is often sharp already", FACT
    ),
    "expected_sharpness": Wording(
        "Sharpness of chance beliefs",
        "what heads of the first layer would have if tokens' beliefs were drawn independently, as far apart and wide "
        "as they are",
        FACT,
    ),
    "smallest_sharp": Wording(
        "Smallest sharp head",
        "least width of a head whose sharpness would be above one half if beliefs were drawn, as far apart as those of "
        "this model in the mean over dimensions",
        FACT,
        ".0f",
    ),
    "query_variation": Wording(
        "query_var",
        "as published: mean distance of the attention of two of the first 20 tokens; chance is uniform attention, whose"
        " rows differ by the mask alone",
        "at chance is uniform",
        ".4f",
    ),
    "sharp_heads": Wording(
        "Sharp heads", f"heads of all layers with a row_std above {SHARP:.2f}: the seed's SHARP", FACT, ".1f"
    ),
    "medium_heads": Wording(
        "Medium heads", f"those above {MEDIUM:.2f} and not above {SHARP:.2f}: the seed's MEDIUM", FACT, ".1f"
    ),
}
BELIEFS = {
    "kl_mean": Wording(
        "Mean KL",
        "divergence of two tokens' beliefs, mean over heads of the last layer and all pairs, as published: also of "
        "tokens that come later; in nats",
        FACT,
        "#.3g",
    ),
    "kl_std": Wording(
        "Spread of KL", "standard deviation of the same over pairs; far below a head's κ it looks alike", FACT, "#.3g"
    ),
    "kl_mean_causal": Wording("Mean KL of what is seen", "the same of tokens that came before alone", FACT, "#.3g"),
    "kl_std_causal": Wording("Spread of KL of what is seen", "standard deviation of those", FACT, "#.3g"),
    "mean_distance": Wording(
        "Distance of means",
        "mean distance of the means of two tokens' beliefs as they are embedded (published: μ_dist); 0 where all are "
        "alike",
        FACT,
        "#.3g",
    ),
    "frame_deviation": Wording(
        "Spread of frames", "standard deviation of φ over tokens (published: φ_std), in radians", FACT, "#.3g"
    ),
    "variance_least": Wording("Least variance", "of the beliefs as they are embedded, any dimension", FACT, "#.3g"),
    "variance_mean": Wording("Mean variance", "of the same", FACT, "#.3g"),
    "variance_most": Wording("Largest variance", "of the same", FACT, "#.3g"),
}
BY_KIND = ("row_std", "sharpness", "untaught_sharpness", "expected_sharpness")


CHANCE = {"row_std": "; chance is uniform attention at this length", "sharpness": "; chance is 0"}


def kind_name(label: str) -> str:
    """The kind of head that a score's name ends in: `l2` is ℓ2; others are words."""
    return f"ℓ{label[1:]}" if label[:1] == "l" and label[1:].isdigit() else label


def which(metric: str) -> tuple[str, str]:
    """`sharpness_l0` as `("sharpness", "ℓ0")`; the kind is empty where a score is of all heads."""
    for name in BY_KIND:
        if metric.startswith(f"{name}_"):
            return name, kind_name(metric.removeprefix(f"{name}_"))
    return metric, ""


def of_a_kind(metric: str) -> Wording | None:
    """The words of a score of one kind of head; None where it is not one."""
    name, kind = which(metric)
    if not kind:
        return None
    whole = HEADS[name]
    meaning = f"the same of {kind} heads alone{CHANCE.get(name, '')}"
    return Wording(f"{whole.heading} of {kind} heads", meaning, whole.better, whole.digits)
