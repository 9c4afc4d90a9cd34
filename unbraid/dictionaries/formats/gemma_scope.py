"""Gemma Scope: params.npz, and of its second release params.safetensors; jump-relus that subtract nothing.

    pre = x @ W_enc + b_enc        codes = relu(pre) where pre > threshold        x̂ = codes @ W_dec + b_dec

Names may begin with a small letter. The second release's skip transcoders have affine_skip_connection (d_in d_out).
The files do not say whether targets are other activations than inputs: a folder on a path with "transcoder" or "clt"
in it holds a transcoder, and so does one whose targets are wider or narrower than its inputs.
"""

from pathlib import Path

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.activations import BatchTopK, JumpRelu, Relu
from unbraid.dictionaries.formats.format import (
    Format,
    Ran,
    check_writable,
    edge,
    jump,
    make_stack,
    refuse_rule,
    without_pre_bias,
)
from unbraid.dictionaries.formats.tensors import Tensors, read_npz, read_safetensors, shape_of, take, write_npz
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError

NPZ, SAFETENSORS = "params.npz", "params.safetensors"
SKIP = "affine_skip_connection"


class GemmaScope(Format):
    """A params.npz, or the folder with one."""

    title = "Gemma Scope"
    holds = f"{NPZ} or {SAFETENSORS}, or a folder with one"
    files = (NPZ, SAFETENSORS)

    def reads(self, path: Path) -> bool:
        return _file(path) is not None

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        t = read_params(path)
        named = any(word in str(path).lower() for word in ("transcoder", "clt"))
        transcodes = named or SKIP in t or t["W_enc"].shape[0] != t["W_dec"].shape[1]
        stack = make_stack(
            t["W_enc"].T,
            t["b_enc"],
            t["W_dec"],
            t["b_dec"],
            jump(t["threshold"]),
            subtracts=False,
            transcodes=transcodes,
            skip=t.get(SKIP),
        )
        notes = ["read as a transcoder, by its path or its sizes"] if transcodes else []
        if not transcodes:
            notes = ["b_dec, which is not subtracted from inputs, is folded into the encoder's bias"]
        return stack, {"architecture": "jumprelu", "notes": notes}

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        t = {name: tensor.to(x.dtype) for name, tensor in read_params(path).items()}
        pre = x @ t["W_enc"] + t["b_enc"]
        codes = pre.relu() * (pre > t["threshold"])
        reconstruction = codes @ t["W_dec"] + t["b_dec"] + (x @ t[SKIP] if SKIP in t else 0)
        return Ran(codes, reconstruction, edge(pre, t["threshold"]))

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:  # noqa: ARG002 nothing else is kept
        check_writable(stack, self.title)
        if not isinstance(stack.activation, Relu | JumpRelu | BatchTopK):
            raise refuse_rule(stack, self.title, "jumprelu, batchtopk or relu")
        if stack.skip is not None:
            raise UserError(f"{self.title}'s {NPZ} has no skip path, and this transcoder has one; accepted: saelens")
        t, notes = without_pre_bias(stack)
        threshold = t["encoder_bias"].new_zeros(stack.d_sae) if stack.threshold is None else stack.threshold[0]
        named = {"W_enc": t["encoder"].T, "b_enc": t["encoder_bias"], "W_dec": t["decoder"], "b_dec": t["b_dec"]}
        write_npz(path / NPZ, {**named, "threshold": threshold})
        if isinstance(stack.activation, Relu):
            notes.append("relu is written as a jump-relu with thresholds of 0")
        return notes


def read_params(path: Path) -> Tensors:
    """The tensors, by the names of the first release."""
    file = _file(path)
    assert file is not None
    found = read_npz(file) if file.suffix == ".npz" else read_safetensors(file)
    tensors = {f"W{name[1:]}" if name in ("w_enc", "w_dec") else name: tensor for name, tensor in found.items()}
    (d, f), (_, o) = shape_of(file, tensors, "W_enc"), shape_of(file, tensors, "W_dec")
    shapes = {"W_enc": (d, f), "b_enc": (f,), "W_dec": (f, o), "b_dec": (o,), "threshold": (f,)}
    return take(file, tensors, shapes | ({SKIP: (d, o)} if SKIP in tensors else {}))


def _file(path: Path) -> Path | None:
    """The file of parameters, if there is one."""
    if path.is_file():
        return path if path.name in (NPZ, SAFETENSORS) or path.suffix == ".npz" else None
    return next((path / name for name in (NPZ, SAFETENSORS) if (path / name).is_file()), None)
