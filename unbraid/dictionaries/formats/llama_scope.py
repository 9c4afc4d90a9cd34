"""Llama Scope (lm-saes of late 2024): a folder with hyperparams.json and checkpoints/final.safetensors.

    s = √d / average length of inputs      s' = the same of targets      n = lengths of decoder rows
    pre = s·x · encoder.weightᵀ + encoder.bias
    codes = pre · n / s' where it exceeds jump_relu_threshold, one for all features
    x̂ = (codes · s' / n) · decoder.weightᵀ / s' + decoder.bias / s'

After the code of that time (`SparseAutoEncoder.standardize_parameters_of_dataset_norm`,
`transform_to_unit_decoder_norm` and the initializer's state "inference"): the threshold is compared with what a
feature adds to the reconstruction, in the model's units. SAELens 6.54 leaves n out, which is the same where decoder
rows have length one.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.activations import Relu
from unbraid.dictionaries.formats.format import Format, Ran, Rule, edge, flag, jump, make_stack, whole
from unbraid.dictionaries.formats.tensors import Tensors, read_safetensors, shape_of, take
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.files import read_object

SETTINGS, WEIGHTS = "hyperparams.json", "checkpoints/final.safetensors"
EXPECTED: dict[str, tuple[object, ...]] = {
    "act_fn": ("jumprelu", "relu"),
    "norm_activation": ("dataset-wise", "inference"),
    "use_glu_encoder": (False, None),
    "apply_decoder_bias_to_pre_encoder": (False, None),
}
"""What settings must be, where they are given."""


class LlamaScope(Format):
    """A folder of Llama Scope."""

    title = "Llama Scope"
    holds = f"a folder with {SETTINGS} and {WEIGHTS}"
    files = (SETTINGS, WEIGHTS)

    def reads(self, path: Path) -> bool:
        return (path / SETTINGS).is_file() and (path / WEIGHTS).is_file()

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        settings, (scale, target_scale), t = read_folder(path)
        encoder, bias = t["encoder.weight"], t["encoder.bias"] / scale
        decoder = t["decoder.weight"].T * (scale / target_scale)
        if settings["sparsity_include_decoder_norm"]:
            lengths = decoder.norm(dim=-1).clamp_min(1e-12)
            encoder, bias, decoder = encoder * lengths[:, None], bias * lengths, decoder / lengths[:, None]
        rule = jump(torch.full_like(bias, settings["jump_relu_threshold"])) if is_jump(settings) else Rule(Relu())
        hooks = [settings.get("hook_point_in"), settings.get("hook_point_out")]
        transcodes = all(isinstance(hook, str) for hook in hooks) and hooks[0] != hooks[1]
        center = t["decoder.bias"] / target_scale
        stack = make_stack(encoder, bias, decoder, center, rule, subtracts=False, transcodes=transcodes)
        known: JsonDict = {"architecture": settings["act_fn"], "llama_scope": settings}
        sites = {"site": hooks[0], "target": hooks[1] if transcodes else None}
        known |= {name: site for name, site in sites.items() if isinstance(site, str)}
        return stack, {**known, "notes": ["average lengths of inputs and targets are folded into the weights"]}

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        settings, (scale, target_scale), tensors = read_folder(path)
        t = {name: tensor.to(x.dtype) for name, tensor in tensors.items()}
        pre = scale * x @ t["encoder.weight"].T + t["encoder.bias"]
        lengths = t["decoder.weight"].norm(dim=0) * (scale / target_scale)
        if not settings["sparsity_include_decoder_norm"]:
            lengths = torch.ones_like(lengths)
        strength, margin = pre / scale * lengths, None
        codes = strength.relu()
        if is_jump(settings):
            threshold = torch.full_like(lengths, settings["jump_relu_threshold"])
            codes, margin = codes * (strength > threshold), edge(strength, threshold)
        decoded = (codes / lengths * scale) @ t["decoder.weight"].T + t["decoder.bias"]
        return Ran(codes, decoded / target_scale, margin)


def is_jump(settings: Mapping[str, Any]) -> bool:
    return settings["act_fn"] == "jumprelu"


def read_folder(path: Path) -> tuple[JsonDict, tuple[float, float], Tensors]:
    """Settings, what inputs and targets are multiplied by, and tensors."""
    file = path / SETTINGS
    settings = read_object(file, "d_model", "act_fn")
    for name, accepted in EXPECTED.items():
        if name in settings and settings[name] not in accepted:
            known = " or ".join(str(value) for value in accepted if value is not None)
            raise UserError(f"{file}: {name} is {settings[name]!r:.40}, which weights cannot do; accepted: {known}")
    threshold = settings.get("jump_relu_threshold", 0.0)
    if not isinstance(threshold, int | float) or isinstance(threshold, bool) or not 0 <= threshold < math.inf:
        raise UserError(f"{file}: jump_relu_threshold is {threshold!r:.40}; accepted: a number of 0 or more")
    d = whole(settings, "d_model", file, 1 << 24)
    tensors = read_safetensors(path / WEIGHTS)
    f, _ = shape_of(path / WEIGHTS, tensors, "encoder.weight")
    shapes = {"encoder.weight": (f, d), "encoder.bias": (f,), "decoder.weight": (d, f)}
    shapes |= {"decoder.bias": (d,)} if flag(settings, "use_decoder_bias", file, True) else {}
    include = flag(settings, "sparsity_include_decoder_norm", file, True)
    settings = {**settings, "jump_relu_threshold": float(threshold), "sparsity_include_decoder_norm": include}
    taken = {"decoder.bias": torch.zeros(d), **take(path / WEIGHTS, tensors, shapes)}
    return settings, _scales(settings, d, file), taken


def _scales(settings: Mapping[str, Any], d: int, file: Path) -> tuple[float, float]:
    if settings.get("norm_activation", "dataset-wise") == "inference":
        return 1.0, 1.0
    norms = settings.get("dataset_average_activation_norm")
    found = [norms.get(side) for side in ("in", "out")] if isinstance(norms, dict) else [None, None]
    if not all(isinstance(norm, int | float) and 0 < norm < math.inf for norm in found):
        raise UserError(
            f"{file}: dataset_average_activation_norm is {norms!r:.60}; accepted: the average lengths in and out"
        )
    first, second = (math.sqrt(d) / norm for norm in found if norm is not None)
    return first, second
