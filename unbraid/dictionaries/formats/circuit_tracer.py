"""circuit-tracer: transcoders of a model, one file a layer and one config.yaml; written here, not read.

    pre = x · W_encᵀ + b_enc        codes = relu(pre), or pre where it exceeds activation_function.threshold
    ŷ = codes @ W_dec + b_dec (+ x · W_skipᵀ)

After `circuit_tracer/transcoder/single_layer_transcoder.py` and `utils/hf_utils.py` of safety-research/circuit-tracer
(commit 196e2ce): layer_N.safetensors with W_enc and W_dec, both features × dimensions, and in config.yaml model_name,
model_kind, feature_input_hook, feature_output_hook and, for relu, activation. It asks for a transcoder of every layer
from 0: export each into the same folder. Its top-k keeps negative values, and ours does not: top-k is refused.
"""

import json
import re
from pathlib import Path

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.activations import BatchTopK, JumpRelu, Relu
from unbraid.dictionaries.formats.format import Format, Ran, check_writable, edge, refuse_rule, without_pre_bias
from unbraid.dictionaries.formats.tensors import read_safetensors, write_safetensors
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.files import write_bytes

CONFIG = "config.yaml"
THRESHOLD = "activation_function.threshold"
BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")


class CircuitTracer(Format):
    """A folder of transcoders, one a layer, for circuit-tracer."""

    title = "circuit-tracer"
    holds = f"a folder with {CONFIG} and layer_0.safetensors"

    def reads(self, path: Path) -> bool:  # noqa: ARG002 it is only written
        return False

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        raise UserError(f"{path}: dictionaries are not read from {self.title}'s files; accepted: another format")

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        """Of a folder with one layer."""
        file = next(path.glob("layer_*.safetensors"))
        t = {name: tensor.to(x.dtype) for name, tensor in read_safetensors(file).items()}
        pre, margin = x @ t["W_enc"].T + t["b_enc"], None
        codes = pre.relu()
        if THRESHOLD in t:
            codes, margin = pre * (pre > t[THRESHOLD]), edge(pre, t[THRESHOLD])
        predicted = codes @ t["W_dec"] + t["b_dec"]
        return Ran(codes, predicted + (x @ t["W_skip"].T if "W_skip" in t else 0), margin)

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        check_writable(stack, self.title)
        if not stack.is_transcoder or stack.d_in != stack.d_out:
            raise UserError(
                f"{self.title} puts transcoders in the place of MLPs; accepted: a transcoder as wide as its target"
            )
        if not isinstance(stack.activation, Relu | JumpRelu | BatchTopK):
            raise refuse_rule(stack, self.title, "relu, jumprelu or batchtopk")
        layer, hooks = place(metadata)
        t, notes = without_pre_bias(stack)
        tensors = {"W_enc": t["encoder"], "W_dec": t["decoder"], "b_enc": t["encoder_bias"], "b_dec": t["b_dec"]}
        if stack.threshold is not None:
            tensors[THRESHOLD] = stack.threshold[0]
        if stack.skip is not None:
            tensors["W_skip"] = stack.skip[0].T
        settings = {"model_name": metadata.get("model", "unknown"), "model_kind": "transcoder_set", **hooks}
        settings |= {} if stack.threshold is not None else {"activation": "relu"}
        write_bytes(
            path / CONFIG, "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items()).encode()
        )
        write_safetensors(path / f"layer_{layer}.safetensors", tensors)
        return notes


def place(metadata: JsonDict) -> tuple[int, JsonDict]:
    """The layer a transcoder is of, and its hooks as circuit-tracer names them."""
    found = [BLOCK.fullmatch(str(metadata.get(name, ""))) for name in ("site", "target")]
    layers = {match[1] for match in found if match}
    if not all(found) or len(layers) != 1:
        raise UserError(
            f"this transcoder goes from {metadata.get('site')!r:.60} to {metadata.get('target')!r:.60}; accepted by "
            "circuit-tracer: sites of one block, as blocks.3.hook_resid_mid and blocks.3.hook_mlp_out"
        )
    hooks = [match[2] for match in found if match]
    return int(layers.pop()), {"feature_input_hook": hooks[0], "feature_output_hook": hooks[1]}
