"""Neuronpedia: dashboards of features as its bulk import takes them, the dictionary for SAELens beside; written only.

    MODEL/LAYER-SET/release.jsonl, model.jsonl, sourceset.jsonl, source.jsonl      a line each
    MODEL/LAYER-SET/features/batch-N.jsonl.gz                                      a line a feature
    MODEL/LAYER-SET/activations/batch-N.jsonl.gz                                   a line a text that a feature fires on
    sae/                                                                           cfg.json, sae_weights.safetensors

After `sae_dashboard/neuronpedia/neuronpedia_export.py` of jbloomAus/SAEDashboard (commit 3ea1249), which Neuronpedia's
README names; its fields are kept, those we know nothing of are empty. What features fire on comes from the feature
index of a run. Uploading needs an agreement with Neuronpedia, which gives the `creatorId` that is left empty here.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.formats.format import Format, Ran
from unbraid.dictionaries.formats.saelens import SaeLens
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.feature_index import Context, FeatureIndex, FeatureRecord
from unbraid.storage.files import write_bytes

BATCH = 512
"""Features in a file."""
LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
ALIGNED = 3
"""Dimensions of a decoder row that are told, the largest first."""
EMPTY_LISTS = ("correlated_neurons_indices", "correlated_neurons_pearson", "correlated_neurons_l1")
EMPTY_LISTS += ("correlated_features_indices", "correlated_features_pearson", "correlated_features_l1")
EMPTY_LISTS += ("logits_hist_data_bar_heights", "logits_hist_data_bar_values", "decoder_weights_dist", "vector")


class Neuronpedia(Format):
    """What Neuronpedia imports of one dictionary."""

    title = "Neuronpedia"
    holds = ""

    def reads(self, path: Path) -> bool:  # noqa: ARG002 it is only written
        return False

    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        raise UserError(
            f"{path}: dictionaries are not read from {self.title}'s files; accepted: the sae folder in them"
        )

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran:
        return SaeLens().run(path / "sae", x)

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        index, member = _index(metadata)
        names = _names(metadata)
        (path / "sae").mkdir()
        notes = SaeLens().write(stack, path / "sae", metadata)
        folder = path / str(names["model"]) / str(names["source"])
        for name, line in _cards(names, metadata).items():
            write_bytes(folder / f"{name}.jsonl", _lines([line]))
        for number, start in enumerate(range(0, stack.d_sae, BATCH)):
            some = range(start, min(start + BATCH, stack.d_sae))
            records = [index.feature(member, feature) for feature in some]
            features = [_feature(record, stack.decoder[0, record.feature], names) for record in records]
            _write_batch(folder / "features", number, features)
            _write_batch(folder / "activations", number, [line for record in records for line in _texts(record, names)])
        return notes


def _index(metadata: JsonDict) -> tuple[FeatureIndex, int]:
    """The feature index of the run that a dictionary is of, and which member it is."""
    folder, member = metadata.get("stack_folder"), metadata.get("member", 0)
    index = FeatureIndex.open(Path(folder)) if folder else None
    if index is None or member not in index.members or not index.has_tokens:
        raise UserError(
            "Neuronpedia shows the tokens that features fire on, and nothing is known of this dictionary's; accepted: "
            "a run on a model's activations"
        )
    return index, member


def _names(metadata: JsonDict) -> JsonDict:
    """What model, layer, set and source are called."""
    site, model = str(metadata.get("site", "")), str(metadata.get("model", "model")).rstrip("/").rpartition("/")[2]
    layer = LAYER.search(site)
    if layer is None:
        raise UserError(
            f"Neuronpedia asks for a layer, and the site is {site!r:.60}; accepted: one with a layer's number"
        )
    words = f"{site[layer.end() :] or 'res'} {metadata.get('run', 'unbraid')} {metadata.get('member', 0)}"
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "model": model,
        "layer": int(layer[1]),
        "set": slug,
        "source": f"{layer[1]}-{slug}",
        "hook": site,
        "created": created,
    }


def _cards(names: JsonDict, metadata: JsonDict) -> dict[str, JsonDict]:
    """One line about each: the release, the model, the set and the source."""
    by = {"creatorId": "", "createdAt": names["created"]}
    public = {"visibility": "PUBLIC", **by}
    release, model = str(metadata.get("run", names["set"])), names["model"]
    of_set = {"modelId": model, "name": names["set"], "releaseName": release, "description": release, "creatorName": ""}
    source = {"modelId": model, "setName": names["set"], "id": names["source"], "dataset": metadata.get("text")}
    return {
        "release": {"name": release, "description": release, "descriptionShort": release, "creatorName": "", **public},
        "model": {"id": model, "instruct": False, "displayNameShort": model, "displayName": model, **by},
        "sourceset": {**of_set, "hasDashboards": True, **public},
        "source": {**source, "hasDashboards": True, "hfRepoId": None, "hfFolderId": "sae", **public},
    }


def _feature(record: FeatureRecord, row: Float[Tensor, "o"], names: JsonDict) -> JsonDict:
    largest = row.abs().topk(min(ALIGNED, len(row))).indices
    shares = row.abs() / row.abs().sum().clamp_min(1e-12)
    raised = [pair for pair in record.answers if pair[1] > 0]
    lowered = [pair for pair in record.answers if pair[1] <= 0]
    return {
        "modelId": names["model"],
        "layer": names["source"],
        "index": str(record.feature),
        "creatorId": "",
        "createdAt": names["created"],
        "sourceSetName": names["set"],
        "hookName": names["hook"],
        "maxActApprox": _rounded(record.numbers.get("largest", 0.0)),
        "hasVector": False,
        "frac_nonzero": record.numbers.get("rate", 0.0),
        "topkCosSimIndices": [number for number, _ in record.neighbours],
        "topkCosSimValues": [_rounded(cosine) for _, cosine in record.neighbours],
        "neuron_alignment_indices": largest.tolist(),
        "neuron_alignment_values": [_rounded(value) for value in row[largest].tolist()],
        "neuron_alignment_l1": [_rounded(value) for value in shares[largest].tolist()],
        "pos_str": [word for word, _ in raised],
        "pos_values": [_rounded(change) for _, change in raised],
        "neg_str": [word for word, _ in lowered],
        "neg_values": [_rounded(change) for _, change in lowered],
        "freq_hist_data_bar_heights": [count for _, _, count in record.histogram],
        "freq_hist_data_bar_values": [_rounded((low + high) / 2) for low, high, _ in record.histogram],
        **{name: [] for name in EMPTY_LISTS},
    }


def _texts(record: FeatureRecord, names: JsonDict) -> Iterator[JsonDict]:
    """The texts a feature fires on most (bin -1, as SAEDashboard marks them), then those drawn evenly, by bin."""
    total = sum(count for _, _, count in record.histogram) or 1
    for context in record.contexts.get("strongest", []):
        yield _text(context, record, names, "top", (-1.0, record.numbers.get("largest", 0.0), -1.0))
    for context in record.contexts.get("even", []):
        held = [cell for cell in record.histogram if cell[0] <= context.value <= cell[1]]
        low, high, count = held[0] if held else (0.0, context.value, 0)
        yield _text(context, record, names, "even", (low, high, count / total))


def _text(context: Context, record: FeatureRecord, names: JsonDict, which: str, cell: tuple[float, ...]) -> JsonDict:
    values = [_rounded(value) for value in context.values]
    key = f"{names['model']} {names['source']} {record.feature} {which} {context.row}"
    return {
        "id": f"c{hashlib.sha256(key.encode()).hexdigest()[:24]}",
        "modelId": names["model"],
        "layer": names["source"],
        "index": str(record.feature),
        "creatorId": "",
        "createdAt": names["created"],
        "tokens": context.tokens,
        "values": values,
        "maxValue": max(values, default=0.0),
        "maxValueTokenIndex": values.index(max(values)) if values else 0,
        "minValue": min(values, default=0.0),
        "qualifyingTokenIndex": context.position,
        "binMin": _rounded(cell[0]),
        "binMax": _rounded(cell[1]),
        "binContains": _rounded(cell[2]),
        "dfaValues": [],
        "lossValues": [],
        "dataIndex": None,
        "dataSource": None,
    }


def _rounded(value: float) -> float:
    """To three places, as SAEDashboard rounds."""
    return round(value, 3)


def _lines(values: list[JsonDict]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode("utf-8", "replace")


def _write_batch(folder: Path, number: int, values: list[JsonDict]) -> None:
    write_bytes(folder / f"batch-{number}.jsonl.gz", gzip.compress(_lines(values), mtime=0))
