"""dictionary_learning: a state dict, ae.pt, with the class and the sizes in config.json beside it.

    pre = (x - b) · encoder.weightᵀ + encoder.bias             b: bias, b_dec or decoder_bias
    AutoEncoder                              codes = relu(pre)
    AutoEncoderTopK                          codes = the k largest of relu(pre); the threshold beside is not used
    BatchTopKSAE, MatryoshkaBatchTopKSAE     codes = relu(pre) where it exceeds the one threshold
    GatedAutoEncoder                         codes = relu(Wx · exp(r_mag) + mag_bias) where Wx + gate_bias > 0
    JumpReluAutoEncoder, AutoEncoderNew      pre = x @ W_enc + b_enc: nothing is subtracted
    x̂ = codes · decoder.weightᵀ + b

Checked against dictionary-learning 0.1. A .pt file is a pickle and is read only if it is named itself, with
`weights_only`. AutoEncoderTopK and BatchTopKSAE have the same tensors: only config.json tells them apart.
"""

from pathlib import Path
from typing import Any

import torch

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict, suggest
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Relu, TopK
from unbraid.dictionaries.formats.format import (
    Format,
    Ran,
    Rule,
    check_writable,
    edge,
    edge_of_k,
    jump,
    keep_largest,
    make_stack,
    refuse_rule,
    without_pre_bias,
)
from unbraid.dictionaries.formats.tensors import Tensors, read_pt, shape_of, take, write_pt
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.files import read_object, write_json

STATE, CONFIG = "ae.pt", "config.json"
LINEAR = {"encoder.weight": "encoder", "encoder.bias": "bias", "decoder.weight": "decoder"}
PARAMETERS = {"W_enc": "encoder", "b_enc": "bias", "W_dec": "decoder", "b_dec": "center"}
CLASSES: dict[str, dict[str, str]] = {
    "AutoEncoder": {"bias": "center", **LINEAR},
    "AutoEncoderNew": {"decoder.bias": "center", **LINEAR},
    "AutoEncoderTopK": {"b_dec": "center", "k": "k", "threshold": "threshold", **LINEAR},
    "BatchTopKSAE": {"b_dec": "center", "k": "k", "threshold": "threshold", **LINEAR},
    "MatryoshkaBatchTopKSAE": {**PARAMETERS, "k": "k", "threshold": "threshold", "group_sizes": "group_sizes"},
    "JumpReluAutoEncoder": {**PARAMETERS, "threshold": "thresholds"},
    "GatedAutoEncoder": {
        "decoder_bias": "center",
        "gate_bias": "bias",
        "r_mag": "gain",
        "mag_bias": "magnitude_bias",
        "encoder.weight": "encoder",
        "decoder.weight": "decoder",
    },
}
"""What is in the state dict of each class, and what we call it."""
OF_K = ("AutoEncoderTopK", "BatchTopKSAE", "MatryoshkaBatchTopKSAE")
SUBTRACT_NOTHING = ("JumpReluAutoEncoder", "AutoEncoderNew")


class DictionaryLearning(Format):
    """A file ae.pt of dictionary_learning, beside its config.json."""

    title = "dictionary_learning"
    holds = f"a file {STATE} with its {CONFIG} beside it"
    files = (CONFIG,)

    def reads(self, path: Path) -> bool:
        return path.suffix == ".pt" and path.is_file() and "trainer" in _config(path)

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        kind, t = read_state(path)
        rule = Rule(Relu())
        if kind == "AutoEncoderTopK":
            rule = Rule(TopK(k=int(t["k"])))
        elif kind in OF_K:
            rule = Rule(BatchTopK(k=int(t["k"])), memory={"threshold": t["threshold"].double()})
        elif kind == "JumpReluAutoEncoder":
            rule = jump(t["thresholds"])
        elif kind == "GatedAutoEncoder":
            rule = Rule(Gated(), {name: t[name] for name in ("gain", "magnitude_bias")})
        subtracts = kind not in SUBTRACT_NOTHING
        stack = make_stack(t["encoder"], t["bias"], t["decoder"], t["center"], rule, subtracts)
        notes = [] if subtracts else ["b_dec, which is not subtracted from inputs, is folded into the encoder's bias"]
        known = _provenance(_config(path))
        if "group_sizes" in t:
            known["dictionary_learning"]["group_sizes"] = t["group_sizes"].int().tolist()
        return stack, {**known, "architecture": kind, "notes": notes}

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        kind, state = read_state(path)
        t = {name: tensor.to(x.dtype) for name, tensor in state.items()}
        product, margin = (x if kind in SUBTRACT_NOTHING else x - t["center"]) @ t["encoder"].T, None
        pre = product + t["bias"]
        if kind == "AutoEncoderTopK":
            k = int(state["k"])
            codes, margin = keep_largest(pre, k), edge_of_k(pre, k)
        elif kind == "GatedAutoEncoder":
            codes = (pre > 0) * (t["gain"].exp() * product + t["magnitude_bias"]).relu()
            margin = pre.abs().amin(-1)
        elif kind in OF_K or kind == "JumpReluAutoEncoder":
            threshold = t["thresholds"] if kind not in OF_K else t["threshold"].expand(pre.shape[-1])
            codes, margin = pre.relu() * (pre > threshold), edge(pre, threshold)
        else:
            codes = pre.relu()
        return Ran(codes, codes @ t["decoder"] + t["center"], margin)

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        check_writable(stack, self.title)
        if stack.is_transcoder:
            raise UserError(
                f"{self.title} has autoencoders alone, and this is a transcoder; accepted: saelens or sparsify"
            )
        before = metadata.get("dictionary_learning", {})
        kind, t, notes = _state_of(stack, before.get("group_sizes"))
        names = CLASSES[kind]
        transposed = (
            "W_enc" in names
        )  # where matrices are parameters, the encoder is d f; in linear layers, the decoder
        t["encoder"], t["decoder"] = (t["encoder"].T, t["decoder"]) if transposed else (t["encoder"], t["decoder"].T)
        write_pt(path / STATE, {theirs: t[ours] for theirs, ours in names.items()})
        write_json(path / CONFIG, _config_for(stack, kind, metadata, before))
        return notes


