"""SAELens: a folder with cfg.json and sae_weights.safetensors, the layout that most of the field reads.

    pre = (x - b_dec) @ W_enc + b_enc           where apply_b_dec_to_input, else x @ W_enc + b_enc
    standard, transcoder, skip_transcoder       codes = relu(pre)
    topk                                        codes = relu of the k largest of pre; with rescale_acts_by_decoder_norm
                                                of pre · |W_dec row|, and x̂ is of codes / |W_dec row|
    jumprelu, jumprelu_(skip_)transcoder        codes = relu(pre) where pre > threshold
    gated                                       codes = relu(x W_enc · exp(r_mag) + b_mag) where x W_enc + b_gate > 0
    x̂ = codes @ W_dec + b_dec (+ x @ W_skipᵀ)

Checked against sae-lens 6.54. What its loader trips over, and is written so here: `metadata.sae_lens_version` and
`dtype` are there; there is no tensor but its own; batch top-k and matryoshka are jump-relus with one threshold;
`rescale_acts_by_decoder_norm` is said; no scaling of inputs is left to be done. Files from before version 6 are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    flag,
    jump,
    keep_largest,
    make_stack,
    refuse_rule,
    whole,
    without_pre_bias,
)
from unbraid.dictionaries.formats.tensors import Tensors, read_safetensors, take, write_safetensors
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.files import read_object, write_json

CFG, WEIGHTS, SPARSITY, SCALER = "cfg.json", "sae_weights.safetensors", "sparsity.safetensors", "activation_scaler.json"
VERSION = "6.54.12"
"""Of SAELens, whose files these are like; without one its loader takes them for older ones."""
TRANSCODERS = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")
ARCHITECTURES = ("standard", "topk", "jumprelu", "gated", *TRANSCODERS)
REFUSED = {
    "matching_pursuit": "its codes are found by a search and by no encoder; accepted: `ub.pursue` on a dictionary",
    "temporal": "its codes depend on the tokens before; accepted: a dictionary of single tokens",
    "abstopk": "its codes may be negative; accepted: a dictionary whose codes are 0 or more",
    "batchtopk": "this is a checkpoint of training; accepted: what SAELens saves of it for use, a jumprelu",
    "matryoshka_batchtopk": "this is a checkpoint of training; accepted: what SAELens saves of it for use, a jumprelu",
}
NORMALIZES = (
    "each input is normalized by its own length, which no weights can do; accepted: normalize_activations 'none'"
)
UNFOLDED = {
    "constant_norm_rescale": NORMALIZES,
    "layer_norm": NORMALIZES,
    "covariance_whitening": "inputs were whitened by a matrix that is not in the file; accepted: one with it folded in",
    "expected_average_only_in": f"inputs were scaled by a number that is not in the file; accepted: {SCALER} beside it",
}
STRUCTURE = (
    "architecture",
    "d_in",
    "d_sae",
    "dtype",
    "device",
    "apply_b_dec_to_input",
    "activation_fn",
    "activation_fn_str",
)
STRUCTURE += ("activation_fn_kwargs", "normalize_activations", "reshape_activations", "finetuning_scaling_factor")
"""What is no metadata, in files from before version 6, which have all in one."""
NOT_KEPT = ("saelens", "source", "stack_folder", "densities", "member", "history")
"""What is not told again under our own name, or is of this machine alone."""
OF_MODEL = {"model": "model_name", "context": "context_size", "dataset": "dataset_path"}
"""What we call what SAELens' metadata say of the model."""


@dataclass(frozen=True)
class File:
    """What a folder says, with the defaults of the version that wrote it."""

    architecture: str
    subtracts: bool
    rescales: bool
    k: int
    scale: float
    """What inputs are multiplied by."""
    metadata: JsonDict
    tensors: Tensors

    @property
    def transcodes(self) -> bool:
        return self.architecture in TRANSCODERS


