"""Small runs of every kind, finished and stopped, and the commands that read them; for tests that damage their files.

Every scenario is a folder of its own with `config.toml`, `runs/run` and `runs/cache`, and whatever else its kind needs.
Commands are given in the folder, so that what they print does not depend on where it is.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
import torch

import unbraid as ub
from unbraid import cli
from unbraid.activations.shards import Manifest, Origin, write_shard
from unbraid.errors import UserError
from unbraid.progress import TaskProgress
from unbraid.storage.runs import Run
from unbraid.studies import ledger
from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Difference
from unbraid.studies.results import Where
from unbraid.studies.verdicts import Above

WORLD = """
[world]
dimensions = 6
n_features = 8
active = 2.0
"""
LEARNING = """
[dictionary]
d_sae = 8
[training]
steps = 20
batch = 16
learning_rate = 1e-2
[mechanisms.sparsity]
weight = 0.1
[checkpoints]
log_every = 5
every = 5
"""
TRAINING = """
[model.training]
steps = 12
batch = 4
learning_rate = 2e-3
[model.evaluation]
stories = 16
heads = 4
shown = 1
"""
TRANSFORMER = """
[model]
kind = "transformer"
d_model = 8
heads = 2
layers = 1
d_ff = 8
"""
STORIES = """
[world]
kind = "stories"
task = "one_fact"
layout = "together"
rounds = 2
"""
SAMPLES = """
[evaluation]
samples = 256
[sweep]
seed = [0, 1]
"""
SAVING = """
[checkpoints]
log_every = 4
every = 4
[sweep]
seed = [0, 1]
"""

CONFIGS = {
    "dictionaries": f"{WORLD}{LEARNING}[tracking]\nchecks = 4\nsamples = 64\n{SAMPLES}",
    "baselines": f"{WORLD}[baseline]\nkind = 'pca'\nn_components = 6\n[samples]\nn = 64\n{SAMPLES}",
    "models": f"kind = 'models'\n{STORIES}{TRANSFORMER}{TRAINING}{SAVING}",
    "language_models": (
        "kind = 'language_models'\n[world]\nkind = 'text'\ntext = 'primer'\nunits = 'bpe'\ntokens = 300\n"
        f"context = 8\ncharacters = 4000\nvalidation = 400\n{TRANSFORMER}{TRAINING}{SAVING}"
    ),
    "pipeline": (
        f"kind = 'pipeline'\n{STORIES}{TRANSFORMER}{TRAINING}[activations]\nstories = 60\n{LEARNING}{SAMPLES}"
    ),
    "embedding": (
        f"kind = 'embedding'\n{WORLD}[embedding]\nperplexity = 5.0\niterations = 250\n"
        "[samples]\nn = 40\nbatch = 'all'\n[sweep]\nseed = [0, 1]\n"
    ),
    "activations": f"[world]\nkind = 'activations'\npath = 'shards'\n{LEARNING}{SAMPLES}",
    "claims": f"{WORLD}{LEARNING}[evaluation]\nsamples = 256\n[sweep]\nseed = [0, 1, 2, 3, 4, 5, 6, 7]\n"
    '"mechanisms.sparsity.weight" = [0.01, 30.0]\n[scales.small]\n',
}
"""One a kind of run, and those on captured activations and of a claim."""

STOPPED = {"dictionaries": 10, "models": 8, "language_models": 8, "pipeline": 15, "baselines": 1, "embedding": 0}
"""The step at which a run of this kind is stopped; of the pipeline it is in the training of dictionaries."""
TIMES = "seconds"
"""A score that is another one whenever something is made again."""
MINUTES = re.compile(r'"minutes": [0-9.e-]+|^ "sha256": "[0-9a-f]+"', re.MULTILINE)
WORKED = re.compile(r"<dt>worked</dt><dd>[^<]*</dd>")
"""The seconds that a page says a run took; one that was made again took others."""
"""The same in a ledger, with the checksum of the whole."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    left: str
    """A checksum of what it left that matters: scores, weights, pages; or of what it loaded."""


@dataclass(frozen=True)
class Scenario:
    """A folder with a run in it; `commands` read it, in this order."""

    folder: Path
    finished: bool
    commands: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    def files(self) -> list[str]:
        """Everything that can be damaged: all but the configuration, which is the user's own."""
        paths = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        return sorted(path for path in paths if path != "config.toml" and not path.endswith((".lock", "/lock")))


def command(name: str, folder: Path) -> Ended:
    """Give a command in this folder."""
    with _within(folder):
        if name.startswith("load"):
            return _load(name)
        code, out, err = unbraid(*_words(name))
        out = MINUTES.sub("", out.replace(str(folder), "HOME"))
        return Ended(code, out, err, _left(name) if code == 0 else "")


