"""Runs and claims, carried out while a person watches: what the command line and Python both do.

`run`, `sweep`, `resume` and `claims` are what Python calls. A signal stops a run well; what it has is kept, and going
on with it ends with the same bits.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unbraid.activations.capture import CaptureConfig, capture_missing
from unbraid.config import Config, JsonDict, merge, parse_override, read_toml, to_toml
from unbraid.config.plugins import take_plugins
from unbraid.config.sweep import at_path, at_scale, lists_to_sweep, overridden
from unbraid.errors import Missing, UserError
from unbraid.pipeline.executors import THIS_MACHINE, Executor
from unbraid.pipeline.expand import Plan, expand, kind_of
from unbraid.pipeline.mirrors import check_mirrors, mirrored
from unbraid.pipeline.run import carry_out, missing_stages
from unbraid.pipeline.stage import Stage
from unbraid.progress import OneOfMany, Progress, Recorded, for_terminal
from unbraid.report.page import write_report
from unbraid.results import RunResults
from unbraid.signals import StopSignals
from unbraid.storage.files import write_bytes
from unbraid.storage.leases import open_url
from unbraid.storage.runs import CACHE, MIRRORS, Run, find_run
from unbraid.studies.shipped import config_name, find_config

if TYPE_CHECKING:
    import pandas as pd

    from unbraid.studies.claims import Claim
    from unbraid.studies.plans import Study

RUNS = "runs"
"""The folder that holds the runs, where no other is named."""
LONGEST_NAME = 60
RESERVED = (CACHE, MIRRORS, "stages")
"""Folders beside the runs: the cache of stages, mirrors of logs, and what the cache was called before."""
FROM_PYTHON = "the configuration given"
"""What messages call a configuration that is no file."""
AGAIN = "the same call"
"""How somebody goes on in Python with what a call has begun."""

Source = str | PathLike[str] | Mapping[str, Any]
Override = str | Mapping[str, Any]


def run(
    config: Source,
    *overrides: Override,
    scale: str | None = None,
    name: str | None = None,
    runs: str | PathLike[str] = RUNS,
    quiet: bool = False,
) -> RunResults:
    """Run a configuration: train, evaluate, write the report. The same as `unbraid run`.

    Ctrl-C stops after the present step and keeps what there is; the message says how to go on.

    Parameters
    ----------
    config : str, path or dict
        The name of a configuration that ships, as "pipeline/demo"; a TOML file; or the configuration itself, as tables
        or as objects: ``{"world": ub.Superposition(dimensions=32), "training.steps": 500}``.
    overrides : str or dict
        Settings to change: "training.steps=100", or ``{"training.steps": 100}``.
    scale : str, optional
        One of the configuration's scales, as "small".
    name : str, optional
        The run's name; by default the configuration's and the time. A run of that name and configuration is gone on
        with, so that a cell of a notebook can be run again.
    runs : str or path, default "runs"
        The folder that holds the runs.
    quiet : bool, default False
        Show no progress: by default a bar in a terminal or notebook, lines elsewhere.

    Returns
    -------
    RunResults
        What `ub.load_run` gives: `summary`, `scores`, `curves`, … as data frames; `results.run.path` is its folder.

    Examples
    --------
    >>> import unbraid as ub
    >>> config = {"world": ub.Superposition(dimensions=16, n_features=24), "dictionary.d_sae": 32}
    >>> results = ub.run(config, {"training.steps": 20}, "evaluation.samples=256", name="first", quiet=True)
    >>> results.state
    'finished'
    >>> bool(results.summary.set_index("metric").loc["mmcs", "value"] > 0)
    True
    """
    data, source = read_config(config, overrides, scale)
    return _carried_out(data, source, stem_of(config), name, Path(runs), quiet)


def sweep(
    config: Source,
    *overrides: Override,
    scale: str | None = None,
    name: str | None = None,
    runs: str | PathLike[str] = RUNS,
    quiet: bool = False,
) -> RunResults:
    """Run every combination of the lists that stand where one value is expected.

    Members of equal shape train together as one stack. A list where the setting is a list itself is left alone; sweep
    it, or several seeds at once, in the table `sweep`: ``{"sweep": {"replicate": range(5)}}``.

    Parameters
    ----------
    config : str, path or dict
        As of `run`; with lists, tuples, ranges or arrays anywhere a number or name may stand.
    overrides : str or dict
        Settings to change, with lists too: ``{"mechanisms.sparsity.weight": [0.05, 0.1, 0.2]}``.
    scale : str, optional
        One of the configuration's scales, as "small".
    name : str, optional
        The run's name; by default the configuration's and the time.
    runs : str or path, default "runs"
        The folder that holds the runs.
    quiet : bool, default False
        Show no progress.

    Returns
    -------
    RunResults
        One run with a setting for each combination; `replicate`, `seed` and `world.seed` make replicates of them.

    Examples
    --------
    >>> import unbraid as ub
    >>> config = {"world": {"dimensions": 16, "n_features": 24}, "dictionary": {"d_sae": 32}, "seed": [0, 1]}
    >>> weights = {"mechanisms.sparsity.weight": [0.05, 0.2]}
    >>> short = {"training.steps": 20, "evaluation.samples": 256}
    >>> results = ub.sweep(config, weights, short, name="weights", quiet=True)
    >>> results.members[["label", "replicate"]].to_numpy().tolist()
    [['weight 0.05', '0/0'], ['weight 0.05', '0/1'], ['weight 0.2', '0/0'], ['weight 0.2', '0/1']]
    """
    data, source = read_config(config, overrides, scale)
    swept = lists_to_sweep(data, kind_of(data, source), source)
    return _carried_out(swept, source, stem_of(config), name, Path(runs), quiet)


def resume(name: str | PathLike[str], runs: str | PathLike[str] = RUNS, quiet: bool = False) -> RunResults:
    """Go on with a run that was stopped or killed; it ends with the same bits as one that was not.

    Parameters
    ----------
    name : str or path
        A run directory, or its name in the folder of runs.
    runs : str or path, default "runs"
        The folder that holds the runs.
    quiet : bool, default False
        Show no progress.

    Returns
    -------
    RunResults
        As of `run`.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.resume("no-such-run")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    unbraid.errors.UserError: there is no run 'no-such-run' here or in runs; ...
    """
    return _finished(find_run(str(name), Path(runs), to_finish=True), None, quiet)


def claims(
    *ids: str,
    scale: str = "small",
    runs: str | PathLike[str] = RUNS,
    ledger: str | PathLike[str] | None = None,
    run: bool = True,
    quiet: bool = False,
) -> "pd.DataFrame":
    """Test what the source studies claim: run what is missing, reuse what is there, write the ledger.

    Parameters
    ----------
    ids : str
        Claims to test; by default all.
    scale : {"small", "standard"}
        How large the studies are.
    runs : str or path, default "runs"
        The folder that holds the runs; the ledger is written there as a page and as Markdown.
    ledger : str or path, optional
        A ledger as JSON: a study whose verdicts it has is not run again. It is written anew.
    run : bool, default True
        False runs nothing and writes nothing: verdicts are those of studies that are there.
    quiet : bool, default False
        Show no progress.

    Returns
    -------
    pandas.DataFrame
        A row a claim: `id`, `source`, `claim`, `published`, `value` with `low`, `high` and `chance` of the part that
        decides it, `p`, `q`, `verdict`, `why` it was not run or is undecided, `study`, and the `run` that tested it.

    Examples
    --------
    >>> import unbraid as ub
    >>> ledger = ub.claims(run=False)
    >>> sorted(set(ledger["verdict"]))
    ['not run']
    """
    from unbraid.report.ledger import ledger_frame

    asked = ClaimsAsked(ids, scale, Path(runs), None if ledger is None else Path(ledger))
    return ledger_frame(asked.test(AGAIN, quiet) if run else asked.listed())


@dataclass(frozen=True)
class ClaimsAsked:
    """Which claims to test, at which scale, with the runs of which folder, and the ledger to take verdicts from."""

    ids: Sequence[str]
    scale: str
    runs: Path
    ledger: Path | None

    def listed(self) -> list[JsonDict]:
        """Their entries in the ledger; nothing is run."""
        from unbraid.studies.ledger import ledger_entries, plan_claims, reuse_verdicts, with_q

        claims, earlier = self._read()
        entries = with_q(reuse_verdicts(ledger_entries(plan_claims(self.scale, self.runs)), earlier))
        return _of(claims, entries)

    def test(self, again: str, quiet: bool) -> list[JsonDict]:
        """The same, after what is missing was run; the ledger is written. `again` is how to go on after a stop."""
        from unbraid.studies.ledger import NOT_RUN, ledger_entries, plan_claims, reuse_verdicts, with_q
        from unbraid.studies.plans import unfinished

        claims, earlier = self._read()
        capture_for(claims, self.scale, again, quiet)
        planned = plan_claims(self.scale, self.runs)
        entries = reuse_verdicts(ledger_entries(planned), earlier)
        to_run = {entry["id"] for entry in _of(claims, entries) if entry["verdict"] == NOT_RUN}
        work_through(unfinished(study for claim, study in planned if claim.id in to_run), again, quiet)
        entries = with_q(reuse_verdicts(ledger_entries(planned), earlier))
        self._write(entries)
        return _of(claims, entries)

    @property
    def page(self) -> Path:
        """Where the ledger is written, with its table beside it."""
        return self.runs / f"claims-{self.scale}.html"

    def _read(self) -> "tuple[list[Claim], dict[str, JsonDict]]":
        from unbraid.studies.ledger import earlier_verdicts, find_claims
        from unbraid.studies.plans import check_scale

        return find_claims(self.ids), earlier_verdicts(self.ledger, check_scale(self.scale))

    def _write(self, entries: Sequence[JsonDict]) -> None:
        from unbraid.report.ledger import ledger_page, ledger_table
        from unbraid.studies.ledger import write_ledger_file

        table = ledger_table(entries, self.scale).encode()
        if self.ledger is not None:
            write_ledger_file(self.ledger, entries, self.scale)
            write_bytes(self.ledger.with_suffix(".md"), table)
        write_bytes(self.page.with_suffix(".md"), table)
        write_bytes(self.page, ledger_page(entries, self.scale, self.runs).encode())


def _of(claims: "Sequence[Claim]", entries: Sequence[JsonDict]) -> list[JsonDict]:
    ids = {claim.id for claim in claims}
    return [entry for entry in entries if entry["id"] in ids]


def read_config(config: Source, overrides: Sequence[Override], scale: str | None) -> tuple[JsonDict, str]:
    """A configuration at a scale with overrides put in, and what messages call it."""
    if isinstance(config, Mapping):
        data, source = _tree(config), FROM_PYTHON
    else:
        path = find_config(str(config))
        data, source = read_toml(path), str(path)
    changes = [parse_override(change) if isinstance(change, str) else _tree(change) for change in overrides]
    return take_plugins(overridden(at_scale(data, scale, source), changes, source), source), source


def _tree(given: Mapping[str, Any]) -> JsonDict:
    """A dict of dotted paths, or of tables, as plain nested tables; a later one goes over an earlier."""
    tree: JsonDict = {}
    for path, value in given.items():
        if value is not None:
            tree = merge(tree, at_path(path, _plain(value)))
    return tree


def _plain(value: Any) -> Any:
    """As TOML would have it: configurations as tables, arrays and ranges as lists, numbers of NumPy as Python's."""
    match value:
        case Config():
            return value.to_dict()
        case Mapping():
            return {str(key): _plain(part) for key, part in value.items() if part is not None}
        case np.ndarray() | np.generic():
            return value.tolist()
        case list() | tuple() | range():
            return [_plain(part) for part in value]
        case PathLike():
            return str(value)
        case _:
            return value