class SaeLens(Format):
    """A folder that SAELens has written, or can load."""

    title = "SAELens"
    holds = f"a folder with {CFG} and {WEIGHTS}"
    files = (CFG, WEIGHTS, SCALER)

    def reads(self, path: Path) -> bool:
        return (path / CFG).is_file() and (path / WEIGHTS).is_file()

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        file = read_file(path)
        t, notes = file.tensors, _notes(file)
        encoder, decoder, bias = t["W_enc"].T, t["W_dec"], t["b_gate" if file.architecture == "gated" else "b_enc"]
        if file.rescales:
            lengths = decoder.norm(dim=-1).clamp_min(1e-12)
            encoder, bias, decoder = encoder * lengths[:, None], bias * lengths, decoder / lengths[:, None]
        stack = make_stack(
            encoder * file.scale,
            bias,
            decoder / file.scale,
            t["b_dec"] / file.scale,
            _rule(file),
            subtracts=file.subtracts,
            transcodes=file.transcodes,
            skip=t["W_skip"].T if "W_skip" in t else None,
        )
        known = _provenance(file.metadata)
        sites = known.pop("sites", None)
        if isinstance(sites, list) and not stack.is_transcoder and sum(sites) == stack.d_in:
            stack = replace(stack, sites=torch.tensor([sites]))
        return stack, {**known, "architecture": file.architecture, "notes": notes}

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        file = read_file(path)
        t = {name: tensor.to(x.dtype) for name, tensor in file.tensors.items()}
        given = x * file.scale - (t["b_dec"] if file.subtracts else 0)
        product, margin = given @ t["W_enc"], None
        if file.architecture == "gated":
            gate = product + t["b_gate"]
            codes = (gate > 0) * (product * t["r_mag"].exp() + t["b_mag"]).relu()
            margin = gate.abs().amin(-1)
        elif file.architecture == "topk":
            norms = t["W_dec"].norm(dim=-1) if file.rescales else torch.ones_like(t["b_enc"])
            pre = (product + t["b_enc"]) * norms
            codes, margin = keep_largest(pre, file.k), edge_of_k(pre, file.k)
        else:
            pre = product + t["b_enc"]
            codes = pre.relu()
            if "threshold" in t:
                codes, margin = codes * (pre > t["threshold"]), edge(pre, t["threshold"])
        decoded = codes / t["W_dec"].norm(dim=-1) if file.rescales else codes
        reconstruction = (decoded @ t["W_dec"] + t["b_dec"]) / file.scale
        return Ran(codes, reconstruction + (x @ t["W_skip"].T if "W_skip" in t else 0), margin)

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        check_writable(stack, self.title)
        architecture, tensors, notes = _tensors_of(stack)
        settings: JsonDict = {
            "d_in": stack.d_in,
            "d_sae": stack.d_sae,
            "dtype": "float32",
            "device": "cpu",
            "apply_b_dec_to_input": architecture not in TRANSCODERS,
            "normalize_activations": "none",
            "reshape_activations": "none",
            "architecture": architecture,
            "metadata": _metadata_for(stack, metadata),
        }
        if isinstance(stack.activation, TopK):
            settings |= {"k": stack.activation.k, "rescale_acts_by_decoder_norm": False}
        if stack.is_transcoder:
            settings["d_out"] = stack.d_out
        write_safetensors(path / WEIGHTS, tensors)
        write_json(path / CFG, settings)
        if "densities" in metadata:
            densities = torch.tensor(metadata["densities"], dtype=torch.float32)
            write_safetensors(path / SPARSITY, {"sparsity": (densities + 1e-10).log10()})
        return notes


