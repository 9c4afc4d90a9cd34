"""Print what a capture holds and what a diagnosis says."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unbraid.activations.diagnosis import Diagnosis, FiringShares
from unbraid.activations.shards import Shards

SHOWN_OUTLIERS = 5
MEANING = {
    "none": "as they are",
    "center": "subtract the mean",
    "scale": "scale to mean length √d",
    "center_and_scale": "subtract the mean, scale to mean length √d",
}


def print_shards(shards: Shards) -> None:
    origin, console = shards.manifest.origin, Console(highlight=False)
    n_shards = len(shards.manifest.shards)
    size = sum(shard.bytes for shard in shards.manifest.shards)
    console.print(Text(f"{origin.model} at {origin.site}", style="bold"))
    console.print(
        Text(
            f"{origin.tokens:,} tokens of {origin.text}, width {origin.width}, {origin.dtype}: "
            f"{n_shards} shard{'s' if n_shards > 1 else ''}, {size / 1e6:.1f} MB."
        )
    )


def print_diagnosis(diagnosis: Diagnosis) -> None:
    table = Table(box=None, pad_edge=False, show_header=True)
    for heading, justify in (("", "left"), ("value", "right"), ("meaning", "left")):
        table.add_column(heading, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    for row in _rows(diagnosis):
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    console.print(table)
    console.print("", Text(_prediction(diagnosis)), sep="\n")
    console.print(Text(f'Suggested: world.normalize = "{diagnosis.suggested}" ({MEANING[diagnosis.suggested]}).'))


def _rows(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    lengths = "  ".join(f"{length:.3g}" for length in diagnosis.lengths.values())
    names = ", ".join(f"{100 * share:g}" for share in diagnosis.lengths)
    outlying = "  ".join(
        f"{dimension} ({share:.0%})" for dimension, share in list(diagnosis.outliers.items())[:SHOWN_OUTLIERS]
    )
    return [
        ("rows looked at", f"{diagnosis.rows:,}", f"of {diagnosis.dimensions} dimensions"),
        (
            "mean offset",
            f"{diagnosis.offset:.3f}",
            "length of the mean over that of a row; 0 is centered, 1 is all alike",
        ),
        ("effective rank", f"{diagnosis.participation:.1f}", "participation ratio (Σλ)²/Σλ² of the covariance"),
        ("", f"{diagnosis.entropy_rank:.1f}", "exponential of the entropy of its spectrum"),
        (
            "outlier dimensions",
            str(len(diagnosis.outliers)),
            f"share of the variance: {outlying}" if outlying else "none",
        ),
        ("mean length", f"{diagnosis.mean_length:.3g}", f"√d is {diagnosis.dimensions**0.5:.3g}"),
        ("lengths", lengths, f"at {names} %"),
    ]


def _prediction(diagnosis: Diagnosis) -> str:
    def words(shares: FiringShares) -> str:
        return f"{shares.never:.1%} never fire and {shares.always:.1%} always do"

    return (
        f"Dead features: the mean is {diagnosis.ratio:.2f} times as long as the deviation around it. Of randomly "
        f"initialized features {words(diagnosis.expected)} by the formula. Counted on these rows: "
        f"{words(diagnosis.counted)}; normalized as suggested: {words(diagnosis.after)}. A ReLU that never fires has "
        "no gradient and stays dead."
    )
