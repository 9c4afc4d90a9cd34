"""`unbraid selfcheck`: it passes where all is well, and fails where a device's operations or its products do not."""

import pytest
import torch

from unbraid import cli
from unbraid.devices import Hardware, available_devices
from unbraid.dictionaries import operations
from unbraid.dictionaries.operations.plain import Plain
from unbraid.pipeline import selfcheck
from unbraid.pipeline.selfcheck import check_device


@pytest.fixture(autouse=True)
def smaller(monkeypatch):
    monkeypatch.setattr(selfcheck, "FEATURES", 128)
    monkeypatch.setattr(selfcheck, "BATCH", 64)
    monkeypatch.setattr(selfcheck, "TIMED", ((8, 64, 16),))
    monkeypatch.setattr(selfcheck, "REPEATS", 2)


@pytest.fixture
def few(monkeypatch):
    """Of all that is compared, a little."""
    monkeypatch.setattr(selfcheck, "RULES", {name: selfcheck.RULES[name] for name in ("topk", "batchtopk")})
    monkeypatch.setattr(selfcheck, "MECHANISMS", {"sparsity": selfcheck.MECHANISMS["sparsity"]})


@pytest.mark.parametrize("name", available_devices())
def test_every_comparison_passes(name):
    found = list(check_device(Hardware.of(name, "float32")))
    assert [finding.name for finding in found if not finding.passes] == []
    assert len(found) == 3 * 6 + 12 + 2 + 2


def test_the_command_prints_a_report_to_paste(few, capsys):
    assert cli.guarded(lambda: cli.app(["selfcheck", "--device", "cpu"])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cpu (")
    assert lines[-1] == "all comparisons passed"
    assert "ratio" in lines[-2]


class _Wrong(Plain):
    def sort_by_feature(self, lists, gradients):
        return super().sort_by_feature(lists, 1.01 * gradients)


def test_it_fails_where_an_operation_is_wrong(few, monkeypatch, capsys):
    monkeypatch.setattr(operations, "CPU", _Wrong())
    assert cli.guarded(lambda: cli.app(["selfcheck", "--device", "cpu", "--no-timed"])) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("FAILS topk: fast") for line in lines)
    assert lines[-1].endswith("comparisons failed")


def test_it_fails_where_nothing_comes_out(few, monkeypatch):
    monkeypatch.setattr(
        selfcheck, "_reconstruct", lambda _, p: {"x": torch.tensor([1.0 if p == "float32" else torch.nan])}
    )
    found = {finding.name: finding for finding in check_device(Hardware())}
    assert not found["bfloat16"].passes


def test_a_device_that_is_not_there_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("unbraid.devices.available_devices", lambda: ["cpu"])
    assert cli.guarded(lambda: cli.app(["selfcheck", "--device", "cuda"])) == 2
    assert capsys.readouterr().err == "unbraid: the device 'cuda' is not here; accepted: auto, cpu\n"


def test_on_the_device_that_is_not_there(lazy, monkeypatch):
    """Every rule, one mechanism: the others are in `test_step.py`."""
    monkeypatch.setattr(selfcheck, "MECHANISMS", {"sparsity": selfcheck.MECHANISMS["sparsity"]})
    found = list(check_device(Hardware.of(lazy, "float32")))
    failed = [finding.name for finding in found if not finding.passes]
    assert failed == []
