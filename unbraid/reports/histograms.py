"""Small histograms as SVG inside the page, in the colours of the page."""

from collections.abc import Sequence

WIDE, HIGH, FOOT = 320, 64, 14
"""Units of the drawing: of the bars, and of the words under them."""
NEAR = 0.02
"""What of the last edge the first may be to be written as 0."""


def histogram(counts: Sequence[int], edges: Sequence[float], mark: float | None = None) -> str:
    """Bars from the first edge to the last, with both written under them, and a dashed line at `mark`; or nothing."""
    if not counts or not max(counts):
        return ""
    low, high, most = edges[0], edges[-1], max(counts)
    step = WIDE / len(counts)
    bars = "".join(
        f'<rect x="{place * step:.1f}" y="{HIGH - HIGH * count / most:.1f}" width="{step - 0.8:.1f}" '
        f'height="{HIGH * count / most:.1f}"/>'
        for place, count in enumerate(counts)
        if count
    )
    ends = (
        f'<text x="0" y="{HIGH + FOOT - 2}">{_number(0.0 if 0 < low < NEAR * high else low)}</text>'
        f'<text x="{WIDE}" y="{HIGH + FOOT - 2}" text-anchor="end">{_number(high)}</text>'
        f'<text x="{WIDE / 2:g}" y="{HIGH + FOOT - 2}" text-anchor="middle">value where it fires</text>'
    )
    described = (
        f"Histogram of {sum(counts)} values from {_number(low)} to {_number(high)}, the most frequent bar {most}"
    )
    return (
        f'<svg class="histogram" viewBox="0 0 {WIDE} {HIGH + FOOT}" role="img" aria-label="{described}">'
        f"<title>{described}</title><g>{bars}</g>{_line(mark, low, high)}{ends}</svg>"
    )


def _line(mark: float | None, low: float, high: float) -> str:
    if mark is None or not low < mark < high:
        return ""
    x = WIDE * (mark - low) / (high - low)
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HIGH}"/>'


def _number(value: float) -> str:
    return f"{value:.2g}".replace("-", "−")
