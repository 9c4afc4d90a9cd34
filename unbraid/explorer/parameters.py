"""Read what an address asks for: numbers, choices and words, out of its path or its query, or say what is accepted."""

import math
from collections.abc import Iterable

from starlette.requests import Request

from unbraid.config import suggest
from unbraid.errors import UserError

LONGEST = 200
"""Letters of a word in an address, at most."""
MOST = 50
"""Values that one name may have in an address, at most."""


class BadParameter(UserError):
    """An address asks for something there cannot be; answered with status 400."""


def given(request: Request, name: str) -> str | None:
    """The value of a name in an address's path, or its last in the query; None where it is not there or empty."""
    value = request.path_params[name] if name in request.path_params else request.query_params.get(name)
    return None if value is None else str(value).strip() or None


def integer(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    value = given(request, name)
    if value is None:
        return default
    accepted = f"accepted: a whole number from {low} to {high}"
    if not value.removeprefix("-").isdecimal() or not value.isascii() or len(value) > 20:
        raise BadParameter(f"{name} is {value!r:.60}; {accepted}")
    if not low <= int(value) <= high:
        raise BadParameter(f"{name} is {int(value)}; {accepted}")
    return int(value)


def number(request: Request, name: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number from `low` to `high`, both included."""
    value = given(request, name)
    if value is None:
        return default
    try:
        parsed = float(value)
    except ValueError:
        parsed = math.nan
    if not (math.isfinite(parsed) and low <= parsed <= high):
        raise BadParameter(f"{name} is {value!r:.60}; accepted: a number from {low:g} to {high:g}")
    return parsed


def choice(request: Request, name: str, accepted: Iterable[str], default: str) -> str:
    """One of the accepted words."""
    value, accepted = given(request, name), list(accepted)
    if value is None:
        return default
    if value not in accepted:
        raise BadParameter(f"{name} is {value!r:.60}; {suggest(value[:LONGEST], accepted)}")
    return value


def text(request: Request, name: str, default: str = "", longest: int = LONGEST) -> str:
    """Any words, up to `longest` letters."""
    value = given(request, name)
    if value is None:
        return default
    if len(value) > longest:
        raise BadParameter(f"{name} has {len(value)} letters; accepted: up to {longest}")
    return value


def texts(request: Request, name: str, most: int = MOST) -> list[str]:
    """Every value of a name in the query, each once, in order."""
    values = list(dict.fromkeys(value for value in request.query_params.getlist(name) if value))
    if len(values) > most:
        raise BadParameter(f"{name} is given {len(values)} times; accepted: up to {most}")
    return values