def unbraid(*words: str) -> tuple[int, str, str]:
    """A command of `unbraid` in this process: exit code, standard output, standard error."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.guarded(lambda: cli.app(list(words)))
    return code, out.getvalue(), err.getvalue()


def _words(name: str) -> list[str]:
    again = ["run", "config.toml", "--name", "again", "-q"]
    return {
        "list": ["list"],
        "show": ["show", "run"],
        "show --json": ["show", "run", "--json"],
        "resume": ["resume", "run", "-q"],
        "resume aloud": ["resume", "run"],
        "report": ["report", "run"],
        "run again": again,
        "diagnose": ["diagnose", "shards", "--json"],
        "claims": ["claims", "--json"],
        "claims --ledger": ["claims", "--ledger", "ledger.json", "--json"],
        "claims elsewhere": ["claims", "--ledger", "ledger.json", "--runs", "elsewhere", "--json"],
    }[name]


def _load(name: str) -> Ended:
    load: Callable[[str], object] = ub.load_stack if name == "load_stack" else ub.load_models
    try:
        loaded = load("runs/run")
    except UserError as problem:
        return Ended(2, "", f"unbraid: {problem}\n", "")
    weights = loaded.tensors() if name == "load_stack" else loaded.weights  # pyright: ignore[reportAttributeAccessIssue]
    return Ended(0, "", "", _digest(f"{key} {tensor.tolist()}" for key, tensor in sorted(weights.items())))


def _left(name: str) -> str:
    """What of the files that a command may write is to be the same whatever was damaged."""
    folder = {"run again": "runs/again", "report": "runs/run", "resume": "runs/run"}.get(name)
    if name == "report":
        return _digest([WORKED.sub("", Path("runs/run/report.html").read_text())])
    if name.startswith("claims"):
        return _digest([MINUTES.sub("", Path("ledger.json").read_text())] if name != "claims" else [])
    return results(Path(folder)) if folder else ""


def results(run: Path) -> str:
    """A checksum of all scores but times, and of all weights, of a run."""
    scores = json.loads((run / "scores.json").read_text())
    for setting in scores["settings"]:
        setting["metrics"].pop(TIMES, None)
    scores["differences"] = [entry for entry in scores["differences"] if entry["metric"] != TIMES]
    weights = sorted(run.rglob("*.safetensors"))
    return _digest([json.dumps(scores), *(hashlib.sha256(path.read_bytes()).hexdigest() for path in weights)])


def _digest(parts: Sequence[str] | Iterator[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def begin(folder: Path, kind: str) -> None:
    """What a scenario needs before it is run."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIGS[kind])
    if kind == "activations":
        keep_shards(folder / "shards")


