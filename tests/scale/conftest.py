"""Tests past one machine, read only where they are asked for: `make scale` installs what they need."""

import os
from pathlib import Path

import pytest

MEBIBYTE = 2**20
ROOT = Path(__file__).parents[2]
os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined


def pytest_ignore_collect(collection_path, config):
    """Not even imported by `make test`, which needs no extra."""
    return True if "not scale" in config.getoption("markexpr") else None


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch):
    """Starts a cluster of so many nodes with one processor each, beside a head with none; returns it and its nodes."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    import ray
    from ray.cluster_utils import Cluster

    started = []

    def start(number: int):
        head = {"num_cpus": 0, "object_store_memory": 80 * MEBIBYTE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        started.append(cluster)
        return cluster, [add_node(cluster) for _ in range(number)]

    yield start
    ray.shutdown()
    for cluster in started:
        cluster.shutdown()


def add_node(cluster):
    return cluster.add_node(num_cpus=1, object_store_memory=80 * MEBIBYTE)
