"""Our own folder of dictionaries: all members, every rule, exactly; what `stack.save` writes and `ub.load` reads.

    dictionary.json         size and activation rule, as the [dictionary] table of a configuration
    weights.safetensors     every tensor of the stack, the member axis first
    metadata.json           what is known of where it comes from
    language_model.json     its scores on a language model, once `unbraid evaluate` was asked for them
    checksums.json          size and SHA-256 of the files above

The folder of a stack within a run (`runs/NAME/stacks/00`) is one as well; it has normalization.safetensors beside,
which is folded into the weights, and its checksums are the run's. A run directory is read as its one stack.
"""

from dataclasses import replace
from pathlib import Path

import torch

from unbraid.activations.normalization import Normalization
from unbraid.config import JsonDict, check
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.formats.format import Format
from unbraid.dictionaries.formats.provenance import of_run, scores_of
from unbraid.dictionaries.stack import INHIBITION, Dictionary, Stack
from unbraid.errors import UserError
from unbraid.storage.checksums import is_sealed, resealing, seal, verify
from unbraid.storage.files import folder_beside, read_arrays, read_json, read_object, write_arrays, write_json
from unbraid.storage.runs import LANGUAGE_MODEL, Run

SETTINGS, WEIGHTS, METADATA = "dictionary.json", "weights.safetensors", "metadata.json"
NORMALIZATION = "normalization.safetensors"
LOCAL = ("stack_folder", "densities", "member")
"""What is known of a dictionary on this machine alone, and is not written."""
TARGET = "target."
"""What the names of a transcoder's second normalization begin with."""


class Folder(Format):
    """A folder that `stack.save` has written, a stack's folder within a run, or a run."""

    title = "unbraid"
    holds = f"a folder with {SETTINGS} and {WEIGHTS}, or a run"
    files = (SETTINGS, WEIGHTS, METADATA, "checksums.json", LANGUAGE_MODEL)

    def reads(self, path: Path) -> bool:
        return is_folder(path) or (path / "run.json").is_file()

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        if not is_folder(path):
            path = _only_stack(path)
        if is_sealed(path):
            verify(path)
        if (path / METADATA).is_file():
            known = read_object(path / METADATA)
            if (path / LANGUAGE_MODEL).is_file():
                evaluated = scores_of(read_object(path / LANGUAGE_MODEL, "settings")["settings"])
                known["scores"] = [*known.get("scores", []), *evaluated]
            return read_stack(path), known
        around = path.absolute().parent.parent
        known = of_run(Run.open(around), path) if (around / "run.json").is_file() else {}
        return read_stack(path), known

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        settings = {
            "d_sae": stack.d_sae,
            "activation": stack.activation,
            "pre_bias": stack.pre_bias is not None,
            "skip": stack.skip is not None,
            "decoder_norm": stack.decoder_norm,
        }
        write_json(path / SETTINGS, check(Dictionary, settings, str(path)).to_dict())
        write_arrays(path / WEIGHTS, {name: tensor.detach().numpy() for name, tensor in stack.tensors().items()})
        write_json(path / METADATA, {name: value for name, value in metadata.items() if name not in LOCAL})
        seal(path, {"of": "dictionary"})
        return []


def is_folder(path: Path) -> bool:
    return (path / SETTINGS).is_file() and (path / WEIGHTS).is_file()


def save(stack: Stack, path: Path) -> None:
    """Write a stack into a folder that appears whole or not at all."""
    if path.exists():
        raise UserError(f"{path} exists already; accepted: a folder that is not there yet")
    with folder_beside(path) as temporary:
        Folder().write(stack, temporary, stack.metadata)
        temporary.rename(path)


def add_file(path: Path, name: str, value: JsonDict) -> None:
    """Put another JSON file into a folder, and on its list of checksums."""
    if not is_sealed(path):
        raise UserError(f"{path} has no list of checksums; accepted: a folder that `unbraid import` has written")
    with resealing(path, name):
        write_json(path / name, value)


def read_stack(folder: Path, normalized: Path | None = None) -> Stack:
    """The dictionaries in a folder; `normalized` is where their normalization is, if elsewhere."""
    weights = {name: torch.from_numpy(array) for name, array in read_arrays(folder / WEIGHTS).items()}
    dictionary = check(Dictionary, read_json(folder / SETTINGS), str(folder / SETTINGS))
    _check_shapes(weights, dictionary, folder / WEIGHTS)
    stack = replace(Stack.of(weights, dictionary.activation), decoder_norm=dictionary.decoder_norm)
    path = (normalized or folder) / NORMALIZATION
    if not path.is_file():
        return stack
    arrays = read_arrays(path)
    of_target = {name.removeprefix(TARGET): array for name, array in arrays.items() if name.startswith(TARGET)}
    target = Normalization.from_arrays(of_target) if of_target else None
    return fold(stack, Normalization.from_arrays(arrays), target)


def _check_shapes(weights: dict[str, torch.Tensor], dictionary: Dictionary, path: Path) -> None:
    """Every tensor is there that the settings ask for, as large as they say."""
    encoder = weights.get("encoder")
    m, f, d = encoder.shape if encoder is not None and encoder.ndim == 3 else (0, 0, 0)
    rule, memory = dictionary.activation.parameters(1, 1), dictionary.activation.memory([0])
    shapes = {"encoder": (m, dictionary.d_sae, d), "encoder_bias": (m, f), **dict.fromkeys(rule, (m, f))}
    shapes |= dict.fromkeys(memory, (m,)) | ({"pre_bias": (m, d)} if dictionary.pre_bias else {})
    o = weights["decoder_bias"].shape[-1] if "decoder_bias" in weights else d
    shapes |= {"decoder": (m, f, o)} | ({"decoder_bias": (m, o)} if "decoder_bias" in weights else {})
    shapes |= {"skip": (m, d, o)} if dictionary.skip else {}
    for name, shape in shapes.items():
        found = tuple(weights[name].shape) if name in weights else None
        if found != shape or not weights[name].isfinite().all():
            raise UserError(f"{path}: {name} has shape {found} or is not finite; accepted: finite, of shape {shape}")
    if unknown := set(weights) - set(shapes) - {*INHIBITION, "sites", "pre_bias"}:
        raise UserError(f"{path} holds '{min(unknown):.60}' too; accepted: {', '.join(shapes)}")


def _only_stack(path: Path) -> Path:
    """The folder of the one stack of dictionaries of a finished run."""
    run = Run.open(path)
    run.check_finished()
    stacks = [folder for folder in run.stacks() if is_folder(folder)]
    if len(stacks) != 1:
        named = f"one of them, as {stacks[0]}" if stacks else "a run that trains some"
        raise UserError(f"{path} holds {len(stacks)} stacks of trained dictionaries; accepted: {named}")
    return stacks[0]