def read_file(path: Path) -> File:
    """Settings and tensors of a folder, of a kind that we can hold."""
    cfg = read_object(path / CFG, "d_in", "d_sae")
    nested = cfg.get("metadata")
    metadata: JsonDict = nested if isinstance(nested, dict) else {n: v for n, v in cfg.items() if n not in STRUCTURE}
    architecture, k = _architecture(cfg, path)
    tensors = read_safetensors(path / WEIGHTS)
    d, f = whole(cfg, "d_in", path / CFG, 1 << 24), whole(cfg, "d_sae", path / CFG, 1 << 28)
    o = whole(cfg, "d_out", path / CFG, 1 << 24) if architecture in TRANSCODERS else d
    factor = tensors.get("scaling_factor")
    if factor is not None and not torch.equal(factor, torch.ones_like(factor)):
        raise UserError(f"{path / WEIGHTS}: codes are scaled by scaling_factor; accepted: one of ones, or none")
    tensors = take(path / WEIGHTS, tensors, _shapes(architecture, d, f, o), ignored=("scaling_factor",))
    if architecture == "topk":
        k = whole({"k": k}, "k", path / CFG, f)
    subtracts = flag(cfg, "apply_b_dec_to_input", path / CFG, architecture not in TRANSCODERS)
    rescales = architecture == "topk" and flag(cfg, "rescale_acts_by_decoder_norm", path / CFG, False)
    scale = _scale(cfg, path)
    if architecture in TRANSCODERS and (subtracts or scale != 1):
        what = "b_dec is subtracted from inputs" if subtracts else "inputs were scaled, and nobody says how targets"
        raise UserError(f"{path / CFG}: {what}, which no transcoder of SAELens does; accepted: neither")
    return File(architecture, subtracts, rescales, k if isinstance(k, int) else 0, scale, metadata, tensors)


def _architecture(cfg: Mapping[str, Any], path: Path) -> tuple[str, object]:
    """The architecture, and k as it is given; before version 6, top-k was a standard one with another function."""
    architecture = str(cfg.get("architecture", "standard"))
    function = cfg.get("activation_fn") or cfg.get("activation_fn_str") or "relu"
    beside = cfg.get("activation_fn_kwargs")
    k = cfg.get("k", beside.get("k") if isinstance(beside, dict) else None)
    if architecture == "standard" and function == "topk":
        architecture, function = "topk", "relu"
    if architecture in REFUSED:
        raise UserError(f"{path / CFG}: architecture is '{architecture}': {REFUSED[architecture]}")
    if architecture not in ARCHITECTURES:
        raise UserError(f"{path / CFG}: architecture is {architecture!r:.40}; {suggest(architecture, ARCHITECTURES)}")
    if function not in ("relu", "topk"):
        raise UserError(f"{path / CFG}: activation_fn is {function!r:.40}; accepted: relu or topk")
    return architecture, k


def _scale(cfg: Mapping[str, Any], path: Path) -> float:
    normalizes = cfg.get("normalize_activations") or "none"
    if normalizes is True:
        normalizes = "expected_average_only_in"
    if normalizes == "none":
        return 1.0
    if normalizes == "expected_average_only_in" and (path / SCALER).is_file():
        factor = read_object(path / SCALER, "scaling_factor")["scaling_factor"]
        if isinstance(factor, int | float) and 0 < factor < 1e30:
            return float(factor)
    reason = UNFOLDED.get(str(normalizes), "accepted: 'none'")
    raise UserError(f"{path / CFG}: normalize_activations is {normalizes!r:.40}: {reason}")


def _shapes(architecture: str, d: int, f: int, o: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"W_enc": (d, f), "W_dec": (f, o), "b_dec": (o,)}
    names = ("b_gate", "b_mag", "r_mag") if architecture == "gated" else ("b_enc",)
    if "jumprelu" in architecture:
        names += ("threshold",)
    return shapes | dict.fromkeys(names, (f,)) | ({"W_skip": (o, d)} if "skip" in architecture else {})


def _rule(file: File) -> Rule:
    t = file.tensors
    if file.architecture == "gated":
        return Rule(Gated(), {"gain": t["r_mag"], "magnitude_bias": t["b_mag"]})
    if file.architecture == "topk":
        return Rule(TopK(k=file.k))
    if "threshold" not in t:
        return Rule(Relu())
    return _batch_topk(file) or jump(t["threshold"])


def _batch_topk(file: File) -> Rule | None:
    """Of a jump-relu, the batch top-k whose one threshold it has; None where it is none."""
    threshold, details = file.tensors["threshold"], file.metadata.get("training_architecture_details")
    k = details.get("k") if isinstance(details, dict) else None
    trained = str(file.metadata.get("training_architecture", "")).endswith("batchtopk")
    if not trained or not isinstance(k, int) or not 1 <= k <= len(threshold) or bool((threshold != threshold[0]).any()):
        return None
    return Rule(BatchTopK(k=k), memory={"threshold": threshold[0].double()})


