"""What a run knows of its dictionaries, as their metadata: model, site, tokens, seeds, scores.

run, stack_folder             its name, and the folder of the stack
members                       of each member its setting, seed and replicate
world, seen                   the kind of world, and samples seen in training
model, model_weights          whose activations it learned, and the fingerprint of that model's weights
site, target                  where; target only of a transcoder
text, context                 the text that was read, and the longest window in tokens
scores                        of each setting its metrics: value, interval over seeds, chance
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unbraid.activations.capture import ARROW
from unbraid.activations.shards import read_manifest
from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.storage.files import read_json
from unbraid.storage.runs import Run

OF_SCORES = ("value", "interval", "chance")


def of_run(run: Run, folder: Path) -> JsonDict:
    """What a finished run says of the dictionaries in one of its stacks."""
    config, members = run.config(), read_json(folder / "members.json")
    settings = {json.dumps(member["setting"]) for member in members}
    scores = scores_of([card for card in run.settings() if json.dumps(card["setting"]) in settings])
    known: JsonDict = {"run": run.name, "stack_folder": str(folder), "members": members, "scores": scores}
    return known | _of_world(config) | _of_training(config)


def scores_of(cards: Sequence[JsonDict]) -> list[JsonDict]:
    """Of settings as `scores.json` and `language_model.json` have them: label, values, intervals and chance."""
    return [
        {
            "label": card["label"],
            "metrics": {name: {key: metric.get(key) for key in OF_SCORES} for name, metric in card["metrics"].items()},
        }
        for card in cards
    ]


def _of_world(config: JsonDict) -> JsonDict:
    world = config.get("world", {})
    known: JsonDict = {"world": world.get("kind", "superposition")}
    sites = str(world.get("site", "")).split(ARROW)
    if config.get("kind") == "pipeline":
        activations = config.get("activations", {})
        sites = [str(activations.get(name, "")) for name in ("input", "target") if activations.get(name)]
    known |= {name: site for name, site in zip(("site", "target"), sites, strict=False) if site}
    if world.get("kind") == "activations":
        known["model"] = world["model"]
        with suppress(UserError):  # the shards may be gone; what they held is in the weights
            origin = read_manifest(Path(world["path"])).origin
            known |= {"model_weights": origin.weights, "text": origin.text, "context": origin.context}
    return known


def _of_training(config: JsonDict) -> JsonDict:
    training = config.get("training", {})
    steps, batch = training.get("steps"), training.get("batch")
    return {"seen": steps * batch} if isinstance(steps, int) and isinstance(batch, int) else {}
