"""SAELens' files of a synthetic model: three in a folder, read into what a world plants, and written from it.

    synthetic_model_config.json   sizes, rates, forest, magnitudes, seed
    synthetic_model.safetensors   feature_vectors, bias, firing_probabilities, correlation_factor, correlation_diag
    hierarchy.json                the trees, node by node; absent where there are none

Magnitudes are not among the tensors: they are drawn again from the settings and the seed, as SAELens does. Rates are
read from the tensors. (SAELens 6.54 reads them too, but its copula keeps the thresholds of the rates that the settings
give. The two differ only in files whose rates were changed by hand or drawn without a seed.)
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unbraid.config import JsonDict
from unbraid.errors import Missing, UserError
from unbraid.worlds.synth.planted import Forest, Planted, folded_normal

CONFIG, WEIGHTS, HIERARCHY = "synthetic_model_config.json", "synthetic_model.safetensors", "hierarchy.json"
SCALING = "scale_children_by_parent"
UNIT = 1e-3
"""How far from 1 the length of a direction may be."""


def read_config(folder: Path) -> JsonDict:
    """The settings in a folder, with at least the sizes."""
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise Missing(
            f"{folder}: there is no SAELens synthetic model ({CONFIG} and {WEIGHTS}); accepted: a folder that "
            "`SyntheticModel.save` or `Synth.save` has written",
            folder,
        )
    config = _read_json(folder / CONFIG)
    for name in ("num_features", "hidden_dim"):
        if not isinstance(config.get(name), int) or config[name] < 1:
            raise UserError(f"{folder / CONFIG}: {name} is {config.get(name)!r:.60}; accepted: a positive whole number")
    return config


def checksum_of(folder: Path) -> str:
    """Of all three files, so that a run never goes on with another model."""
    names = [name for name in (CONFIG, WEIGHTS, HIERARCHY) if (folder / name).is_file()]
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def load(folder: Path) -> Planted:
    """What the model in a folder plants."""
    config = read_config(folder)
    n, dimensions = config["num_features"], config["hidden_dim"]
    tensors = _tensors(folder / WEIGHTS, n, dimensions)
    seed = config.get("seed")
    factors = tensors.get("correlation_factor", torch.zeros(n, 0))
    own = tensors.get("correlation_diag", torch.ones(n)).double().sqrt()
    forest = _forest(folder, n)
    mean = _magnitudes(folder, config.get("mean_firing_magnitudes", 1.0), n, seed, 2)
    if (mean[forest.scaling & (forest.sizes > 0)] <= 0).any():
        raise UserError(f"{folder}: a parent that scales its children has a mean magnitude of 0; accepted: above 0")
    return Planted(
        tensors["firing_probabilities"].double().numpy(),
        forest,
        factors.numpy(),
        own.numpy(),
        mean,
        _magnitudes(folder, config.get("std_firing_magnitudes", 0.0), n, seed, 1),
        tensors["feature_vectors"],
        tensors["bias"],
    )


def save(folder: Path, config: JsonDict, planted: Planted) -> None:
    """Write the three files, for SAELens or for `path`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "feature_vectors": planted.directions,
        "bias": planted.bias,
        "firing_probabilities": torch.from_numpy(planted.drawn).float(),
    }
    if planted.factors.shape[1]:
        own = torch.from_numpy(planted.own).double().square().float()
        tensors |= {"correlation_factor": torch.from_numpy(planted.factors), "correlation_diag": own}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    if config["hierarchy"]:
        (folder / HIERARCHY).write_text(json.dumps(_trees(planted.forest)) + "\n")


def _read_json(path: Path) -> JsonDict:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise UserError(f"{path}: {problem}; accepted: JSON as SAELens writes it") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds {type(data).__name__}; accepted: a JSON object as SAELens writes it")
    return data


