"""Processes that talk through gloo: what they tell each other, what they learn together, and when one is lost."""

import os

import pytest
import torch

from tests.dictionaries.training.test_sharded_step import RULES, trained
from tests.killing import LAUNCHER
from unbraid.errors import Lost
from unbraid.mesh import ALONE, Mesh, part


def _one(rank: int, init: str, answers) -> None:
    torch.set_num_threads(1)
    mesh = Mesh.join(rank, 2, init).in_shards(2)
    said = mesh.command(*((4, 5) if rank == 0 else ())), mesh.tell({"a": "b"} if rank == 0 else None)
    together = (
        mesh.sum(torch.tensor([1.0, rank]), "shards", "x").tolist(),
        mesh.gather(torch.tensor(rank), "everyone", "y"),
    )
    state, _ = trained(mesh, RULES["topk auxk"], steps=4)
    sent = dict(mesh.sent)
    tensors = {name: tensor.numpy().copy() for name, tensor in state.tensors().items()}
    answers.put((rank, said, (together[0], together[1].tolist()), tensors, sent["x"], sent["y"]))
    if mesh.command()[0] == 0 and rank == 1:
        os._exit(1)
    try:
        mesh.command()
    except Lost as problem:
        answers.put(str(problem))


def test_two_processes_over_gloo(tmp_path):
    answers = LAUNCHER.Queue()
    processes = [
        LAUNCHER.Process(target=_one, args=(rank, f"file://{tmp_path}/m", answers), daemon=True) for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = sorted((answers.get(timeout=120) for _ in processes), key=lambda answer: answer[0])
    for rank, said, together, _, summed, seen in found:
        assert said == ([4, 5, 0], {"a": "b"}), rank
        assert together == ([2.0, 1.0], [0, 1])
        assert (summed, seen) == (8, 8)
    expected, _ = trained(None, RULES["topk auxk"], steps=4)
    for name, tensor in expected.tensors().items():
        parts = [torch.from_numpy(answer[3][name]) for answer in found]
        whole = torch.cat(parts, 1) if parts[0].shape != tensor.shape else parts[0]
        torch.testing.assert_close(whole, tensor, rtol=1e-4, atol=1e-5)
    assert answers.get(timeout=120) == "one of the processes that train together is gone"
    for process in processes:
        process.join()


def test_alone_nothing_is_sent():
    x = torch.ones(3)
    assert ALONE.sum(x, "shards", "x") is x
    assert ALONE.gather(x, "everyone", "x").shape == (1, 3)
    assert ALONE.command(1, 2) == [1, 2, 0]
    assert ALONE.tell("a") == "a"
    assert not ALONE.sent


@pytest.mark.parametrize(("total", "parts"), [(10, 3), (3, 3), (7, 2), (2, 3)])
def test_parts_are_all_and_even(total: int, parts: int):
    slices = [part(total, parts, index) for index in range(parts)]
    assert [number for each in slices for number in range(total)[each]] == list(range(total))
    sizes = [each.stop - each.start for each in slices]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_ranks_are_shards_within_data_ranks():
    places = [(Mesh(rank, shards=3, data=2).data_rank, Mesh(rank, shards=3, data=2).shard) for rank in range(6)]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
