"""The run directory: what a run leaves on disk, who may write it, and how it is read back.

    run.json             what makes it a run directory: format, name, when it began, kind, checksum of config.toml
    config.toml          the resolved configuration, defaults and all
    environment.json     versions, commit, threads
    status.json          running, stopped, failed or finished, with a sentence and the seconds worked
    progress.json        how far it is, only while a process works on it
    stacks/00/           what the stages of one stack left: members.json · log.jsonl · weights.safetensors ·
                         scores.json · tables.safetensors · …
    scores.json          every setting's scores with interval, chance and ceiling; the paired differences
    language_model.json  scores on a language model, where they were asked for
    figures/*.png, report.html
    checksums.json       size and checksum of every file above; written last

Weights and state are safetensors, everything else is text; nothing is pickled.
"""

import json
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from filelock import FileLock, Timeout

from unbraid.config import JsonDict, read_toml, suggest
from unbraid.config.plugins import named_files
from unbraid.errors import UserError
from unbraid.storage.checksums import PROGRESS, check_complete, is_among, is_sealed, resealing, seal, verify
from unbraid.storage.files import (
    CHECKSUMS,
    Damaged,
    json_bytes,
    read_bytes,
    read_object,
    read_sealed,
    sha256,
    write_bytes,
    write_sealed,
)
from unbraid.storage.leases import is_alive

FORMAT = 2
LANGUAGE_MODEL = "language_model.json"
CACHE = "cache"
"""The folder beside the runs that holds their stages."""
MIRRORS = "mirrors"
"""The folder beside them that holds what other trackers are told."""
BEGUN_WITH = ("run.json", "config.toml", "environment.json", "status.json")
"""What a run begins with; nothing can make these files again."""
DERIVED = ("report.html", "figures")
"""What `unbraid report` makes of the rest, as often as it is asked to."""

PACKAGES = ("unbraid", "torch", "numpy", "scipy", "safetensors", "pydantic")


