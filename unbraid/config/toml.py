"""Read and write TOML, and the PATH=VALUE of a command line; a mistake is answered with one sentence."""

import json
import tomllib
from pathlib import Path

import tomli_w

from unbraid.config.schema import JsonDict
from unbraid.errors import UserError


def read_toml(path: Path) -> JsonDict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; accepted: a TOML file (see `unbraid configs`)") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: cannot be read as text ({_reason(problem)}); accepted: a TOML file") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path}: is not valid TOML: {problem}") from None


def to_toml(tree: JsonDict) -> str:
    return tomli_w.dumps(tree)


def parse_override(text: str) -> JsonDict:
    """`training.steps=100` as `{"training": {"steps": 100}}`; a value that is not TOML is taken as a string."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip() or "\n" in path or not is_encodable(text):
        raise UserError(f"{text!r} is not an override; accepted: PATH=VALUE, for example training.steps=100")
    for candidate in (value, json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")):
        try:
            if tree := tomllib.loads(f"{path} = {candidate}"):
                return tree
        except (ValueError, RecursionError):
            continue
    raise UserError(f"'{path}' is not a dotted path; accepted: names joined by dots, for example training.steps")


def is_encodable(text: str) -> bool:
    """Whether it can be written down: an argument that is not UTF-8 arrives with halves of characters."""
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def _reason(problem: Exception) -> str:
    return problem.strerror or "unreadable" if isinstance(problem, OSError) else "it is not UTF-8"
