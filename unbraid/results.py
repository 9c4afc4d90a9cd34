# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false, reportReturnType=false
"""A run as tidy tables: one data frame for scores, one for curves, one for features, and so on.

>>> import unbraid as ub
>>> results = ub.load_run("runs/quickstart-20261118-102138")  # doctest: +SKIP
>>> results.summary[["label", "metric", "value", "low", "high", "chance"]]  # doctest: +SKIP

| table         | a row is                                                                           |
|---------------|------------------------------------------------------------------------------------|
| `settings`    | a combination of what was swept                                                    |
| `members`     | one trained thing: a setting, a replicate, and where it is on disk                 |
| `scores`      | a member and a metric                                                              |
| `summary`     | a setting and a metric: mean over replicates, 95 % interval, chance, ceiling       |
| `differences` | a setting and a metric, against the setting it is compared with, pair by pair      |
| `curves`      | a member, a logged step and a quantity                                             |
| `concepts`    | a member and a planted feature, or concept                                         |
| `features`    | a member and a learned feature                                                     |
| `heads`       | a member, a layer and a head                                                       |
| `tracking`    | a member, a check while training, a threshold and a quantity                       |

Tables are read when they are first asked for. Of a run that is not finished, `curves` and what its stages left are
there and the rest is empty.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from unbraid.config import REPLICATES, JsonDict, combine, flatten
from unbraid.config.sweep import label
from unbraid.errors import UserError
from unbraid.metrics.catalog import CONCEPT_FATES, find, learn, parts
from unbraid.storage.checkpoints import read_log
from unbraid.storage.feature_index import FeatureIndex
from unbraid.storage.files import Arrays, read_arrays, read_json
from unbraid.storage.runs import Run, find_run

MOST_LINES = 8
"""Settings that lines are drawn for, at most."""
TABLES = ("settings", "scores", "summary", "differences", "curves", "concepts", "features", "heads", "tracking")
RETIRED = (
    *("summary", "dictionary_summary", "embedding_summary", "model_summary", "language_model_summary"),
    *("pipeline_summary", "feature_cards", "training_curves_by_row"),
    *("ablation_steps", "case_differences", "learning_curves"),
)
"""Sections that only older runs name."""
PLACE = ["setting", "label", "replicate", "stack", "member"]
"""The columns that say whose row it is."""
CONCEPT_TABLES = ("best_cosine", "matched_cosine", "match", "best_feature")
CONCEPT_TABLES += ("precision", "recall", "f1", "absorption", "seen", "silent_with_child", "silent_alone")
FEATURE_TABLES = ("density", "stability", "stability_codes", "truth_cosine")
FEATURE_TABLES += ("nearest", "synth_precision", "synth_recall", "synth_f1")
TRACKED = ("absent", "learned", "moved", "still", "unlearned", "unlearned_same_entry", "mean_change")
TRACKED += ("gain_absent", "gain_learned", "gain_moved", "gain_still", "gain_unlearned", "dead", "mean_change_of_all")


class First(NamedTuple):
    """The first member of a setting, of which a run keeps more than of the rest, with its stack's tables."""

    setting: int
    label: str
    stack: int
    member: int
    tables: Arrays

    def own(self, name: str) -> np.ndarray | None:
        """Its part of a table; None where there is none."""
        return self.tables[name][self.member] if name in self.tables else self.tables.get(f"{name}.{self.member}")


def load_run(path: str | Path, runs: str | Path = "runs") -> "RunResults":
    """Read a run as tidy tables.

    Parameters
    ----------
    path : str or Path
        A run directory, or its name in the folder of runs.
    runs : str or Path, default "runs"
        The folder that holds the runs.

    Returns
    -------
    RunResults
        Its tables as pandas data frames: `scores`, `summary`, `differences`, `curves`, `concepts`, `features`, …

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.load_run("no-such-run")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    unbraid.errors.UserError: there is no run 'no-such-run' here or in runs; ...
    """
    return RunResults(find_run(str(path), Path(runs)))


