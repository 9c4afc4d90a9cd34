"""Runs among several processes over gloo: what one process would have learned, kills, resuming with other numbers."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.dictionaries.training.test_sharded_step import RULES, B, D, trained
from unbraid.dictionaries.activations import TopK
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.stack import Dictionary
from unbraid.mesh import ALONE, Mesh
from unbraid.pipeline.executors import PROCESSES

pytestmark = pytest.mark.scale

# A small learning rate: over hundreds of steps Adam makes rounding grow in proportion to it.
CONFIG = """
[world]
dimensions = 16
n_features = 24
active = 3.0
[training]
steps = 600
batch = 64
learning_rate = 1e-4
clip = 1.0
[dictionary]
d_sae = 34
init = "unit"
pre_bias = true
activation = { kind = "topk", k = 3, auxk = { dead_after = 640 } }
[evaluation]
samples = 512
[checkpoints]
log_every = 200
every = 25
[tracking]
checks = 3
samples = 256
"""
UNBRAID = [sys.executable, "-m", "unbraid"]
FAR = 300.0
"""Seconds, at most, for what takes a few."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process, never stopped."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "config.toml").write_text(CONFIG)
    subprocess.run(
        [*UNBRAID, "run", str(folder / "config.toml"), "--runs", str(folder), "--name", "a", "-q"], check=True
    )
    return folder / "a"


def started(folder: Path, *words: str) -> subprocess.Popen:
    (folder / "config.toml").write_text(CONFIG)
    command = [*UNBRAID, "run", str(folder / "config.toml"), "--runs", str(folder), "--name", "a", "-q", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def resumed(folder: Path, *words: str) -> None:
    subprocess.run([*UNBRAID, "resume", str(folder / "a"), "-q", *words], check=True, timeout=FAR)


def wait_for(what, seconds: float = FAR):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("cache/train-stack-*/checkpoints/step-*.json"))