@dataclass(frozen=True)
class Run:
    """A run directory, by its path."""

    path: Path

    @classmethod
    def create(cls, parent: Path, name: str, config: str, facts: JsonDict) -> "Run":
        """A new run directory; it appears whole, under its name, or not at all.

        `facts` is what reports need to know of the run's kind: `kind`, `leading` metric, `sections`.
        """
        run, temporary = cls(parent / name), parent / f".{name}.{os.getpid()}.part"
        _remove_unborn(parent)
        if run.path.exists():
            raise UserError(f"{run.path} exists already; accepted: another name, or `{run.resume_command}`")
        began = datetime.now(UTC).isoformat(timespec="seconds")
        card = {"format": FORMAT, "name": name, "began": began, "config_sha256": sha256(config.encode()), **facts}
        try:
            write_bytes(temporary / "config.toml", config.encode())
            write_sealed(temporary / "environment.json", environment())
            write_sealed(temporary / "run.json", card)
            cls(temporary).set_status("running", "")
            temporary.rename(run.path)
        except OSError as problem:
            raise UserError(
                f"cannot make the run directory {run.path}: {problem.strerror}; accepted: another name"
            ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return run

    @classmethod
    def open(cls, path: Path, to_finish: bool = False) -> "Run":
        """An existing run; one that is finished must have all its files.

        Only who is going `to_finish` it may open one that says it is finished and has no checksums.
        """
        if not path.is_dir():
            raise UserError(f"{path}: there is no such run directory; accepted: one that `unbraid list` shows")
        if not (path / "run.json").is_file():
            raise UserError(
                f"{path} is not a run directory (it has no run.json); accepted: one that `unbraid list` shows"
            )
        run = cls(path)
        with run.advice():
            version = read_object(path / "run.json", "format")["format"]
            if version != FORMAT:
                raise UserError(f"{path} has run format {version!r:.40}; this version reads format {FORMAT}")
            run.facts()
            if run.is_finished:
                run.check_complete()
            elif not to_finish:
                run.check_not_unsealed()
        return run

    def check_complete(self, derived: bool = False) -> None:
        """Refuse a finished run that lacks a file, or has one of another size; `derived` ones too, if asked to."""
        with self.advice():
            if check_complete(self.path, but=() if derived else DERIVED).get("of") != "run":
                path = self.path / CHECKSUMS
                raise Damaged(f"{path} is damaged: it is the list of something else than a run", path)

    def check_not_unsealed(self) -> None:
        """Refuse a run that says it is finished and has no checksums, for nothing in it can be verified."""
        if self.status()["state"] == "finished" and not self.is_finished and not self.is_locked():
            raise UserError(
                f"{self.path / CHECKSUMS} is missing: the run was killed just before its end, or the file was removed; "
                f"go on with `{self.resume_command}`"
            )

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def cache(self) -> Path:
        """Where the stages of this run and of those beside it are kept."""
        return self.path.parent / CACHE

    @property
    def resume_command(self) -> str:
        """The command, as it can be pasted into a shell; with the plugins that this process was told to run."""
        named = [f" --plugin {shlex.quote(file)}" for file in named_files()]
        return f"unbraid resume {shlex.quote(str(self.path))}{''.join(named)}"

    def stack(self, index: int) -> Path:
        return self.path / "stacks" / f"{index:02d}"

    def stacks(self) -> list[Path]:
        return sorted((self.path / "stacks").glob("[0-9]*"), key=lambda folder: int(folder.name))

    def config(self) -> JsonDict:
        """The resolved configuration, as the run was begun with."""
        path = self.path / "config.toml"
        with self.advice():
            if sha256(read_bytes(path)) != self.facts()["config_sha256"]:
                raise Damaged(f"{path} is not the configuration this run was begun with", path)
        return read_toml(path)

    def facts(self) -> JsonDict:
        with self.advice():
            return read_sealed(self.path / "run.json", "format", "name", "began", "config_sha256", "kind")

    def began(self) -> str | None:
        """When, in ISO form; None where `run.json` is damaged."""
        with suppress(UserError):
            return str(self.facts()["began"])
        return None

    def status(self) -> JsonDict:
        """As it was last noted; but what claims to be running and is not locked was killed."""
        with self.advice():
            status = read_sealed(self.path / "status.json", "state", "sentence", "seconds")
        killed = status["state"] == "running" and not self.is_locked()
        return {**status, "state": "killed"} if killed else status

    def set_status(self, state: str, sentence: str, seconds: float = 0.0) -> None:
        write_sealed(self.path / "status.json", {"state": state, "sentence": sentence, "seconds": round(seconds, 3)})

    def progress(self) -> JsonDict | None:
        """How far a run at work is (`progress.Recorded` says what is in it); None where it is not, or nobody knows."""
        with suppress(UserError):
            if self.status()["state"] == "running":
                return read_object(self.path / PROGRESS, "share", "seconds_left", "task", "tasks", "line", "curve")
        return None

    def set_progress(self, record: JsonDict) -> None:
        """Replaced as one act, but not flushed: it is of no use after a power cut. A full disk is no reason to stop."""
        temporary = self.path / f".{PROGRESS}.{os.getpid()}.part"
        with suppress(OSError):
            temporary.write_bytes(json_bytes(record))
            temporary.replace(self.path / PROGRESS)

    @property
    def is_finished(self) -> bool:
        return is_sealed(self.path)

    def check_finished(self) -> None:
        if not self.is_finished:
            raise UserError(
                f"{self.path} is {self.status()['state']}; accepted: a finished run (`{self.resume_command}`)"
            )

    def finish(self, seconds: float) -> None:
        """Note that all is done, and seal every file."""
        self.set_status("finished", "", seconds)
        seal(self.path, {"of": "run"})

    def is_damaged(self) -> bool:
        """Whether a list of runs must warn of it, without reading every byte, as `verify` does."""
        try:
            self.config()
            self.check_not_unsealed()
            if self.is_finished:
                self.check_complete()
                self.scores()
        except UserError:
            return True
        return False

    def verify(self) -> None:
        """Read every byte of a finished run again; refuses one that is damaged and says what to do."""
        with self.advice():
            verify(self.path)

    @contextmanager
    def adding(self, *names: str) -> Iterator[None]:
        """In here these files, or folders of files, are written; a finished run then has them in its checksums."""
        if not self.is_finished:
            yield
            return
        with self.advice(), resealing(self.path, *names):
            yield

    @contextmanager
    def advice(self) -> Iterator[None]:
        """What is damaged in here is said with what to do about it, once."""
        try:
            yield
        except Damaged as problem:
            if problem.path is None or not problem.path.absolute().is_relative_to(self.path.absolute()):
                raise
            raise Damaged(f"{problem}; {self._what_to_do(problem.path)}") from None

    def _what_to_do(self, damaged: Path) -> str:
        """About a damaged file of this run."""
        name = damaged.absolute().relative_to(self.path.absolute()).as_posix()
        anew = f"start another run: `unbraid run {shlex.quote(str(self.path / 'config.toml'))}`"
        if name in BEGUN_WITH:
            return f"put the file back, or {anew}"
        if is_among(name, DERIVED):
            return f"`unbraid report {shlex.quote(str(self.path))}` writes it again"
        both = f"{damaged} and {self.path / CHECKSUMS}" if name == LANGUAGE_MODEL else self.path / CHECKSUMS
        return f"put the file back, or remove {both} and run `{self.resume_command}` to make it again"

    def environment(self) -> JsonDict:
        """What it was begun in: versions, commit, threads."""
        with self.advice():
            return read_sealed(self.path / "environment.json", "python", "packages", "threads", "commit")

    def environment_changes(self) -> list[str]:
        """What is different now from when the run began."""
        then, now = self.environment(), environment()
        return [f"{key} was {then[key]} and is now {now[key]}" for key in now if then.get(key, now[key]) != now[key]]

    def scores(self) -> JsonDict:
        if not (self.path / "scores.json").is_file():
            state = self.status()["state"]
            raise UserError(f"{self.path} has no scores yet (it is {state}); finish it: `{self.resume_command}`")
        with self.advice():
            return read_object(self.path / "scores.json", "settings", "differences")

    def settings(self) -> list[JsonDict]:
        """The settings of `scores.json`, each with its scores on a language model beside its own.

        Where both have a score of one name, it is that of `scores.json`.
        """
        on_model = {json.dumps(card["setting"]): card for card in self.on_language_model().get("settings", [])}
        return [_beside(card, on_model.get(json.dumps(card["setting"]))) for card in self.scores()["settings"]]

    def on_language_model(self) -> JsonDict:
        """How its dictionaries do on a language model; empty where that was not evaluated."""
        path = self.path / LANGUAGE_MODEL
        with self.advice():
            return {} if not path.is_file() else read_sealed(path, "settings")

    def set_on_language_model(self, scores: JsonDict) -> None:
        """With a checksum of its own: the run may be made again around it."""
        write_sealed(self.path / LANGUAGE_MODEL, scores)

    def is_locked(self) -> bool:
        """Whether a process is writing this run now."""
        if not (self.path / "lock").exists():
            return False
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return True
        except OSError:  # a folder we may not write: nobody can tell
            return False
        lock.release()
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process may write a run; the lock goes with the process, however it ends.

        The record of its progress goes with the lock; one that a killed process left is removed first.
        """
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UserError(
                f"{self.path} is being written by another process; wait for it to end, or stop it"
            ) from None
        except OSError as problem:
            raise UserError(
                f"cannot lock {self.path}: {problem.strerror}; accepted: a folder that can be written"
            ) from None
        try:
            self._remove_progress()
            yield
        finally:
            self._remove_progress()
            (self.path / "lock").unlink(missing_ok=True)  # before the release: whoever waits for it notices
            lock.release()

    def _remove_progress(self) -> None:
        with suppress(OSError):
            (self.path / PROGRESS).unlink(missing_ok=True)


def _remove_unborn(parent: Path) -> None:
    """Delete what processes that were killed while they made a run directory left behind."""
    for path in parent.glob(".*.part"):
        number = path.name.split(".")[-2]
        if number.isdigit() and not is_alive(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _beside(card: JsonDict, other: JsonDict | None) -> JsonDict:
    """A setting's card with the scores of another, its replicates in the order of the first."""
    if other is None:
        return card
    positions = {member["replicate"]: position for position, member in enumerate(other["members"])}
    order = [positions[member["replicate"]] for member in card["members"]]
    more = {
        name: {**score, "members": [score["members"][position] for position in order]}
        for name, score in other["metrics"].items()
        if name not in card["metrics"]
    }
    return {**card, "metrics": {**card["metrics"], **more}}


def all_runs(parent: Path) -> list[Run]:
    """Every run directory in this folder, oldest first; also one that has lost its run.json."""
    folders = {card.parent for name in ("run.json", "status.json") for card in parent.glob(f"[!.]*/{name}")}
    return sorted(map(Run, folders), key=lambda run: (run.began() or "", run.name))


def find_run(text: str, parent: Path, to_finish: bool = False) -> Run:
    """A run by its path, or by its name in the folder of runs; see `Run.open`."""
    folders = [path for path in (Path(text), parent / text) if path.is_dir()]
    runs = [path for path in folders if (path / "run.json").is_file()]
    if folders:
        return Run.open((runs or folders)[0], to_finish)
    raise UserError(
        f"there is no run '{text}' here or in {parent}; {suggest(text, [run.name for run in all_runs(parent)])}"
    )


def environment() -> JsonDict:
    """What a result may depend on beyond its configuration: versions, machine, threads, the commit of the code."""
    import torch  # here, because listing and reporting need no torch

    from unbraid.devices import device_names

    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "accelerators": device_names(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the code that runs, with `+` if it was changed since; None outside a checkout."""
    here = Path(__file__).parent.parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, timeout=10, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit}+" if commit and git("status", "--porcelain", "--", str(here)) else commit