def read_state(path: Path) -> tuple[str, Tensors]:
    """The class and its tensors by our names: the encoder f d, the decoder f o; of a folder, of its ae.pt."""
    path = path / STATE if path.is_dir() else path
    kind = str(_config(path).get("trainer", {}).get("dict_class"))
    if kind not in CLASSES:
        raise UserError(f"{path.parent / CONFIG}: dict_class is {kind!r:.40}; {suggest(kind, CLASSES)}")
    names, state = CLASSES[kind], read_pt(path)
    transposed = "W_enc" in names
    f, d = shape_of(path, state, "W_enc" if transposed else "encoder.weight")[:: -1 if transposed else 1]
    shapes: dict[str, tuple[int, ...]] = {
        "encoder": (f, d),
        "decoder": (d, f),
        "center": (d,),
        "k": (),
        "threshold": (),
    }
    if transposed:
        shapes |= {"encoder": (d, f), "decoder": (f, d)}
    groups = state.get("group_sizes")
    shapes["group_sizes"] = tuple(groups.shape) if isinstance(groups, torch.Tensor) else (0,)
    needed = {theirs: shapes.get(ours, (f,)) for theirs, ours in names.items()}
    found = take(path, state, needed, whole=("k", "group_sizes"))
    t = {ours: found[theirs] for theirs, ours in names.items()}
    t["encoder" if transposed else "decoder"] = t["encoder" if transposed else "decoder"].T
    if kind in OF_K and not 1 <= int(t["k"]) <= f:
        raise UserError(f"{path}: k is {int(t['k'])}; accepted: 1 to {f}")
    return kind, t


def _config(path: Path) -> JsonDict:
    """config.json beside a file, if it is one of dictionary_learning."""
    beside = path.parent / CONFIG
    if not beside.is_file():
        return {}
    config = read_object(beside)
    return config if isinstance(config.get("trainer"), dict) else {}


def _state_of(stack: Stack, groups: list[int] | None) -> tuple[str, Tensors, list[str]]:
    """The class that holds a stack of one, its tensors by our names, and what was folded."""
    t: dict[str, Any] = {name: tensor[0] for name, tensor in stack.tensors().items()}
    t |= {"center": stack.b_dec[0], "bias": t["encoder_bias"]}
    rule = stack.activation
    if isinstance(rule, TopK | BatchTopK):
        t["k"] = torch.tensor(rule.k, dtype=torch.int32)
        t["threshold"] = torch.tensor(float(t.get("threshold", -1.0)), dtype=torch.float32)
    match rule:
        case Relu():
            return "AutoEncoder", t, []
        case TopK():
            return "AutoEncoderTopK", t, []
        case BatchTopK() if groups is not None and sum(groups) == stack.features:
            return "MatryoshkaBatchTopKSAE", {**t, "group_sizes": torch.tensor(groups)}, []
        case BatchTopK():
            return "BatchTopKSAE", t, []
        case Gated():
            return "GatedAutoEncoder", t, []
        case JumpRelu():
            assert stack.threshold is not None
            plain, notes = without_pre_bias(stack)
            return "JumpReluAutoEncoder", {**t, "bias": plain["encoder_bias"], "thresholds": stack.threshold[0]}, notes
        case _:
            raise refuse_rule(stack, DictionaryLearning.title, "relu, topk, batchtopk, jumprelu or gated")


def _config_for(stack: Stack, kind: str, metadata: JsonDict, before: JsonDict) -> JsonDict:
    """What readers look for: class, sizes, and what SAELens' converter needs."""
    site = str(metadata.get("site", ""))
    layer = next((int(part) for part in site.split(".") if part.isdigit()), None)
    trainer = {
        "trainer_class": None,
        "lm_name": metadata.get("model", "unknown"),
        "layer": layer if layer is not None else 0,
        "submodule_name": site or None,
        "wandb_name": kind,
        **before.get("trainer", {}),
        "dict_class": kind,
        "activation_dim": stack.d_in,
        "dict_size": stack.d_sae,
    }
    if isinstance(stack.activation, TopK | BatchTopK):
        trainer["k"] = stack.activation.k
    buffer = {"d_submodule": stack.d_in, "io": "out", "ctx_len": metadata.get("context", 0), **before.get("buffer", {})}
    return {"trainer": trainer, "buffer": buffer}


def _provenance(config: JsonDict) -> JsonDict:
    trainer, buffer = config["trainer"], config.get("buffer") or {}
    known: JsonDict = {"dictionary_learning": {"trainer": trainer, "buffer": buffer}}
    if isinstance(trainer.get("lm_name"), str):
        known["model"] = trainer["lm_name"]
    if isinstance(trainer.get("layer"), int):
        known["site"] = f"blocks.{trainer['layer']}.hook_resid_post"
    if isinstance(buffer.get("ctx_len"), int) and buffer["ctx_len"]:
        known["context"] = buffer["ctx_len"]
    return known