def stem_of(config: Source) -> str:
    """What a run of it is called, before the time."""
    if isinstance(config, Mapping):
        return "run"
    return config_name(find_config(str(config))).replace("/", "-")


def _carried_out(data: JsonDict, source: str, stem: str, name: str | None, runs: Path, quiet: bool) -> RunResults:
    plan = expand_and_capture(data, source, AGAIN, quiet)
    run = Run(runs / (checked_name(name) or fresh_name(stem, runs)))
    written = to_toml(plan.config)
    if (run.path / "run.json").is_file():
        found = Run.open(run.path, to_finish=True)
        if found.config() == tomllib.loads(written):
            return _finished(found, plan, quiet)
    return _finished(Run.create(runs, run.name, written, plan.facts()), plan, quiet)


def _finished(run: Run, plan: Plan | None, quiet: bool) -> RunResults:
    with run.advice(), for_terminal(quiet) as progress:
        finish(run, plan, progress, f"ub.resume({str(run.path)!r})")
    return RunResults(run)


def finish(
    run: Run,
    plan: Plan | None,
    progress: Progress,
    resume_command: str,
    missing: Sequence[Stage] | None = None,
    executor: Executor = THIS_MACHINE,
) -> None:
    """Do whatever a run still needs, and write its report."""
    with (
        run.locked(),
        StopSignals(resume_command) as signals,
        mirrored(run, progress) as progress,
        Recorded(progress, run.set_progress) as progress,
    ):
        for change in run.environment_changes() if not run.is_finished else ():
            progress.say(f"note: {change}; the bits may differ from an uninterrupted run")
        carry_out(run, plan, progress, signals, write_page, missing, executor)


