"""The run directory: what a run leaves on disk, who may write it, and how it is read back.

    run.json            what makes it a run directory: format, name, when it began
    config.toml         the resolved configuration, defaults and all
    environment.json    versions, commit, threads
    status.json         running, stopped, failed or finished, with a sentence and the seconds worked
    stacks/00/          members.json · log.jsonl · checkpoints/ · weights.safetensors · scores.json · tables.safetensors
                        larger.json where sizes were swept; tracking/ and tracking.safetensors where it was on
    scores.json         every setting's scores with interval, chance and ceiling; the paired differences
    figures/*.png, report.html

Weights and state are safetensors, everything else is text; nothing is pickled.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from unbraid.config import Tree, nearest, read_toml
from unbraid.environment import environment
from unbraid.errors import Refusal
from unbraid.files import read_record, write_bytes, write_json

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """A run directory, by its path."""

    path: Path

    @classmethod
    def create(cls, parent: Path, name: str, config: str) -> "Run":
        """A new run directory; it appears whole, under its name, or not at all."""
        run, aside = cls(parent / name), parent / f".{name}.{os.getpid()}.part"
        if run.path.exists():
            raise Refusal(f"{run.path} exists already; accepted: another --name, or `{run.how_to_go_on}`")
        began = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            write_bytes(aside / "config.toml", config.encode())
            write_json(aside / "environment.json", environment())
            write_json(aside / "run.json", {"format": FORMAT, "name": name, "began": began})
            cls(aside).set_status("running", "")
            aside.rename(run.path)
        except OSError as problem:
            found = f"cannot make the run directory {run.path}: {problem.strerror}"
            raise Refusal(f"{found}; accepted: another --name") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        if not path.is_dir():
            raise Refusal(f"{path}: there is no such run directory; accepted: one that `unbraid list` shows")
        if not (path / "run.json").is_file():
            raise Refusal(
                f"{path} is not a run directory (it has no run.json); accepted: one that `unbraid list` shows"
            )
        found = cls(path).facts()["format"]
        if found != FORMAT:
            raise Refusal(f"{path} has run format {found!r}; this version reads format {FORMAT}")
        return cls(path)

    @property
    def name(self) -> str:
        return self.path.name

    def stack(self, index: int) -> Path:
        return self.path / "stacks" / f"{index:02d}"

    @property
    def how_to_go_on(self) -> str:
        """The command, as it can be pasted into a shell."""
        return f"unbraid resume {shlex.quote(str(self.path))}"

    def stacks(self) -> list[Path]:
        return sorted((self.path / "stacks").glob("[0-9]*"), key=lambda folder: int(folder.name))

    def config(self) -> Tree:
        return read_toml(self.path / "config.toml")

    def facts(self) -> Tree:
        return read_record(self.path / "run.json", "format", "name", "began")

    def began(self) -> str | None:
        """When, in ISO form; None where `run.json` is damaged."""
        with suppress(Refusal):
            return str(self.facts()["began"])
        return None

    def status(self) -> Tree:
        """As it was last noted; but what claims to be running and is not locked was killed."""
        status = read_record(self.path / "status.json", "state", "sentence", "seconds")
        killed = status["state"] == "running" and not self.is_locked()
        return {**status, "state": "killed"} if killed else status

    def set_status(self, state: str, sentence: str, seconds: float = 0.0) -> None:
        write_json(self.path / "status.json", {"state": state, "sentence": sentence, "seconds": round(seconds, 3)})

    def environment_changes(self) -> list[str]:
        """What is different now from when the run began."""
        then, now = read_record(self.path / "environment.json"), environment()
        return [f"{key} was {then.get(key)} and is now {now[key]}" for key in now if then.get(key) != now[key]]

    def scores(self) -> Tree:
        if not (self.path / "scores.json").is_file():
            state = self.status()["state"]
            raise Refusal(f"{self.path} has no scores yet (it is {state}); finish it: `{self.how_to_go_on}`")
        return read_record(self.path / "scores.json", "settings", "differences")

    def settings(self) -> list[Tree]:
        """The settings of `scores.json`, each with what it was judged by on a model beside its own scores.

        Where both have a score of one name, it is that of `scores.json`.
        """
        judged = {json.dumps(card["setting"]): card for card in self.judged().get("settings", [])}
        return [_beside(card, judged.get(json.dumps(card["setting"]))) for card in self.scores()["settings"]]

    def judged(self) -> Tree:
        """What `judged.json` holds: how its dictionaries do on a model; empty where they were not judged."""
        path = self.path / "judged.json"
        return read_record(path, "settings") if path.is_file() else {}

    def is_locked(self) -> bool:
        """Whether a process is writing this run now."""
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
        """Only one process may write a run; the lock goes with the process, however it ends."""
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise Refusal(f"{self.path} is being written by another process; wait for it to end, or stop it") from None
        except OSError as problem:
            raise Refusal(
                f"cannot lock {self.path}: {problem.strerror}; accepted: a folder that can be written"
            ) from None
        try:
            yield
        finally:
            lock.release()


def _beside(card: Tree, judged: Tree | None) -> Tree:
    """A setting's card with the scores of another, its replicates in the order of the first."""
    if judged is None:
        return card
    places = {member["replicate"]: place for place, member in enumerate(judged["members"])}
    order = [places[member["replicate"]] for member in card["members"]]
    more = {
        name: {**score, "members": [score["members"][place] for place in order]}
        for name, score in judged["metrics"].items()
        if name not in card["metrics"]
    }
    return {**card, "metrics": {**card["metrics"], **more}}


def all_runs(parent: Path) -> list[Run]:
    """Every run directory in this folder, oldest first."""
    runs = [Run(card.parent) for card in parent.glob("[!.]*/run.json")]
    return sorted(runs, key=lambda run: (run.began() or "", run.name))


def find_run(text: str, parent: Path) -> Run:
    """A run by its path, or by its name in the folder of runs."""
    places = [path for path in (Path(text), parent / text) if path.is_dir()]
    runs = [path for path in places if (path / "run.json").is_file()]
    if places:
        return Run.open((runs or places)[0])
    raise Refusal(
        f"there is no run '{text}' here or in {parent}; {nearest(text, [run.name for run in all_runs(parent)])}"
    )


class Log:
    """A file of one JSON object a line, appended as training goes; `size` marks a point to return to."""

    def __init__(self, path: Path, keep: int) -> None:
        """Open for appending, dropping whatever was written past the first `keep` bytes."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            self._file.truncate(keep)
        except OSError as problem:
            raise self._refusal(problem) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk was reported when the line was written
            self._file.close()

    def append(self, line: Tree) -> None:
        try:
            self._file.write((json.dumps(line) + "\n").encode())
        except OSError as problem:
            raise self._refusal(problem) from None

    def size(self) -> int:
        """How many bytes are safely written."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as problem:
            raise self._refusal(problem) from None
        return self.path.stat().st_size

    def _refusal(self, problem: OSError) -> Refusal:
        return Refusal(
            f"cannot write {self.path}: {problem.strerror}; accepted: a folder that can be written, with room to spare"
        )


def read_log(path: Path) -> list[Tree]:
    """Every whole line; a last one still being written is left out."""
    lines = path.read_text().split("\n")[:-1] if path.is_file() else []
    return [json.loads(line) for line in lines]
