"""sparsify (eai-sparsify): a folder with cfg.json and sae.safetensors, one for each place of a model.

    pre = (x - b_dec) · encoder.weightᵀ + encoder.bias         x itself, where it transcodes
    codes = the k largest of relu(pre)                         x̂ = codes @ W_dec + b_dec (+ x @ W_skipᵀ)

Checked against eai-sparsify 1.3. W_dec is features × dimensions, as the encoder's weight; whether decoder rows have
length one changes nothing in this formula, and b_dec is always subtracted, but in transcoders. (SAELens 6.54 reads
these files with W_dec transposed and subtracts b_dec by `normalize_decoder`.) With `multi_topk` its `forward` gives
what 4k features reconstruct, which training costs; its `encode` and `decode`, and what is read here, are of k.
"""

from pathlib import Path

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.activations import TopK
from unbraid.dictionaries.formats.format import (
    Format,
    Ran,
    Rule,
    check_writable,
    edge_of_k,
    flag,
    keep_largest,
    make_stack,
    refuse_rule,
    whole,
    without_pre_bias,
)
from unbraid.dictionaries.formats.tensors import Tensors, read_safetensors, shape_of, take, write_safetensors
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.files import read_object, write_json

CFG, WEIGHTS = "cfg.json", "sae.safetensors"
DEFAULTS: JsonDict = {"activation": "topk", "normalize_decoder": True, "k": 32, "multi_topk": False}
DEFAULTS |= {"skip_connection": False, "transcode": False}


class Sparsify(Format):
    """A folder that sparsify has written for one place of a model."""

    title = "sparsify"
    holds = f"a folder with {CFG} and {WEIGHTS}"
    files = (CFG, WEIGHTS)

    def reads(self, path: Path) -> bool:
        return (path / CFG).is_file() and (path / WEIGHTS).is_file()

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        cfg, t = read_folder(path)
        transcodes = cfg["transcode"] or cfg["skip_connection"]
        stack = make_stack(
            t["encoder.weight"],
            t["encoder.bias"],
            t["W_dec"],
            t["b_dec"],
            Rule(TopK(k=cfg["k"])),
            subtracts=not cfg["transcode"],
            transcodes=transcodes,
            skip=t["W_skip"].T if "W_skip" in t else None,
        )
        notes = ["multi_topk, a cost of training, is left out: k features fire"] if cfg["multi_topk"] else []
        return stack, {"architecture": "topk", "site": path.name, "sparsify": cfg, "notes": notes}

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        cfg, tensors = read_folder(path)
        t = {name: tensor.to(x.dtype) for name, tensor in tensors.items()}
        given = x if cfg["transcode"] else x - t["b_dec"]
        pre = (given @ t["encoder.weight"].T + t["encoder.bias"]).relu()
        codes = keep_largest(pre, cfg["k"])
        reconstruction = codes @ t["W_dec"] + t["b_dec"] + (x @ t["W_skip"].T if "W_skip" in t else 0)
        return Ran(codes, reconstruction, edge_of_k(pre, cfg["k"]))

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        check_writable(stack, self.title)
        if not isinstance(stack.activation, TopK):
            raise refuse_rule(stack, self.title, "topk")
        if stack.d_in != stack.d_out:
            raise UserError(
                f"{self.title}'s inputs and targets are as wide, and these are {stack.d_in} and {stack.d_out}; "
                "accepted: another format"
            )
        t, notes = _subtracting(stack)
        before = metadata.get("sparsify", {})
        settings = {
            **DEFAULTS,
            "expansion_factor": max(1, stack.d_sae // stack.d_in),
            **before,
            "activation": "topk",
            "normalize_decoder": stack.decoder_norm == "unit",
            "num_latents": stack.d_sae,
            "k": stack.activation.k,
            "skip_connection": stack.skip is not None,
            "transcode": stack.is_transcoder and not _centers(stack),
            "d_in": stack.d_in,
        }
        write_safetensors(path / WEIGHTS, t)
        write_json(path / CFG, settings)
        return notes


def read_folder(path: Path) -> tuple[JsonDict, Tensors]:
    """Settings with sparsify's defaults, and tensors."""
    cfg: JsonDict = {**DEFAULTS, **read_object(path / CFG, "d_in")}
    if cfg["activation"] != "topk":
        raise UserError(
            f"{path / CFG}: activation is {cfg['activation']!r:.40}, one feature of each group, which no rule of ours "
            "does; accepted: topk"
        )
    for name in ("transcode", "skip_connection", "multi_topk"):
        flag(cfg, name, path / CFG, False)
    if flag(cfg, "signed", path / CFG, False):
        raise UserError(f"{path / CFG}: signed is true: codes may be negative; accepted: codes of 0 or more")
    tensors = read_safetensors(path / WEIGHTS)
    d = whole(cfg, "d_in", path / CFG, 1 << 24)
    f, _ = shape_of(path / WEIGHTS, tensors, "encoder.weight")
    whole(cfg, "k", path / CFG, f)
    if cfg.get("num_latents") not in (None, 0, f):
        raise UserError(f"{path / CFG}: num_latents is {cfg['num_latents']!r:.40} and there are {f}; accepted: {f}")
    shapes = {"encoder.weight": (f, d), "encoder.bias": (f,), "W_dec": (f, d), "b_dec": (d,)}
    if cfg["skip_connection"]:
        shapes["W_skip"] = (d, d)
    return cfg, take(path / WEIGHTS, tensors, shapes)


def _centers(stack: Stack) -> bool:
    """Whether what is subtracted from inputs is what is added to reconstructions, as autoencoders do it."""
    return bool(stack.pre_bias is not None and stack.pre_bias.equal(stack.b_dec))


def _subtracting(stack: Stack) -> tuple[Tensors, list[str]]:
    """The tensors of a stack of one, and what was folded: a transcoder subtracts nothing, unless it is what it adds."""
    plain, notes = {name: tensor[0] for name, tensor in stack.tensors().items()}, list[str]()
    if stack.is_transcoder and not _centers(stack):
        plain, notes = without_pre_bias(stack)
    tensors = {"encoder.weight": plain["encoder"], "encoder.bias": plain["encoder_bias"]}
    tensors |= {"W_dec": plain["decoder"], "b_dec": stack.b_dec[0]}
    return tensors | ({} if stack.skip is None else {"W_skip": stack.skip[0].T}), notes
