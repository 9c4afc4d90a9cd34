"""Whether everything works as it should on a device: steps held against the CPU's and each other's, and timed.

    there     the readable step on the device, against the readable step on the CPU
    fast      the fast ways of the device, against its readable step
    again     the fast ways once more: the same bits
    models    a training of transformers and of gauge transformers there, against the CPU
    bfloat16, float16    the reconstructions of a dictionary whose products are made so, against float32's

Two trainings are apart by the 95 % quantile of |a - b| in units of the largest |b| (of weights: of a decoder row), of
the worst of their tensors: where two numbers nearly tie for the last place, another feature may fire on another device.
"""

import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

import torch

from unbraid.axes import Tensor
from unbraid.devices import Hardware, Precision, device_names, products_in
from unbraid.dictionaries import Activation, BatchTopK, Dictionary, Gated, JumpRelu, Relu, Stack, TopK
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State, step
from unbraid.dictionaries.variational import Variational
from unbraid.members import stack_configs
from unbraid.models import Gauge, ModelTraining, Transformer
from unbraid.models.training import ModelState, train_model
from unbraid.worlds import Superposition
from unbraid.worlds.stories import Stories

RULES: dict[str, Activation] = {
    "relu": Relu(),
    "topk": TopK(k=8),
    "batchtopk": BatchTopK(k=8),
    "jumprelu": JumpRelu(threshold=0.5),
    "gated": Gated(),
    "variational": Variational(),
}
BESIDE = {
    "dynamic_pairs": "pair_orthogonality",
    "adaptive_tau": "pair_orthogonality",
    "adaptive_neighbourhoods": "lateral_inhibition",
    "momentum_importance": "correlation_pruning",
}
"""What must be on for a mechanism to do something."""
ROWS = ("stack.encoder", "stack.decoder")
"""The weights that are compared. Of others, the means of gradients: where a sum cancels, Adam divides rounding by
rounding, and one number a feature may move by the rate of it."""
SEEDS, STEPS, BATCH = (0, 1), 3, 256
WORLD = Superposition(dimensions=64, n_features=96, active=4.0)
FEATURES = 512
SAME, NEAR = 1e-4, {"bfloat16": 3e-2, "float16": 5e-3}
"""How far apart float32 may be on two devices, and other precisions from float32."""
TIMED = ((256, 4096, 2048), (768, 16384, 2048))
"""Dimensions, features and samples of the steps that are timed."""
REPEATS = 10


@dataclass(frozen=True)
class Finding:
    """One comparison: what, how far apart, and how far it may be."""

    name: str
    apart: float
    most: float

    @property
    def passes(self) -> bool:
        return self.apart <= self.most  # which what is not a number is not

    def __str__(self) -> str:
        return f"{'ok' if self.passes else 'FAILS':6}{self.name:52}{self.apart:10.1e}   at most {self.most:.0e}"


Tensors = dict[str, Tensor]


def check_device(hardware: Hardware) -> Iterator[Finding]:
    """Every comparison on this device, one after the other."""
    device = hardware.device
    for rule in RULES:
        here, there, fast, again = (
            _train(rule, "sparsity", *way) for way in (("cpu", False), (device, False), (device, True), (device, True))
        )
        yield Finding(f"{rule}: there", _apart(there, here), SAME)
        yield Finding(f"{rule}: fast", _apart(fast, there), SAME)
        yield Finding(f"{rule}: again", float(any(not torch.equal(fast[name], again[name]) for name in fast)), 0.0)
    for mechanism in (name for name, kind in MECHANISMS.items() if not kind.needs_model):
        here, fast = _train("batchtopk", mechanism, "cpu", False), _train("batchtopk", mechanism, device, True)
        yield Finding(f"{mechanism}: fast", _apart(fast, here), SAME)
    for name, settings in {"transformer": Transformer(d_model=32, heads=4, d_ff=64), "gauge": Gauge()}.items():
        yield Finding(f"models, {name}", _apart(_train_models(settings, device), _train_models(settings, "cpu")), SAME)
    for precision, most in NEAR.items():
        yield Finding(precision, _apart(_reconstruct(device, precision), _reconstruct(device, "float32")), most)