def _tensors(path: Path, n: int, dimensions: int) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = {name: tensor.float() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as problem:
        raise UserError(f"{path}: {problem}; accepted: safetensors as SAELens writes them") from None
    shapes = {"feature_vectors": (n, dimensions), "bias": (dimensions,), "firing_probabilities": (n,)}
    if "correlation_factor" in tensors:
        rank = tensors["correlation_factor"].shape[-1]
        shapes |= {"correlation_factor": (n, rank), "correlation_diag": (n,)}
    for name, shape in shapes.items():
        found = tuple(tensors[name].shape) if name in tensors else None
        if found != shape or not tensors[name].isfinite().all():
            raise UserError(f"{path}: {name} has shape {found} or is not finite; accepted: finite, of shape {shape}")
    _check_values(path, tensors)
    return tensors


def _check_values(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    rates, lengths = tensors["firing_probabilities"], tensors["feature_vectors"].norm(dim=1)
    if not ((rates > 0) & (rates <= 1)).all():
        raise UserError(f"{path}: firing_probabilities reach {rates.min():g} or {rates.max():g}; accepted: in (0, 1]")
    if (lengths - 1).abs().max() > UNIT:
        raise UserError(f"{path}: feature_vectors have lengths {lengths.min():g} to {lengths.max():g}; accepted: 1")
    if "correlation_diag" in tensors and (tensors["correlation_diag"] <= 0).any():
        raise UserError(f"{path}: correlation_diag is not positive everywhere; accepted: above 0")


def _forest(folder: Path, n: int) -> Forest:
    parents, flags = np.full(n, -1), np.zeros((2, n), bool)
    if not (folder / HIERARCHY).is_file():
        return Forest(parents, *flags)
    roots = _read_json(folder / HIERARCHY).get("roots", [])
    seen: set[int] = set()
    for feature, parent, node in _nodes(folder, roots, -1):
        if not isinstance(feature, int) or not 0 <= feature < n or feature in seen:
            raise UserError(
                f"{folder / HIERARCHY}: a node has feature_index {feature!r:.60}; accepted: each of 0 to {n - 1} at "
                "most once (nodes without a feature are not read)"
            )
        seen.add(feature)
        parents[feature] = parent
        flags[:, feature] = [bool(node.get(name)) for name in ("mutually_exclusive_children", SCALING)]
    return Forest(parents, *flags)


def _nodes(folder: Path, nodes: Any, parent: int) -> Iterator[tuple[Any, int, JsonDict]]:
    """Every node with its feature and its parent's, parents first."""
    waiting = [(node, parent) for node in nodes] if isinstance(nodes, list) else [(nodes, parent)]
    while waiting:
        node, above = waiting.pop()
        if not isinstance(node, dict) or not isinstance(node.get("children", []), list):
            raise UserError(f"{folder / HIERARCHY}: a node is {node!r:.60}; accepted: an object as SAELens writes it")
        yield node.get("feature_index"), above, node
        waiting += [(child, node["feature_index"]) for child in node.get("children", [])]


def _trees(forest: Forest) -> JsonDict:
    nodes = [
        {
            "feature_index": feature,
            "mutually_exclusive_children": bool(forest.exclusive[feature]),
            SCALING: bool(forest.scaling[feature]),
            "feature_id": None,
            "children": [],
        }
        for feature in range(len(forest.parents))
    ]
    for feature, parent in enumerate(forest.parents):
        if parent >= 0:
            nodes[parent]["children"].append(nodes[feature])
    roots = np.flatnonzero((forest.parents < 0) & (forest.sizes > 0))
    return {"roots": [nodes[root] for root in roots]}


def _magnitudes(folder: Path, config: Any, n: int, seed: Any, offset: int) -> np.ndarray:
    """One number a feature, by SAELens' four laws."""
    if isinstance(config, int | float):
        return np.full(n, float(config))
    law: JsonDict = config if isinstance(config, dict) else {}
    kind, share = law.get("generator_name"), np.linspace(0, 1, n)
    try:
        if kind == "constant":
            return np.full(n, float(law.get("value", 1.0)))
        if kind == "linear":
            return law["start"] + (law["end"] - law["start"]) * share
        if kind == "exponential":
            return law["start"] * (law["end"] / law["start"]) ** share
        if kind == "folded_normal" and isinstance(seed, int):
            bounds = law.get("min_value"), law.get("max_value")
            return folded_normal(n, law.get("mean", 0.0), law.get("std", 0.1), seed + offset, *bounds).astype(float)
    except (KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{folder / CONFIG}: magnitudes {law!r:.60}: {problem}; accepted: as SAELens writes") from None
    raise UserError(
        f"{folder / CONFIG}: magnitudes are {kind!r:.60} with seed {seed!r:.30}; accepted: constant, linear, "
        "exponential, or folded_normal with a seed"
    )