def followers(process: int) -> list[int]:
    """The processes that the first one has started to train with."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    spawned = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return sorted(spawned)


def is_there(process: int) -> bool:
    path = Path(f"/proc/{process}/stat")
    return path.is_file() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def the_same(folder: Path, alone: Path) -> None:
    expected, found = (load_file(run / "stacks/00/weights.safetensors") for run in (alone, folder / "a"))
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        np.testing.assert_allclose(found[name], weights, atol=1e-5, err_msg=name)
    expected, found = (load_file(run / "stacks/00/tracking.safetensors") for run in (alone, folder / "a"))
    np.testing.assert_allclose(found["best"], expected["best"], atol=1e-5)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_killed_process_stops_all_and_another_number_goes_on(tmp_path, alone, workers: int):
    process = started(tmp_path, "--workers", str(workers))
    wait_for(lambda: checkpoints(tmp_path))
    victims = followers(process.pid)
    assert len(victims) == workers - 1
    os.kill(victims[-1], signal.SIGKILL)
    _, said = process.communicate(timeout=FAR)
    assert process.returncode == 1
    assert said.count("\n") == 1
    assert (
        f"process {workers} of {workers} was killed by SIGKILL; what was saved is kept; go on with: unbraid res" in said
    )
    wait_for(lambda: not any(map(is_there, victims)), 10)
    resumed(tmp_path, "--workers", str(5 - workers))
    the_same(tmp_path, alone)


def test_when_the_first_is_killed_the_others_go_and_one_process_goes_on(tmp_path, alone):
    process = started(tmp_path, "--workers", "3")
    wait_for(lambda: checkpoints(tmp_path))
    others = followers(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(is_there, others)), 10)
    resumed(tmp_path, "--workers", "1")
    the_same(tmp_path, alone)


def test_a_signal_lets_all_finish_their_step_and_saves(tmp_path, alone):
    process = started(tmp_path, "--workers", "2")
    wait_for(lambda: checkpoints(tmp_path))
    others = followers(process.pid)
    for each in (process.pid, *others):  # as a terminal's Ctrl-C reaches all
        os.kill(each, signal.SIGINT)
    _, said = process.communicate(timeout=FAR)
    assert process.returncode == 130
    assert "and saved" in said
    assert said.count("\n") == 1
    resumed(tmp_path)
    the_same(tmp_path, alone)


def test_one_process_begins_and_three_go_on(tmp_path, alone):
    process = started(tmp_path)
    wait_for(lambda: checkpoints(tmp_path))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=FAR)
    assert process.returncode == 143
    resumed(tmp_path, "--workers", "3")
    the_same(tmp_path, alone)


def test_torchrun_with_shards_and_data_ranks(tmp_path, alone):
    (tmp_path / "config.toml").write_text(CONFIG.replace("[world]", "shards = 2\n[world]", 1))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    command = ["-m", "unbraid", "run", str(tmp_path / "config.toml"), "--runs", str(tmp_path), "--name", "a", "-q"]
    done = subprocess.run([*torchrun, *command], capture_output=True, text=True, timeout=FAR, check=False)
    assert done.returncode == 0, done.stderr
    the_same(tmp_path, alone)


def _gloo(rank: int, size: int, shards: int, init: str, answers) -> None:
    """One process: what each rule learned here, and what was sent for a step of top-k."""
    torch.set_num_threads(1)
    mesh = Mesh.join(rank, size, init).in_shards(shards) if size > 1 else ALONE
    learned = {}
    for name, dictionary in RULES.items():
        mechanisms = {"sparsity": Sparsity(weight=0.05)} if "topk" not in name else {}
        state, outputs = trained(mesh, dictionary, mechanisms)
        tensors = {key: value.numpy().copy() for key, value in state.tensors().items()}
        learned[name] = tensors, [float(output.l0.sum()) for output in outputs]
    mesh.sent.clear()
    trained(mesh, RULES["topk"], steps=1, clip=1.0)
    answers.put((rank, learned, dict(mesh.sent)))
    mesh.leave()


def gloo(size: int, shards: int, folder: Path) -> list:
    answers = PROCESSES.Queue()
    init = f"file://{folder}/meeting-{size}"
    processes = [
        PROCESSES.Process(target=_gloo, args=(rank, size, shards, init, answers), daemon=True) for rank in range(size)
    ]
    for process in processes:
        process.start()
    found = sorted((answers.get(timeout=FAR) for _ in processes), key=lambda answer: answer[0])
    for process in processes:
        process.join(FAR)
    return found


@pytest.mark.parametrize(("size", "shards"), [(1, 1), (2, 2), (3, 3), (4, 2)])
def test_every_rule_over_gloo_and_bytes_by_the_formula(tmp_path, size: int, shards: int):
    found = gloo(size, shards, tmp_path)
    for name, dictionary in RULES.items():
        mechanisms = {"sparsity": Sparsity(weight=0.05)} if "topk" not in name else {}
        expected, outputs = trained(None, dictionary, mechanisms)
        for key in ("stack.encoder", "stack.decoder", "mean.encoder", "square.decoder"):
            parts = [learned[name][0][key] for _, learned, _ in found[:shards]]
            np.testing.assert_allclose(np.concatenate(parts, 1), expected.tensors()[key], rtol=1e-4, atol=1e-5)
        for _, learned, _ in found:
            np.testing.assert_allclose(learned[name][1], [float(output.l0.sum()) for output in outputs])
    members, k, b = 2, RULES["topk"].activation.k, B * shards // size
    for rank, _, sent in found:
        own = len(range(RULES["topk"].d_sae)[Mesh(rank, shards, size // shards).features(RULES["topk"].d_sae)])
        by_hand = {"reconstruction": 4 * members * b * D, "candidates": 4 * members * b * k, "length": 8 * members}
        by_hand |= {"dead": 8 * members} if shards > 1 else {}
        by_hand |= {"report": 8 * members * 4}  # reconstruction, auxk, L0 and the largest gradient
        if size > shards:
            by_hand |= {"gradients": 4 * members * own * (2 * D + 1), "fired": 8 * members * own}
        assert sent == (by_hand if size > 1 else {})


LIMIT = 250 << 20
"""Bytes of memory that a process may have beside what it has when it begins to train."""
LARGE = Dictionary(d_sae=16384, activation=TopK(k=8, auxk=AuxK(weight=0)))
"""At 768 dimensions weights and moments are 302 MB."""


def _limited(rank: int, size: int, init: str, answers) -> None:
    """Train a step within the limit, on memory that this process does not share (`RLIMIT_DATA`)."""
    import resource

    from unbraid.dictionaries.lists import Inputs
    from unbraid.dictionaries.training.config import Training
    from unbraid.dictionaries.training.sharded_step import sharded_step
    from unbraid.dictionaries.training.step import State

    torch.set_num_threads(1)
    mesh = Mesh.join(rank, size, init).in_shards(size) if size > 1 else ALONE
    trained(mesh, RULES["topk"], steps=1)  # compiled loops, and room for what comes and goes
    used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
    resource.setrlimit(resource.RLIMIT_DATA, ((used << 10) + LIMIT, resource.RLIM_INFINITY))
    try:
        state = State.start(LARGE, 768, {}, [0], rows=mesh.features(LARGE.d_sae))
        x = torch.from_numpy(np.random.default_rng(0).standard_normal((16, 768)).astype(np.float32))
        for _ in range(2):
            output = sharded_step(state, Inputs(x), Training(), {}, LARGE.d_sae, mesh)
        answers.put((rank, float(output.l0[0])))
    except (MemoryError, RuntimeError) as problem:
        answers.put((rank, "memory" in f"{problem!r}".lower()))
    mesh.leave()


@pytest.mark.parametrize(("size", "expected"), [(1, True), (2, 8.0)], ids=["too large for one", "split in two"])
def test_a_dictionary_larger_than_a_process_may_hold(tmp_path, size: int, expected):
    answers, init = PROCESSES.Queue(), f"file://{tmp_path}/meeting"
    processes = [
        PROCESSES.Process(target=_limited, args=(rank, size, init, answers), daemon=True) for rank in range(size)
    ]
    for process in processes:
        process.start()
    assert Counter(answers.get(timeout=FAR)[1] for _ in processes) == {expected: size}
    for process in processes:
        process.join(FAR)
