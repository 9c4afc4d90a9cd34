"""The Hugging Face hub: fetch a dictionary's files by its id, and upload one with a model card."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from unbraid.config import JsonDict
from unbraid.dictionaries.formats import FORMATS
from unbraid.dictionaries.formats.convert import export_several, find_format
from unbraid.dictionaries.stack import Stack
from unbraid.errors import Missing, UserError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(/[\w.@ -]+)*")
REPOSITORY = 2
"""So many parts of an id name the repository; the rest is a folder, or a .pt file, in it."""
SHOWN = ("explained_variance", "mmcs", "phi", "l0", "dead", "loss_recovered", "ce_loss_score", "f1")
"""Scores a card begins with, where there are many."""
MOST_SCORES = 12
LONGEST = 160
"""Letters of what the hub's client says that are told."""


def is_hub_id(text: str) -> bool:
    """Whether a text may be the id of something on the hub: owner/name, or a place in such a repository."""
    return HUB_ID.fullmatch(text) is not None and ".." not in text


def fetch(hub_id: str) -> Path:
    """The local copy of a dictionary on the hub: of its folder only the files that a format has there."""
    from huggingface_hub import snapshot_download

    parts = hub_id.split("/")
    repository, place = "/".join(parts[:REPOSITORY]), "/".join(parts[REPOSITORY:])
    folder = place.rpartition("/")[0] if place.endswith(".pt") else place
    names = sorted({file for format in FORMATS.values() for file in format.files})
    wanted = [f"{folder}/{name}" if folder else name for name in names] + ([place] if place != folder else [])
    with _one_sentence(f"the hub gave no dictionary {hub_id}", "a folder here, or a repository's id as owner/name"):
        found = Path(snapshot_download(repository, allow_patterns=wanted)) / place
    if not found.exists():
        raise Missing(
            f"{repository} on the hub has no {place or 'dictionary'} that is known; accepted: a folder of it", hub_id
        )
    return found


def push(stack: Stack, repo_id: str, format: str = "unbraid", private: bool = False) -> str:
    """Upload a stack with its card: ours as a whole at the top, of another format each member in a folder.

    Returns what `ub.load` takes.
    """
    from huggingface_hub import HfApi

    find_format(format)
    if not is_hub_id(repo_id) or repo_id.count("/") != 1:
        raise UserError(f"{repo_id!r:.60} is no id of a repository on the hub; accepted: owner/name")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "dictionary"
        parts = {"": (stack, {})}
        if format != "unbraid":
            parts = {f"member-{index}": (stack.member(index), {}) for index in range(stack.members)}
        export_several(parts, format, folder)
        (folder / "README.md").write_text(model_card(stack, repo_id, format))
        with _one_sentence(f"the hub took no upload to {repo_id}", "a repository you may write to (`hf auth login`)"):
            api = HfApi()
            api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload with unbraid")
    return f"{repo_id}/{next(iter(parts))}".rstrip("/")


def model_card(stack: Stack, repo_id: str, format: str) -> str:
    """What a dictionary is, what it was trained on, how it scores, and how it is read."""
    known = stack.metadata
    kind = "transcoder" if stack.is_transcoder else "sparse autoencoder"
    library = "saelens" if format == "saelens" else "unbraid"
    several = "s" if stack.members > 1 else ""
    tags = ["sparse-autoencoder", "dictionary-learning", "mechanistic-interpretability"]
    head = ["---", f"library_name: {library}", "tags:", *(f"- {tag}" for tag in tags)]
    head += [f"base_model: {known['model']}"] if is_hub_id(str(known.get("model", ""))) else []
    rule = stack.activation.to_dict()
    facts: dict[str, object] = {
        "kind": f"{stack.members} {kind}{several}",
        "size": f"{stack.d_sae} features of {stack.d_in} dimensions",
        "rule": ", ".join(f"{name} {value}" for name, value in rule.items() if not isinstance(value, Mapping)),
        "decoder rows": "of length one" if stack.decoder_norm == "unit" else "of free lengths",
        **{name: known[key] for name, key in FACTS.items() if known.get(key) is not None},
        **_seen(known),
    }
    if isinstance(known.get("source"), dict):
        facts["converted from"] = f"{known['source'].get('format')}; {known['source'].get('check')}"
    lines = [*head, "---", "", f"# {repo_id}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    return "\n".join([*lines, *_scores(known), "", "## Use", "", "```python", *_use(repo_id, format), "```", ""])


FACTS = {
    "model": "model",
    "fingerprint of the model's weights": "model_weights",
    "site": "site",
    "target": "target",
    "world": "world",
    "text": "text",
    "longest window in tokens": "context",
    "run": "run",
}
"""What a card tells of the metadata."""


def _seen(known: JsonDict) -> dict[str, object]:
    """How much training saw: of a model's activations each sample is a token."""
    what = "tokens" if known.get("model") else "samples"
    return {f"{what} seen in training": f"{known['seen']:,}"} if isinstance(known.get("seen"), int) else {}


def _use(repo_id: str, format: str) -> list[str]:
    if format == "saelens":
        return ["from sae_lens import SAE", f'sae = SAE.from_pretrained("{repo_id}", "member-0")']
    place = "" if format == "unbraid" else "/member-0"
    return ["import unbraid as ub", f'stack = ub.load("{repo_id}{place}")']


def _scores(known: JsonDict) -> list[str]:
    """The scores of every setting, with interval and chance."""
    lines: list[str] = []
    for setting in known.get("scores", []):
        metrics = setting["metrics"]
        shown = [name for name in SHOWN if name in metrics]
        shown = [*shown, *(name for name in metrics if name not in shown)][:MOST_SCORES]
        lines += ["", f"## Scores: {setting['label']}", "", "| score | value | 95 % interval over seeds | chance |"]
        lines += ["|---|---|---|---|"]
        for name in shown:
            metric = metrics[name]
            interval = metric.get("interval")
            between = f"[{_number(interval[0])}, {_number(interval[1])}]" if interval else "–"
            lines.append(f"| {name} | {_number(metric['value'])} | {between} | {_number(metric.get('chance'))} |")
    return lines


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "–"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


@contextmanager
def _one_sentence(what: str, accepted: str) -> Iterator[None]:
    """Turn whatever the hub's client can raise into one sentence."""
    try:
        yield
    except (MemoryError, UserError):
        raise
    except Exception as problem:  # no network, no such repository, no permission: errors of four libraries
        first = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        first = first if len(first) <= LONGEST else f"{first[:LONGEST].rpartition(' ')[0]} …"
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        raise UserError(f"{what}{offline}: {first}; accepted: {accepted}") from None
