"""Compare two files of scores that `make` wrote, to the last bit or within a tolerance.

    python -m tests.regression.compare OLD.json NEW.json [--tolerance 1e-5]

`renamed.json` says what has another name in the new one: metrics, paths of settings (as `dictionary.features`), values
of settings, arrays of weights, claims. Settings are told apart by their place, and their labels are not compared.
`mcc` of the old code is `matched_cosine`: today's `mcc` divides by the number of truths. Checksums of weights, and
metrics that came later, are compared only to the last bit. Of claims the numbers are compared and not the verdicts,
which are by other rules now (docs/decisions/021). Prints a line a configuration; exit code 1 on a difference.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RENAMED = Path(__file__).with_name("renamed.json")
NOT_COMPARED = ("seconds", "cpu_seconds")


def differences(old: dict[str, Any], new: dict[str, Any], tolerance: float = 0.0) -> Iterator[str]:
    """What differs between two results of one configuration, in words."""
    before, after = _translated(old, json.loads(RENAMED.read_text())), _keyed(new)
    if tolerance:
        _drop_newer_metrics(before, after)
    for one in (before, after):
        for name in (*NOT_COMPARED, *(["weights"] if tolerance else [])):
            one.pop(name, None)
    yield from _differing("", before, after, tolerance)


def _drop_newer_metrics(old: dict[str, Any], new: dict[str, Any]) -> None:
    """A metric that was added since the scores were kept is no difference."""
    for kind in ("scores", "judged"):
        if kind in old and kind in new:
            known = {metric for setting in old[kind]["settings"] for metric in setting["metrics"]}
            known |= {metric for *_, metric in old[kind]["differences"]}
            for setting in new[kind]["settings"]:
                setting["metrics"] = {name: value for name, value in setting["metrics"].items() if name in known}
            differences = new[kind]["differences"]
            new[kind]["differences"] = {key: value for key, value in differences.items() if key[-1] in known}


def _translated(old: dict[str, Any], renamed: dict[str, dict[str, str]]) -> dict[str, Any]:
    """With the new names in place of the old."""

    def name(kind: str, text: str) -> str:
        return renamed[kind].get(text, text)

    new = _keyed(old)
    for table in (new[kind] for kind in ("scores", "judged") if kind in new):
        for one in table["settings"]:
            one["setting"] = _setting(one["setting"], renamed)
            one["metrics"] = {name("metrics", metric): value for metric, value in one["metrics"].items()}
        table["differences"] = {
            (*places, name("metrics", metric)): value for (*places, metric), value in table["differences"].items()
        }
    new["claims"] = {name("claims", claim): value for claim, value in new["claims"].items()}
    for claim in new["claims"].values():
        claim["parts"] = [{**part, "metric": name("metrics", part["metric"])} for part in claim["parts"]]
    new["weights"] = _in_order([{name("arrays", key): value for key, value in one.items()} for one in new["weights"]])
    return new


def _keyed(found: dict[str, Any]) -> dict[str, Any]:
    """With differences and claims by what they are of, so that their order does not matter."""
    keyed = {**found, "weights": _in_order(found["weights"])}
    for kind in ("scores", "judged"):
        if kind in found:
            keyed[kind] = {
                "settings": [{"setting": one["setting"], "metrics": one["metrics"]} for one in found[kind]["settings"]],
                "differences": {
                    (one["setting"], one["reference"], one["metric"]): _without(one, "metric")
                    for one in found[kind]["differences"]
                },
            }
    keyed["claims"] = {
        one["id"]: {"parts": [_without(part, "what", "verdict") for part in one["parts"]]}
        for one in found.get("claims", [])
    }
    return keyed


def _setting(setting: dict[str, Any], renamed: dict[str, dict[str, str]], prefix: str = "") -> dict[str, Any]:
    """A table inside a setting has paths, too: `baseline.features`."""
    new: dict[str, Any] = {}
    for key, value in setting.items():
        path = renamed["paths"].get(prefix + key, prefix + key)
        inside = _setting(value, renamed, f"{prefix}{key}.") if isinstance(value, dict) else value
        new[path.rpartition(".")[2] if prefix else path] = (
            renamed["values"].get(inside, inside) if isinstance(inside, str) else inside
        )
    return new


def _without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in names}


def _in_order(weights: list[dict[str, str]]) -> list[dict[str, str]]:
    """Wherever a run keeps them."""
    return sorted(weights, key=lambda sums: sorted(sums.values()))


def _differing(where: str, old: Any, new: Any, tolerance: float) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{where} {key}".strip()
            if key not in old or key not in new:
                yield f"{place} is only in the {'new' if key in new else 'old'}"
            else:
                yield from _differing(place, old[key], new[key], tolerance)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(old)} entries in the old, {len(new)} in the new"
        for place, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _differing(f"{where} {place}", one, other, tolerance)
    elif not _equal(old, new, tolerance):
        yield f"{where}: {old!r} in the old, {new!r} in the new"


def _equal(old: Any, new: Any, tolerance: float) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, new))
    if not numbers:
        return old == new
    return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(old) and math.isnan(new))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two files of scores, to the last bit or within a tolerance.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="X", help="relative and absolute; by default 0")
    given = parser.parse_args()
    old, new = json.loads(given.old.read_text()), json.loads(given.new.read_text())
    unequal = sorted(set(old) ^ set(new))
    for name in sorted(set(old) & set(new)):
        found = list(differences(old[name], new[name], given.tolerance))
        print(f"{name:24} {f'{len(found)} differences, the first: {found[0]}' if found else 'equal'}")
        unequal += [name] if found else []
    for name in sorted(set(old) ^ set(new)):
        print(f"{name:24} is only in the {'old' if name in old else 'new'}")
    raise SystemExit(1 if unequal else 0)


if __name__ == "__main__":
    main()
