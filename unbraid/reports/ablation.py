"""A run of many cases as an ablation of mechanisms; each case is a path of settings along one strength of sparsity.

plain, run-1 … run-9    a cumulative ablation: each step adds a mechanism to the one before
alone-NAME              a mechanism, with those it cannot do without
without-NAME            all but a mechanism, and those that cannot do without it

What a mechanism adds is read from what the cases hold, not from their names: `alone-NAME` is compared with the case
that has the same mechanisms but NAME.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from unbraid.metrics.intervals import Path, Paths
from unbraid.reports.configurations import case_configs, flat_sweep
from unbraid.reports.run_results import RunResults, Setting

STRENGTHS = ("mechanisms.sparsity.weight", "dictionary.activation.k")
"""What may be swept to make paths of L0."""
ALONE, WITHOUT, STEP, PUBLISHED = "alone-", "without-", "run-", "published"
PLAIN, WHOLE = "plain", "all"


@dataclass(frozen=True)
class Case:
    """One case: the mechanisms it has, and its settings by the strength of sparsity."""

    name: str
    mechanisms: frozenset[str]
    settings: list[Setting]

    @property
    def middle(self) -> Setting:
        return self.settings[len(self.settings) // 2]

    def paths(self, metric: str) -> Paths:
        """Scores against L0, by replicate; those that have none are left out."""
        points: dict[str, list[tuple[float, float]]] = {}
        for setting in self.settings:
            columns = [setting.scores[name].members for name in ("l0", metric) if name in setting.scores]
            for replicate, *pair in zip(setting.replicates, *columns, strict=True):
                if len(pair) == 2 and None not in pair and pair[0] > 0 and np.isfinite(pair).all():
                    points.setdefault(replicate, []).append((pair[0], pair[1]))
        return {replicate: Path.through(found) for replicate, found in points.items()}


@dataclass(frozen=True)
class Addition:
    """Two cases that differ in a mechanism; `beside`: what else they differ in, for want of a closer pair."""

    mechanism: str
    where: str
    ours: Case
    reference: Case

    @property
    def beside(self) -> list[str]:
        return sorted((self.ours.mechanisms ^ self.reference.mechanisms) - {self.mechanism})


@dataclass(frozen=True)
class Ablation:
    """The cases of a run, in the order of its configuration."""

    cases: dict[str, Case]

    @cached_property
    def plain(self) -> Case:
        named = [self.cases[name] for name in (PLAIN, f"{STEP}0") if name in self.cases]
        return (named or list(self.cases.values()))[0]

    @cached_property
    def steps(self) -> list[Case]:
        """Plain, the runs that add to it one by one, and all of them if no run is that; none without runs."""
        numbered = [(name.removeprefix(STEP), case) for name, case in self.cases.items() if name.startswith(STEP)]
        runs = [
            case for _, case in sorted((int(step), case) for step, case in numbered if step.isdigit() and int(step))
        ]
        last = self.cases.get(WHOLE)
        ends = [last] if last and all(last.mechanisms != case.mechanisms for case in runs) else []
        return [self.plain, *runs, *ends] if runs else []

    @cached_property
    def whole(self) -> Case | None:
        """The case with every mechanism."""
        return self.cases.get(WHOLE) or (self.steps[-1] if self.steps else None)

    @cached_property
    def mechanisms(self) -> list[str]:
        """In the order the steps add them, then as they are named alone or left out."""
        added = [name for _, names in self._added() for name in sorted(names)]
        named = [case.removeprefix(part) for case in self.cases for part in (ALONE, WITHOUT) if case.startswith(part)]
        return list(dict.fromkeys([*added, *named]))

    def title(self, case: Case) -> str:
        """A case in a few words; a run by what it adds."""
        if case.name.startswith(STEP):
            return self.step_title(case)
        if case.name.startswith(ALONE):
            return f"{in_words(case.name.removeprefix(ALONE))} alone"
        return in_words(case.name)

    def step_title(self, case: Case) -> str:
        """A step by what it adds to the one before."""
        added = {step.name: names for step, names in self._added()}.get(case.name, frozenset())
        return f"{case.name}: + {in_words(next(iter(added)))}" if len(added) == 1 else in_words(case.name)

    def additions(self) -> list[Addition]:
        """The pairs of cases that show each mechanism alone and combined, as far as the run has them."""
        found: list[Addition] = []
        for name in self.mechanisms:
            alone = self.cases.get(f"{ALONE}{name}") or self._holding(self.plain.mechanisms | {name})
            if alone and name in alone.mechanisms:
                found.append(Addition(name, "alone", alone, self._holding(alone.mechanisms - {name}) or self.plain))
            if self.whole and name in self.whole.mechanisms:
                without = self.cases.get(f"{WITHOUT}{name}") or self._holding(self.whole.mechanisms - {name})
                found += [Addition(name, "combined", self.whole, without)] if without else []
        return found

    def groups(self) -> dict[str, list[Case]]:
        """The cases as figures show them, plain first in each."""
        named = {
            "each step adds one": [case for case in self.steps if case is not self.plain],
            "one at a time": [case for case in self.cases.values() if case.name.startswith(ALONE)],
            "all but one": [
                *([self.whole] if self.whole else []),
                *[case for case in self.cases.values() if case.name.startswith(WITHOUT)],
            ],
            "published forms": [case for case in self.cases.values() if case.name.startswith(PUBLISHED)],
        }
        known = {case.name for cases in named.values() for case in cases} | {self.plain.name}
        others = [case for case in self.cases.values() if case.name not in known]
        found = {**named, "other cases": others}
        return {title: [self.plain, *cases] for title, cases in found.items() if len(cases) > (title == "all but one")}

    def _added(self) -> Iterator[tuple[Case, frozenset[str]]]:
        """Each step and what it has that the one before has not."""
        for before, step in pairwise(self.steps):
            yield step, step.mechanisms - before.mechanisms

    def _holding(self, mechanisms: frozenset[str]) -> Case | None:
        """The first case with exactly these mechanisms, in the forms that are meant."""
        meant = (case for case in self.cases.values() if not case.name.startswith(PUBLISHED))
        return next((case for case in meant if case.mechanisms == mechanisms), None)


def read_ablation(results: RunResults) -> Ablation | None:
    """The cases of this run; None where there are no cases, or no strength of sparsity was swept."""
    sweep = flat_sweep(results.config)
    strength = next((path for path in STRENGTHS if len(sweep.get(path, [])) > 1), None)
    if strength is None or "case" not in sweep:
        return None
    cases: dict[str, Case] = {}
    for name, config in zip(sweep["case"], case_configs(results.config), strict=True):
        settings = [one for one in results.settings if one.swept.get("case") == name and strength in one.swept]
        settings = sorted(settings, key=lambda one: one.swept[strength])
        if settings:
            cases[name] = Case(name, frozenset(config.get("mechanisms", {})), settings)
    return Ablation(cases) if cases else None


def shared_l0(cases: Sequence[Case], metric: str, reference: Case) -> float | None:
    """The L0 that most cases have on the paths of all their seeds, nearest the middle of the reference's."""
    spans = {case.name: span for case in cases if (span := _span(case.paths(metric)))}
    if reference.name not in spans:
        return None
    low, high = spans[reference.name]
    ends = sorted({min(max(end, low), high) for span in spans.values() for end in span})
    middle = (low * high) ** 0.5
    candidates = [middle, *ends, *[(one * next_one) ** 0.5 for one, next_one in pairwise(ends)]]

    def worth(l0: float) -> tuple[int, float]:
        return sum(first <= l0 <= last for first, last in spans.values()), -abs(np.log(l0 / middle))

    return max(candidates, key=worth)


def in_words(name: str) -> str:
    return name.replace("_", " ").replace("-", " ") if not name.startswith(STEP) else name


def _span(paths: Paths) -> tuple[float, float] | None:
    """From the last of the first L0 to the first of the last; None where seeds have none in common."""
    first = max((path.l0[0] for path in paths.values()), default=1.0)
    last = min((path.l0[-1] for path in paths.values()), default=0.0)
    return (first, last) if first <= last else None