def write_page(run: Run) -> Path:
    return write_report([run], run.path / "report.html")


def executor_for(on: str | None, store: str | None) -> Executor:
    """Whoever makes the stages: this machine, or the cluster that `--on` names."""
    from unbraid.storage.store import Store

    name, _, rest = (on or "").partition("://")
    if on is None or name not in ("ray", "slurm"):
        if on is not None:
            raise UserError(
                f"--on {on!r:.60} is no cluster; accepted: ray, ray://HOST:PORT, slurm or slurm://PARTITION"
            )
        if store is not None:
            raise UserError("--store is for a cluster, and this machine makes the stages; accepted: with --on")
        return THIS_MACHINE
    from unbraid.pipeline.cluster import OnCluster

    if store is not None:
        open_url(store)
    if name == "ray":
        from unbraid.pipeline.ray_cluster import RayCluster

        return OnCluster(RayCluster(on if rest else None), Store(store) if store else None)
    from unbraid.pipeline.slurm import Slurm

    return OnCluster(Slurm(rest or None), Store(store) if store else None)


def expand_and_capture(data: JsonDict, source: str, resume_command: str, quiet: bool) -> Plan:
    """The members of a configuration; activations it needs and has not got are captured first."""
    plan = expand(data, source, _capture_with(data, resume_command, quiet))
    check_mirrors(plan.config.get("mirrors", ()))
    return plan


