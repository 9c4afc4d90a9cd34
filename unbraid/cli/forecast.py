"""What `unbraid plan` prints: what a configuration will take, and what that rests on."""

import typer

from unbraid.pipeline.forecast import Forecast
from unbraid.progress import PRIOR

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def print_forecast(forecast: Forecast) -> None:
    """A line for each quantity, and at the end what the times rest on."""
    count, made = (sum(each[part] for each in forecast.stages.values()) for part in (0, 1))
    rows = [
        (
            "members",
            f"{forecast.members} of {_plural(forecast.settings, 'setting')}, in {_plural(forecast.stacks, 'stack')}",
        ),
        ("stages", f"{count}, of which the cache has {made}" if made else str(count)),
        *((f"  {kind}", _of(*counts)) for kind, counts in forecast.stages.items()),
        ("memory", f"{bytes_in_words(forecast.memory)} for the largest stack, beside Python and torch"),
        (
            "disk",
            f"{bytes_in_words(forecast.disk)}: weights, shards and checkpoints; tables and reports are not counted",
        ),
        *((f"time on {_machines(n, forecast.threads)}", time_in_words(s)) for n, s in forecast.seconds.items()),
    ]
    width = max(len(name) for name, _ in rows)
    typer.echo("\n".join(f"{name:{width}}  {words}" for name, words in rows))
    typer.echo(rests_on(forecast))


def rests_on(forecast: Forecast) -> str:
    """Where the times come from, in a sentence or two."""
    lacking = [
        kind for kind, (count, made) in forecast.stages.items() if count > made and kind not in forecast.measured
    ]
    known = [
        f"{_plural(count, 'stage')} of {kind} took {rate:.2g} times their guess"
        for kind, (count, rate) in forecast.measured.items()
    ]
    if not any(count > made for count, made in forecast.stages.values()):
        return "Nothing is left to make."
    if not known:
        return "Times are guesses, which may be several times off: no stage of these kinds in the cache was timed."
    guessed = f"; nothing was timed of {', '.join(lacking)}" if lacking else ""
    return f"Times rest on the cache, with {PRIOR:.0f} s of guesses beside it: {'; '.join(known)}{guessed}."


def bytes_in_words(size: int) -> str:
    for unit, factor in UNITS:
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"


def time_in_words(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _of(count: int, made: int) -> str:
    return f"{count}, {made} of them made" if made else str(count)


def _machines(number: int, threads: int) -> str:
    which = "this machine" if number == 1 else f"{number} such workers"
    return f"{which}, {_plural(threads, 'thread')}{' each' if number > 1 else ''}"


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
