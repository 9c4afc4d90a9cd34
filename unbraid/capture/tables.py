"""Print what a capture holds and what a diagnosis found."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unbraid.capture.diagnosis import Diagnosis, Silence
from unbraid.capture.shards import Shards

SHOWN = 5
MEANING = {
    "none": "as they are",
    "centre": "subtract the mean",
    "scale": "scale to mean length √d",
    "both": "subtract the mean, scale to mean length √d",
}


def print_shards(shards: Shards) -> None:
    origin, console = shards.manifest.origin, Console(highlight=False)
    amount = len(shards.manifest.shards)
    size = sum(shard.bytes for shard in shards.manifest.shards)
    console.print(Text(f"{origin.model} at {origin.site}", style="bold"))
    console.print(
        Text(
            f"{origin.tokens:,} tokens of {origin.text}, width {origin.width}, {origin.dtype}: "
            f"{amount} shard{'s' if amount > 1 else ''}, {size / 1e6:.1f} MB."
        )
    )


def print_diagnosis(found: Diagnosis) -> None:
    table = Table(box=None, pad_edge=False, show_header=True)
    for heading, justify in (("", "left"), ("found", "right"), ("meaning", "left")):
        table.add_column(heading, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    for row in _rows(found):
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    console.print(table)
    console.print("", Text(_prediction(found)), sep="\n")
    console.print(Text(f'Suggested: world.normalise = "{found.suggested}" ({MEANING[found.suggested]}).'))


def _rows(found: Diagnosis) -> list[tuple[str, str, str]]:
    lengths = "  ".join(f"{length:.3g}" for length in found.lengths.values())
    names = ", ".join(f"{100 * share:g}" for share in found.lengths)
    outlying = "  ".join(f"{place} ({share:.0%})" for place, share in list(found.outliers.items())[:SHOWN])
    return [
        ("rows looked at", f"{found.rows:,}", f"of {found.dimensions} dimensions"),
        ("mean offset", f"{found.offset:.3f}", "length of the mean over that of a row; 0 is centred, 1 is all alike"),
        ("effective rank", f"{found.participation:.1f}", "participation ratio (Σλ)²/Σλ² of the covariance"),
        ("", f"{found.entropy_rank:.1f}", "exponential of the entropy of its spectrum"),
        ("outlier dimensions", str(len(found.outliers)), f"share of the variance: {outlying}" if outlying else "none"),
        ("mean length", f"{found.mean_length:.3g}", f"√d is {found.dimensions**0.5:.3g}"),
        ("lengths", lengths, f"at {names} %"),
    ]


def _prediction(found: Diagnosis) -> str:
    def words(silence: Silence) -> str:
        return f"{silence.never:.1%} never fire and {silence.always:.1%} always do"

    return (
        f"Dead features: the mean is {found.ratio:.2f} times as long as the spread around it. By the normal rule "
        f"{words(found.expected)} of features that start at random; counted on these rows {words(found.counted)}; "
        f"normalised as suggested {words(found.after)}. A relu that never fires has no gradient and stays dead."
    )