def keep_shards(folder: Path) -> None:
    """Rows of nothing, as a finished capture of three shards in documents of eight tokens."""
    rows = torch.randn(600, 6, generator=torch.Generator().manual_seed(0)) + 3
    shards = []
    for number, part in enumerate(rows.split(200)):
        places = torch.arange(number * 200, number * 200 + len(part), dtype=torch.int32)
        columns = {"tokens": places % 50, "positions": places % 8, "documents": places // 8}
        shards.append(write_shard(folder, number, {"activations": part.clone(), **columns}))
    named = {"model": "tiny", "weights": "w", "tokenizer": "t", "site": "model.layers.1", "text": "a.txt"}
    sizes = {"width": 6, "context": 8, "batch": 8, "tokens": 600, "shard_tokens": 200}
    origin = Origin(**named, **sizes, dtype="float32", text_sha256="x")  # pyright: ignore[reportArgumentType]
    Manifest(origin=origin, shards=tuple(shards)).write(folder)


def finish(folder: Path, kind: str) -> Scenario:
    """A finished run of this kind; one on activations also has scores on a language model."""
    begin(folder, kind)
    if kind == "claims":
        return _finish_claims(folder)
    with _within(folder):
        code, _, err = unbraid("run", "config.toml", "--name", "run", "-q")
        assert code == 0, err
        if kind == "activations":
            _evaluate(Run(Path("runs/run")))
    commands = ["list", "show", "show --json", "resume"]
    loaded = {"load_stack": "dictionary.json", "load_models": "architecture.json"}
    commands += [name for name, file in loaded.items() if (folder / "runs/run/stacks/00" / file).is_file()]
    commands += ["diagnose"] if kind == "activations" else []
    return Scenario(folder, True, (*commands, "report", "run again"))


def _evaluate(run: Run) -> None:
    """Scores on a language model as `unbraid evaluate` writes them, of no model."""
    card = run.scores()["settings"][0]
    score = {"value": 0.5, "interval": [0.4, 0.6], "chance": None, "ceiling": 1.0, "members": [0.4, 0.6]}
    setting = {"label": card["label"], "setting": card["setting"], "members": card["members"]}
    settings = [{**setting, "metrics": {"loss_recovered": score}}]
    on = {
        "model": "tiny",
        "site": "model.layers.1",
        "text": "a.txt",
        "labelled": [],
        "baselines": {"raw activations": {}},
    }
    with run.adding("language_model.json"):
        run.set_on_language_model({"settings": settings, "differences": [], "warnings": [], **on})


def claim() -> dict[str, Claim]:
    """About the run in this folder: a cost that silences everything leaves fewer firing."""
    weights: list[Where] = [{"mechanisms.sparsity.weight": weight} for weight in (0.01, 30.0)]
    measure = Difference(metric="l0", of=weights[0], minus=weights[1])
    part = Part(what="L0, weak minus strong", measure=measure, rule=Above(), smallest=0.1)
    made = Claim(
        id="tiny/sparser",
        statement="L1 silences.",
        quote="More L1, fewer features.",
        published="none",
        study="config.toml",
        parts=(part,),
    )
    return {made.id: made}


def _finish_claims(folder: Path) -> Scenario:
    with _within(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "CLAIMS", claim())
        code, _, err = unbraid("claims", "--ledger", "ledger.json", "-q")
        assert code == 0, err
    return Scenario(folder, True, ("list", "claims elsewhere", "claims", "claims --ledger"))


def stop(folder: Path, kind: str) -> Scenario:
    """A run of this kind that a signal has stopped while it trained, with two checkpoints."""
    begin(folder, kind)

    def interrupt(self: TaskProgress, line: object) -> None:
        if STOPPED[kind] in (0, line["step"] if isinstance(line, dict) else -1):
            os.kill(os.getpid(), signal.SIGINT)

    with _within(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskProgress, "log" if STOPPED[kind] else "status", interrupt)
        code, _, err = unbraid("run", "config.toml", "--name", "run", "-q")
        assert code == 130, err
    return Scenario(folder, False, ("list", "show", "show --json", "resume"))


@dataclass(frozen=True)
class Damage:
    """Something that happened to one file of a scenario."""

    path: str
    what: str
    content: bytes | None
    """What the file holds now; None where it is gone."""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"

    def inflict(self, folder: Path) -> None:
        target = folder / self.path
        target.unlink()
        if self.content is not None:
            target.write_bytes(self.content)

    def is_there(self, folder: Path) -> bool:
        """Whether nobody has touched the damaged file."""
        target = folder / self.path
        return (target.read_bytes() if target.is_file() else None) == self.content


def random_damage(scenario: Scenario, dice: random.Random) -> Damage:
    """To a file of a kind of file, each as likely as another, however many there are of it."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in scenario.files():
        place = name.split("/")
        kinds.setdefault(
            ("/".join(place[:2]) if "cache" in place else place[0], _without_digits(place[-1])), []
        ).append(name)
    path = dice.choice(kinds[dice.choice(sorted(kinds))])
    whole = (scenario.folder / path).read_bytes()
    ways = ["flip", "cut", "remove", "replace", *(["digit"] if _digits(whole) and b"\0" not in whole else [])]
    while True:
        what, content = _damaged(whole, dice.choice(ways), scenario, dice)
        if content != whole:
            return Damage(path, what, content)


def _damaged(whole: bytes, way: str, scenario: Scenario, dice: random.Random) -> tuple[str, bytes | None]:
    if way == "remove":
        return "removed", None
    if way == "replace":
        other = dice.choice(scenario.files())
        return f"replaced by {other}", (scenario.folder / other).read_bytes()
    if not whole:
        return "no longer empty", b"x"
    if way == "cut":
        length = dice.randrange(len(whole))
        return f"cut to {length} of {len(whole)} bytes", whole[:length]
    if way == "digit":
        place = dice.choice(_digits(whole))
        digit = dice.choice([digit for digit in b"0123456789" if digit != whole[place]])
        return f"digit at {place} is now {chr(digit)}", whole[:place] + bytes([digit]) + whole[place + 1 :]
    place, bit = dice.randrange(len(whole)), dice.randrange(8)
    return f"bit {bit} of byte {place} flipped", whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]


def _digits(content: bytes) -> list[int]:
    return [place for place, byte in enumerate(content) if chr(byte).isdigit() and byte < 128]


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


def copy(scenario: Scenario, folder: Path) -> Path:
    return Path(shutil.copytree(scenario.folder, folder / scenario.name))