def _capture_with(data: JsonDict, resume_command: str, quiet: bool) -> Callable[[CaptureConfig, Path], None]:
    def capture(config: CaptureConfig, folder: Path) -> None:
        hardware = data.get("device", "cpu"), data.get("precision", "float32")
        capture_missing(config, folder, for_terminal(quiet), resume_command, *hardware)

    return capture


def capture_for(claims: "Sequence[Claim]", scale: str, resume_command: str, quiet: bool) -> None:
    """Capture what the studies of these claims need; what cannot be made here is left to the ledger."""
    from unbraid.studies.plans import study_config

    studies = {(claim.study, claim.overrides.get(scale)): study_config(claim, scale) for claim in claims}
    for data, path in studies.values():
        with suppress(Missing):
            expand_and_capture(data, str(path), resume_command, quiet)


def work_through(studies: "Sequence[Study]", resume_command: str, quiet: bool) -> None:
    """Do what is left of several studies, shown as one work."""
    with for_terminal(quiet) as whole:
        opened = [(study.open_run(), study.plan) for study in studies]
        missing = [missing_stages(run, plan, whole.say) if plan else [] for run, plan in opened]
        whole.plan([stage.task() for stages in missing for stage in stages])
        for index, (run, plan) in enumerate(opened):
            whole.status(f"study {index + 1} of {len(studies)}: {run.name}")
            first = sum(len(stages) for stages in missing[:index])
            finish(run, plan, OneOfMany(whole, first), resume_command, missing[index])


def fresh_name(stem: str, runs: Path) -> str:
    """The config's name and the time, with a number where that is taken."""
    name = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    taken = 1
    while (runs / (candidate := name if taken == 1 else f"{name}-{taken}")).exists():
        taken += 1
    return candidate


def checked_name(name: str | None, option: str = "name", what: str = "a run") -> str | None:
    """The name, where it can be one of a run; `option` is what gave it, for the message."""
    if name is None:
        return None
    if name in RESERVED:
        raise UserError(
            f"{option} {name} is not for {what}: beside the runs it is another folder; accepted: another name"
        )
    if not name or name.startswith(".") or "/" in name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UserError(
            f"{option} {name!r:.60} is not a name for {what}; accepted: up to {LONGEST_NAME} letters, no slashes, and "
            "no dot at the beginning"
        )
    return name
