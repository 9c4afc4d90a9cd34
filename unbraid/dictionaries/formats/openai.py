"""OpenAI's sparse_autoencoder: a state dict in a .pt file, with the activation's name among the tensors.

    pre = (x - pre_bias) · encoder.weightᵀ + latent_bias       codes = relu(pre)
    x̂ = codes · decoder.weightᵀ + pre_bias

After `sparse_autoencoder/model.py` of that repository: with the activation TopK every input is normalized by its own
mean and deviation first, and every reconstruction brought back, which no weights can do; these files are refused.
Statistics beside the weights are passed over. A .pt file is a pickle and is read only if it is named itself.
"""

import zipfile
from pathlib import Path

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.activations import Relu
from unbraid.dictionaries.formats.format import Format, Ran, Rule, make_stack
from unbraid.dictionaries.formats.tensors import Tensors, read_pt, shape_of, take
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError

STATISTICS = ("stats_last_nonzero", "latents_activation_frequency", "latents_mean_square")
BESIDE = ("activation", "activation_state_dict", *STATISTICS)
REASONS = {
    "TopK": "each input is normalized by its own mean and deviation, which no weights can do",
    "Identity": "codes may be negative",
}


class OpenAi(Format):
    """A .pt file of OpenAI's sparse_autoencoder."""

    title = "OpenAI's sparse_autoencoder"
    holds = "a .pt file with pre_bias, encoder.weight, latent_bias and decoder.weight"

    def reads(self, path: Path) -> bool:
        return path.suffix == ".pt" and path.is_file() and b"latent_bias" in _pickle_of(path)

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        t = read_state(path)
        weights = t["encoder.weight"], t["latent_bias"], t["decoder.weight"].T, t["pre_bias"]
        return make_stack(*weights, Rule(Relu())), {"architecture": "relu", "notes": []}

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        t = {name: tensor.to(x.dtype) for name, tensor in read_state(path).items()}
        codes = ((x - t["pre_bias"]) @ t["encoder.weight"].T + t["latent_bias"]).relu()
        return Ran(codes, codes @ t["decoder.weight"].T + t["pre_bias"])


def read_state(path: Path) -> Tensors:
    state = read_pt(path)
    activation = state.get("activation", "ReLU")
    if activation != "ReLU":
        reason = REASONS.get(str(activation), "that activation is not known")
        raise UserError(f"{path}: activation is {activation!r:.40}: {reason}; accepted: ReLU")
    f, d = shape_of(path, state, "encoder.weight")
    shapes = {"pre_bias": (d,), "encoder.weight": (f, d), "latent_bias": (f,), "decoder.weight": (d, f)}
    return take(path, state, shapes, ignored=BESIDE)


def _pickle_of(path: Path) -> bytes:
    """The part of a PyTorch file that names its tensors, unread; nothing of a file that is no such archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            part = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            return archive.read(part) if archive.getinfo(part).file_size < 1 << 20 else b""
    except Exception:  # of damaged bytes zipfile and zlib raise each their own
        return b""