def _train(rule: str, mechanism: str, device: str, fast: bool) -> Tensors:
    """A short training's tensors, on the CPU; by the readable step, or by whatever is taken on the device."""
    names = dict.fromkeys(name for name in ("sparsity", BESIDE.get(mechanism), mechanism) if name)
    counted = RULES[rule].counts_codes
    kinds = {name: MECHANISMS[name] for name in names if counted or name != "p_annealing"}
    mechanisms = {name: stack_configs([kind()] * len(SEEDS), device) for name, kind in kinds.items()}
    training = stack_configs([Training(batch=BATCH, steps=STEPS)] * len(SEEDS), device)
    dictionary = Dictionary(d_sae=FEATURES, activation=RULES[rule], pre_bias=True)
    state = State.start(dictionary, WORLD.dimensions, mechanisms, SEEDS, hardware=Hardware(device))
    costs: Tensors = {}
    for position in range(STEPS):
        inputs = Inputs(WORLD.batch(position, BATCH).x).to(state.stack.device)
        output = advance(state, inputs, training, mechanisms) if fast else step(state, inputs.x, training, mechanisms)
        costs = {f"cost {name}": cost for name, cost in output.terms.items()}
    tensors = state.tensors()
    compared = {name: tensors[name] for name in tensors if name in ROWS or name.startswith("mean")}
    return _on_cpu({**compared, **costs})


def _train_models(settings: Transformer | Gauge, device: str) -> Tensors:
    world, training = Stories(), ModelTraining(steps=2, batch=8)
    state = ModelState.start(settings, world, SEEDS, device)
    outputs = list(train_model(state, world, training, {}))
    return _on_cpu({**state.tensors(), **{f"cost {name}": cost for name, cost in outputs[-1].terms.items()}})


@torch.no_grad()
def _reconstruct(device: str, precision: Precision | str) -> Tensors:
    narrow: Precision = "bfloat16" if precision == "bfloat16" else "float16" if precision == "float16" else "float32"
    stack = Stack.start(Dictionary(d_sae=FEATURES), WORLD.dimensions, SEEDS).to(device, narrow)
    x = WORLD.batch(0, BATCH).x
    return {"reconstruction": stack.decode(stack.encode(x))}


def _on_cpu(tensors: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor.detach().cpu().double() for name, tensor in tensors.items()}


def _apart(found: Tensors, expected: Tensors) -> float:
    units = {name: 1.0 if name.startswith("stack") else 1e-12 for name in expected}
    return max(_distance(found[name], tensor, units[name]) for name, tensor in expected.items())


def _distance(found: Tensor, expected: Tensor, least: float) -> float:
    """In units of the largest number, or of `least` where that is smaller."""
    if found.shape != expected.shape or not (found.isfinite() == expected.isfinite()).all():
        return float("inf")
    apart = torch.where(expected.isfinite(), (found - expected).abs(), 0).flatten()
    largest = torch.where(expected.isfinite(), expected.abs(), 0).max().clamp_min(least)
    return float(apart.sort().values[int(0.95 * (len(apart) - 1))] / largest) if len(apart) else 0.0


def time_steps(hardware: Hardware) -> Iterator[str]:
    """The seconds of a step of top-k beside those of one bare product of the encoder, one line a size."""
    for dimensions, features, samples in TIMED:
        x = torch.randn(samples, dimensions, generator=torch.Generator().manual_seed(0)).to(hardware.device)
        training = stack_configs([Training(batch=samples)], hardware.device)
        dictionary = Dictionary(d_sae=features, activation=TopK(k=32))
        state = State.start(dictionary, dimensions, {}, [0], hardware=hardware)
        encoder = state.stack.encoder[0].clone()
        bare = _seconds(lambda x=x, encoder=encoder: _bare(x, encoder, hardware), hardware)
        of_step = _seconds(lambda s=state, t=training, x=x: advance(s, Inputs(x), t, {}), hardware)
        size = f"d {dimensions}, f {features}, b {samples}, k 32"
        yield f"{size:36}step {of_step * 1e3:9.2f} ms   product {bare * 1e3:9.2f} ms   ratio {of_step / bare:6.2f}"


def _bare(x: Tensor, encoder: Tensor, hardware: Hardware) -> Tensor:
    with products_in(hardware.precision, x.device):
        return x @ encoder.T


def _seconds(work: object, hardware: Hardware) -> float:
    """The median of some repeats, after two that are not counted: kernels are compiled in them."""
    assert callable(work)
    times = []
    for _ in range(REPEATS + 2):
        began = time.perf_counter()
        work()
        if hardware.device.startswith("cuda"):
            torch.cuda.synchronize(hardware.device)
        elif hardware.device == "mps":
            torch.mps.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times[2:])[REPEATS // 2]


def header(hardware: Hardware) -> str:
    """What was checked, and with what, in one line."""
    triton = metadata.version("triton") if find_spec("triton") else "none"
    name = device_names().get(hardware.device, platform.processor() or platform.machine())
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in ("unbraid", "torch", "numba"))
    where = f"{hardware.device} ({name}), {hardware.precision}"
    return f"{where}; {versions}, triton {triton}, python {platform.python_version()}, {platform.platform()}"