@dataclass(frozen=True)
class RunResults:
    """What a run left on disk, except its weights, as tidy tables; see the module for what a row of each is."""

    run: Run

    def __post_init__(self) -> None:
        """Whatever shows it must know of its plugins' metrics, whose facts it holds."""
        with suppress(UserError):
            metrics = self.run.facts().get("metrics")
            for name, facts in metrics.items() if isinstance(metrics, dict) else ():
                learn(name, facts if isinstance(facts, dict) else {})

    def __repr__(self) -> str:
        return f"<run {self.run.name}: {self.kind}, {self.state}, {len(self.labels)} settings>"

    @cached_property
    def facts(self) -> JsonDict:
        """What its kind says of it: `kind`, the `leading` metric, the `sections` of its report."""
        return self.run.facts()

    @cached_property
    def config(self) -> JsonDict:
        return self.run.config()

    @cached_property
    def configs(self) -> dict[str, JsonDict]:
        """The configuration of each setting, by its label."""
        swept = flatten(self.config.get("sweep", {}))
        sweep = {path: values for path, values in swept.items() if path not in REPLICATES}
        return {label(setting): config for setting, config in combine({**self.config, "sweep": sweep})}

    @cached_property
    def state(self) -> str:
        return str(self.run.status()["state"])

    @property
    def title(self) -> str:
        return str(self.config.get("title") or self.run.name)

    @property
    def kind(self) -> str:
        return str(self.facts["kind"])

    @property
    def leading(self) -> str:
        """The metric that settings are ranked by."""
        return str(self.facts["leading"])

    @property
    def sections(self) -> list[str]:
        """Those of its report that there still are."""
        return [name for name in self.facts["sections"] if name not in RETIRED]

    def check_finished(self) -> None:
        if self.state != "finished":
            raise UserError(
                f"{self.run.path} is {self.state}; accepted: a finished run, so finish it with "
                f"`{self.run.resume_command}`"
            )

    # Settings, scores, differences

    @cached_property
    def _cards(self) -> list[JsonDict]:
        return self.run.settings() if (self.run.path / "scores.json").is_file() else []

    @cached_property
    def labels(self) -> list[str]:
        """What each setting is called, in the order they were swept."""
        return [card["label"] for card in self._cards] or list(dict.fromkeys(self.members["label"]))

    @cached_property
    def settings(self) -> pd.DataFrame:
        rows = [
            {"setting": index, "label": card["label"], "replicates": len(card["members"]), **_swept(card["setting"])}
            for index, card in enumerate(self._cards)
        ]
        return pd.DataFrame(rows, columns=None if rows else ["setting", "label", "replicates"])

    @cached_property
    def members(self) -> pd.DataFrame:
        cards = self._cards or self._unscored
        rows = [{**card, **own, "setting": index} for index, card in enumerate(cards) for own in card["members"]]
        return pd.DataFrame(rows, columns=PLACE)

    @property
    def _unscored(self) -> list[JsonDict]:
        """The settings of stacks that are there before the run has scores, by label."""
        found: dict[str, list[JsonDict]] = {}
        for stack in range(len(self.run.stacks())):
            for position, card in enumerate(self.notes(stack, "members")):
                place = {"replicate": card["replicate"], "stack": stack, "member": position}
                found.setdefault(label(card["setting"]), []).append(place)
        return [{"label": name, "members": members} for name, members in found.items()]

    @cached_property
    def scores(self) -> pd.DataFrame:
        rows = [
            {**card, **member, "setting": index, "metric": metric, "value": value}
            for index, card in enumerate(self._cards)
            for metric, score in card["metrics"].items()
            for member, value in zip(card["members"], score["members"], strict=True)
        ]
        return pd.DataFrame(rows, columns=[*PLACE, "metric", "value"]).astype({"value": float})

    @cached_property
    def summary(self) -> pd.DataFrame:
        rows = [
            {"setting": index, "label": card["label"], "metric": metric, **_numbers(metric, score)}
            for index, card in enumerate(self._cards)
            for metric, score in card["metrics"].items()
        ]
        numbers = ["value", "low", "high", "chance", "ceiling"]
        frame = pd.DataFrame(rows, columns=["setting", "label", "metric", *numbers, "n"])
        return frame.astype(dict.fromkeys(numbers, float))

    @cached_property
    def differences(self) -> pd.DataFrame:
        places, numbers = ["setting", "reference", "label", "reference_label", "metric"], ["value", "low", "high"]
        rows = [
            {**entry, **_bounds(entry), "label": self.labels[entry["setting"]]}
            | {"reference_label": self.labels[entry["reference"]]}
            for entry in (self.run.scores()["differences"] if self._cards else [])
        ]
        frame = pd.DataFrame(rows, columns=[*places, *numbers, "pairs", "verdict"])
        return frame.astype(dict.fromkeys(numbers, float))

    def has_score(self, *metrics: str) -> bool:
        """Whether any setting has any of these scores."""
        return any(metric in card["metrics"] for card in self._cards for metric in metrics)

    def of_metric(self, *metrics: str) -> pd.DataFrame:
        """The rows of `summary` with these metrics, where there is a value."""
        chosen = self.summary[self.summary["metric"].isin(metrics)]
        return chosen[chosen["value"].notna()]

    def of_family(self, *families: str) -> pd.DataFrame:
        """The rows of `summary` with a value in these families, as `phi` of `phi_<factor>`, and what each is `of`."""
        named = self.of_metric(*self.summary["metric"])
        family, of = zip(*map(parts, named["metric"]), strict=True) if len(named) else ((), ())
        named = named.assign(family=[name.partition("_<")[0] for name in family], of=of)
        return named[named["family"].isin(families) & (named["of"] != "")]

    @cached_property
    def ranked(self) -> list[int]:
        """The settings from the best to the worst by the leading metric, those without one last."""
        leading = self.of_metric(self.leading).set_index("setting")["value"]
        record = find(self.leading)
        sign = 1.0 if record is not None and record.better == "lower" else -1.0
        return sorted(range(len(self.labels)), key=lambda index: sign * leading.get(index, np.inf * sign))

    @cached_property
    def drawn(self) -> list[int]:
        """The settings that lines are drawn for: all, or eight spread evenly from the best to the worst."""
        if len(self.labels) <= MOST_LINES:
            return list(range(len(self.labels)))
        return sorted({self.ranked[round(place)] for place in np.linspace(0, len(self.ranked) - 1, MOST_LINES)})

    # What stages left

    def arrays(self, stack: int, name: str = "tables") -> Arrays:
        """A file of a stack as it is on disk, members first: `tables`, or checks while training (`tracking`)."""
        read, path = self.__dict__.setdefault("_read", {}), self.run.stack(stack) / f"{name}.safetensors"
        if (stack, name) not in read:
            read[stack, name] = read_arrays(path) if path.is_file() else {}
        return read[stack, name]

    def model_arrays(self, stack: int) -> Arrays:
        """Tables of layers and heads. In a pipeline those of the one model that all members learned from."""
        return self.arrays(stack, "heads") or self.arrays(stack)

    def notes(self, stack: int, name: str) -> JsonDict:
        """What a stack left in words: `stories`, `texts`, verdicts on `features`, …; empty where it did not."""
        path = self.run.stack(stack) / f"{name}.json"
        return read_json(path) if path.is_file() else {}

    def feature_index(self, stack: int) -> FeatureIndex | None:
        """What every learned feature of a stack fires on; None where no index was written."""
        return FeatureIndex.open(self.run.stack(stack))

    def first_member(self, setting: int) -> tuple[int, int]:
        """Stack and position of a setting's first member: of these a run keeps more than of the rest."""
        row = self.members[self.members["setting"] == setting].iloc[0]
        return int(row["stack"]), int(row["member"])

    def firsts(self, most: int | None = None) -> list[First]:
        """The first member of each drawn setting, or of so many of them."""
        drawn = [(index, self.labels[index], *self.first_member(index)) for index in self.drawn[:most]]
        return [First(*place, self.arrays(place[2])) for place in drawn]

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Loss terms are "loss: NAME", what mechanisms log "MECHANISM: KEY", all else has the name it is logged by."""
        logs = [pd.json_normalize(read_log(folder / "log.jsonl"), sep=": ") for folder in self.run.stacks()]

        def rows(stack: int, member: int) -> pd.DataFrame:
            if stack >= len(logs) or logs[stack].empty:
                return pd.DataFrame()
            own = logs[stack].map(lambda logged: logged[member] if isinstance(logged, list) else logged)
            long = own.melt("step", var_name="quantity")
            long = long[[value is None or isinstance(value, (int, float)) for value in long["value"]]]
            names = long["quantity"].str.replace("terms: ", "loss: ").str.removeprefix("mechanisms: ")
            return long.assign(quantity=names, value=long["value"].astype(float))

        return self._joined(rows, ["step", "quantity", "value"])

    @cached_property
    def concepts(self) -> pd.DataFrame:
        """`match` is the learned feature, −1 where there is none; `fate` is known where there are verdicts."""

        def rows(stack: int, member: int) -> pd.DataFrame:
            tables = self.arrays(stack)
            if "best_cosine" in tables:
                columns = {name: tables[name][member] for name in CONCEPT_TABLES if name in tables}
                frame = pd.DataFrame({"frequency": tables["probabilities"], **columns})
                if "fate" in tables:
                    frame["fate"] = [CONCEPT_FATES[number] for number in tables["fate"][member]]
                names = [f"concept {number}" for number in range(len(frame))]
            else:
                cards = self.notes(stack, "features").get("members", {}).get(str(member), {}).get("concepts", [])
                frame = pd.DataFrame([_concept(card) for card in cards])
                names = [f"{card['factor']} = {card['value']}" for card in cards]
            frame.insert(0, "concept", range(len(frame)))
            frame.insert(1, "name", names)
            return frame

        return self._joined(rows, ["concept", "name", "frequency"])

    @cached_property
    def features(self) -> pd.DataFrame:
        def rows(stack: int, member: int) -> pd.DataFrame:
            tables, index = self.arrays(stack), self.feature_index(stack)
            columns = {name: tables[name][member] for name in FEATURE_TABLES if name in tables}
            if index is not None and member in index.members:
                own = index.table(member)
                columns = {**{name: values[: index.features(member)] for name, values in columns.items()}, **own}
            frame = pd.DataFrame(columns)
            frame.insert(0, "feature", range(len(frame)))
            return frame

        return self._joined(rows, ["feature"])

    @cached_property
    def heads(self) -> pd.DataFrame:
        """Layers and heads count from 0. In a pipeline the first member of each stack stands for its model."""

        def rows(stack: int, member: int) -> pd.DataFrame:
            tables, labels = self.model_arrays(stack), self.notes(stack, "texts").get("heads")
            known = tables.get("attention_entropy", tables.get("sharpness"))
            if known is None or member >= len(known):
                return pd.DataFrame()
            layer, head = np.indices(known[member].shape)
            same = {name: values[member] for name, values in tables.items() if values.shape[1:] == layer.shape}
            columns = {name: values.ravel() for name, values in same.items()}
            frame = pd.DataFrame({"layer": layer.ravel(), "head": head.ravel(), **columns})
            return frame if labels is None else frame.assign(irrep=[labels[number] for number in frame["head"]])

        return self._joined(rows, ["layer", "head"])

    @cached_property
    def tracking(self) -> pd.DataFrame:
        """What has no threshold has NaN there."""

        def rows(stack: int, member: int) -> pd.DataFrame:
            tables = self.arrays(stack, "tracking")
            if not tables:
                return pd.DataFrame()
            steps, thresholds = tables["steps"], tables["thresholds"]
            grid = pd.MultiIndex.from_product([thresholds, steps], names=["threshold", "step"]).to_frame(index=False)
            plain = pd.DataFrame({"threshold": np.nan, "step": steps})
            found = [
                plain.assign(quantity=name, value=tables[name][member])
                if tables[name].ndim == 2
                else grid.assign(quantity=name, value=tables[name][:, member].ravel())
                for name in TRACKED
                if name in tables
            ]
            return pd.concat(found, ignore_index=True)

        return self._joined(rows, ["threshold", "step", "quantity", "value"])

    def _joined(self, rows: Callable[[int, int], pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
        """The rows of every member, each with whose they are."""
        frames = []
        for place in self.members.to_dict("records"):
            frame = rows(place["stack"], place["member"])
            if len(frame):
                frames.append(pd.DataFrame(place, index=frame.index).join(frame))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*PLACE, *columns])


def _swept(setting: JsonDict) -> JsonDict:
    """What was swept, by dotted path; a table or a list as its label says it."""
    return {path: label({path: v}) if isinstance(v, (dict, list)) else v for path, v in setting.items()}


def _numbers(metric: str, score: JsonDict) -> JsonDict:
    """Value, interval, chance, ceiling and number of values."""
    record = find(metric)
    # A score of the activations is the same whatever was learned from them: as chance it would say nothing.
    chance = None if record is not None and record.scope == "activations" else score["chance"]
    known = sum(value is not None and not np.isnan(value) for value in score["members"])
    return {**score, **_bounds(score), "chance": chance, "n": known}


def _bounds(score: JsonDict) -> JsonDict:
    return dict(zip(("low", "high"), score["interval"] or (None, None), strict=True))


def _concept(card: JsonDict) -> JsonDict:
    """A concept behind a model's activations, as features.json has it."""
    match = card["features"][0] if card["features"] else -1
    fate = {"factor": card["factor"], "fate": card["verdict"], "match": match, "features": card["features"]}
    return {"frequency": card["share"], **fate, "phi": card["phi"], "probe": card["ceiling"]}
