"""Every device that tests of this folder run on: the CPU, one that is not there, and real ones where there are any."""

import pytest
import torch

from tests.devices.elsewhere import elsewhere
from unbraid.devices import available_devices


@pytest.fixture(params=["elsewhere", *available_devices()])
def device(request, monkeypatch):
    """The name of a device; the battery must hold on all of them."""
    if request.param != "elsewhere":
        yield request.param
        return
    with elsewhere(monkeypatch) as name:
        yield name


@pytest.fixture
def lazy(monkeypatch):
    """The device that is not there."""
    with elsewhere(monkeypatch) as name:
        yield name


@pytest.fixture
def same(device):
    """Whether two sets of tensors agree: elsewhere to the last bit, on a real device as far as float32 does.

    Not to the last bit where torch, or we, have another way for the CPU.
    """

    def check(found, expected, what="", exactly=True):
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            here = found[name].cpu()
            if name.endswith("nearest"):  # in no order
                here, tensor = here.sort().values, tensor.sort().values
            if exactly and device.startswith("lazy"):
                assert torch.equal(here, tensor), f"{what} {name}"
            else:
                torch.testing.assert_close(here, tensor, rtol=1e-3, atol=1e-4, msg=f"{what} {name}")

    return check