def _notes(file: File) -> list[str]:
    notes = []
    if not file.subtracts and not file.transcodes:
        notes.append("b_dec, which is not subtracted from inputs, is folded into the encoder's bias")
    if file.rescales:
        notes.append("lengths of decoder rows, by which top-k weighs, are folded into the encoder")
    if file.scale != 1:
        notes.append(f"inputs scaled by {file.scale:.6g}: folded into encoder, decoder and b_dec")
    return notes


def _tensors_of(stack: Stack) -> tuple[str, Tensors, list[str]]:
    """Architecture, tensors, and what was folded."""
    skip = "skip_" if stack.skip is not None else ""
    t, notes = without_pre_bias(stack) if stack.is_transcoder else (_plain(stack), [])
    tensors = {"W_enc": t["encoder"].T, "W_dec": t["decoder"], "b_dec": t["b_dec"]}
    kind = f"{skip}transcoder" if stack.is_transcoder else "standard"
    match stack.activation:
        case Relu():
            tensors["b_enc"] = t["encoder_bias"]
        case TopK() if not stack.is_transcoder:
            kind = "topk"
            tensors["b_enc"] = t["encoder_bias"]
        case JumpRelu() | BatchTopK():
            kind = f"jumprelu_{skip}transcoder" if stack.is_transcoder else "jumprelu"
            assert stack.threshold is not None
            tensors |= {"b_enc": t["encoder_bias"], "threshold": stack.threshold[0]}
            if isinstance(stack.activation, BatchTopK):
                notes.append("batch top-k's threshold is written for every feature, as a jump-relu's")
        case Gated() if not stack.is_transcoder:
            kind = "gated"
            tensors |= {"b_gate": t["encoder_bias"], "r_mag": t["gain"], "b_mag": t["magnitude_bias"]}
        case _:
            raise refuse_rule(stack, SaeLens.title, "relu, jumprelu or batchtopk; of an autoencoder also topk or gated")
    if stack.skip is not None:
        tensors["W_skip"] = stack.skip[0].T
    return kind, tensors, notes


def _plain(stack: Stack) -> Tensors:
    return {name: tensor[0] for name, tensor in stack.tensors().items()} | {"b_dec": stack.b_dec[0]}


def _metadata_for(stack: Stack, metadata: JsonDict) -> JsonDict:
    """SAELens' own names for what we know, whatever was there before, and all we know under a name of our own."""
    before = metadata.get("saelens", {})
    named = {theirs: metadata[ours] for ours, theirs in OF_MODEL.items() if ours in metadata}
    for name, key in (("hook_name", "site"), ("hook_name_out", "target")):
        if site := metadata.get(key):
            named[name if str(site).startswith("blocks.") else name.replace("hook", "hf_hook")] = site
    kept = {name: value for name, value in metadata.items() if name not in NOT_KEPT}
    if stack.sites is not None:
        kept["sites"] = stack.sites[0].tolist()
    trained: JsonDict = {}
    if isinstance(stack.activation, BatchTopK):
        details = {"k": stack.activation.k}
        trained = {"training_architecture": "batchtopk", "training_architecture_details": details}
    versions = {"sae_lens_training_version": None, **before, "sae_lens_version": VERSION}
    return {**trained, **versions, **named, "unbraid": kept}


def _provenance(metadata: JsonDict) -> JsonDict:
    """Our names for what SAELens' metadata say; theirs are kept to be written again."""
    ours = metadata.get("unbraid")
    known: JsonDict = dict(ours) if isinstance(ours, dict) else {}
    known |= {
        name: metadata[theirs] for name, theirs in OF_MODEL.items() if isinstance(metadata.get(theirs), str | int)
    }
    for key, name in (("site", "hook_name"), ("target", "hook_name_out")):
        site = metadata.get(name) or metadata.get(name.replace("hook", "hf_hook"))
        known |= {key: site} if isinstance(site, str) else {}
    return {**known, "saelens": {name: value for name, value in metadata.items() if name != "unbraid"}}
