"""SAEBench's sparse probing on a dictionary of ours beside our own, on the same texts: the rest of `make interop`.

A dictionary of stories15M, exported for SAELens, goes through `sae_bench.evals.sparse_probing.main.run_eval`. Held
against what we make of it: the mean codes of every text, and the accuracy of probes on 1, 2 and 5 features. Both draw
which texts of other classes stand against a class, and both are drawn anew `SEEDS` times (SAEBench's by its
`train_probe_on_activations` on its own mean codes, without the model). Means may differ by twice what one draw of
SAEBench's varies by (its standard deviation), or by one test text where nothing is drawn; one draw, what `run_eval`
gave, from their mean by three times the deviation.

What SAEBench 0.6 needs for a model and texts it does not know, all of it here:

    its names         TransformerLens loads models of a list of names: a folder's is let through
    its data sets     a function that downloads one of eight: ours gives our labelled texts, and their classes
    its shape checks  jaxtyping 0.3 takes one name of a size for the same in a function and in those it calls: off
    dependencies      of what it asks for only tabulate was not there; NumPy 2 and datasets 5 are newer than it asks
"""

# pyright: reportMissingImports=false
# (these live in the environment that `make bench` makes)

import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import unbraid as ub
from unbraid.activations.huggingface import HuggingFaceModel, load_model
from unbraid.activations.sites import find_site
from unbraid.dictionaries.formats.convert import export
from unbraid.evaluation.language_model.labelled import read_labelled
from unbraid.evaluation.language_model.probing import LabelledTexts, pool_texts
from unbraid.evaluation.language_model.sae import SAE
from unbraid.metrics.probing import Labelled, probe
from unbraid.randomness import stream

MODEL, SITE = Path("real-data/stories15M").resolve(), "blocks.3.hook_resid_post"
TEXT = "real-data/wikitext-2/train.txt"
LABELS = ("spam", "language-es", "newsgroups")
D_SAE, TOKENS, STEPS = 512, 30_000, 200
TEXTS, CONTEXT, SEEDS, KS = 600, 128, 20, (1, 2, 5)
BAR = 1e-5


def trained(folder: Path) -> ub.Stack:
    """A dictionary of stories15M's residual stream, in the units of the model.

    Of relus, whose codes do not jump: two libraries' activations differ in their last digits.
    """
    config = ub.CaptureConfig(model=str(MODEL), text=TEXT, site=SITE, tokens=TOKENS, context=CONTEXT)
    ub.capture(config, folder)
    world = ub.Activations.model_validate({"path": str(folder), "normalize": "none"})
    dictionary = ub.Dictionary(d_sae=D_SAE, pre_bias=True, firing_share=0.05, init="data")
    training = ub.Training(steps=STEPS, batch=512, learning_rate=2e-3)
    return ub.fit(world, dictionary, [ub.Sparsity(weight=0.1)], training, seeds=[0])


def split(data: LabelledTexts) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Texts by class, for training and for the test, as SAEBench has them."""

    def of_side(train: bool) -> dict[str, list[str]]:
        rows = list(zip(data.texts, data.classes, data.train, strict=True))
        return {
            name: [text for text, label, side in rows if label == number and side == train]
            for number, name in enumerate(data.names)
        }

    return of_side(True), of_side(False)


@contextmanager
def taught(sets: dict[str, LabelledTexts]) -> Iterator[None]:
    """SAEBench and TransformerLens, knowing our model and our texts."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)  # before what it would check is imported
    from sae_bench.sae_bench_utils import dataset_info, dataset_utils
    from transformer_lens import loading_from_pretrained as loading

    names, ours = loading.get_official_model_name, (MODEL.name, str(MODEL))
    classes = {name: list(data.names) for name, data in sets.items()}
    with (
        patch.object(loading, "get_official_model_name", lambda name: str(MODEL) if name in ours else names(name)),
        patch.object(dataset_utils, "get_multi_label_train_test_data", lambda name, *_: split(sets[name])),
        patch.dict(dataset_info.chosen_classes_per_dataset, classes),
        redirect_stdout(StringIO()),
        redirect_stderr(StringIO()),
    ):
        yield


def evaluated(sae: Any, sets: dict[str, LabelledTexts], folder: Path) -> dict[tuple[str, int], float]:
    """Of each data set and k the test accuracy by SAEBench's own `run_eval`."""
    from sae_bench.evals.sparse_probing.eval_config import SparseProbingEvalConfig
    from sae_bench.evals.sparse_probing.main import run_eval

    config = SparseProbingEvalConfig(
        dataset_names=list(sets),
        context_length=CONTEXT,
        llm_batch_size=32,
        llm_dtype="float32",
        model_name=MODEL.name,
        k_values=list(KS),
        lower_vram_usage=True,  # without the probe on all features, which is chosen by its accuracy on the test
    )
    found = run_eval(config, [("unbraid", sae)], "cpu", str(folder), artifacts_path=str(folder))
    details = {
        detail["dataset_name"].removesuffix("_results"): detail
        for detail in found["unbraid_custom_sae"]["eval_result_details"]
    }
    return {(name, k): details[name][f"sae_top_{k}_test_accuracy"] for name in sets for k in KS}


def pooled(sae: Any, name: str, folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """SAEBench's mean codes of the texts of each class, from the activations it has saved."""
    from sae_bench.sae_bench_utils.activation_collection import get_sae_meaned_activations

    acts = torch.load(next(folder.rglob(f"{name}_activations.pt")), weights_only=False)  # written a moment ago
    return {side: get_sae_meaned_activations(acts[side], sae, 64) for side in ("train", "test")}


def redrawn(codes: dict[str, dict[str, torch.Tensor]]) -> dict[int, list[float]]:
    """For each k SAEBench's accuracies, with every seed."""
    from sae_bench.evals.sparse_probing.probe_training import train_probe_on_activations

    accuracies: dict[int, list[float]] = {k: [] for k in KS}
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        for k in KS:
            _, by_class = train_probe_on_activations(codes["train"], codes["test"], select_top_k=k)
            accuracies[k].append(sum(by_class.values()) / len(by_class))
    return accuracies


def in_order(codes: dict[str, dict[str, torch.Tensor]], data: LabelledTexts) -> np.ndarray:
    """SAEBench's mean codes in our order of texts."""
    rows = np.zeros((len(data.texts), D_SAE), np.float32)
    for number, label in enumerate(data.names):
        for side, of_side in (("train", data.train), ("test", ~data.train)):
            rows[of_side & (data.classes == number)] = codes[side][label].detach().numpy()
    return rows


def ours(
    model: HuggingFaceModel, stack: ub.Stack, data: LabelledTexts
) -> tuple[np.ndarray, dict[int, list[float]], int]:
    """Our mean codes of each text, the accuracy for each k with every seed, and how many texts a test has."""
    order, rows = pool_texts(model, find_site(model, SITE), data, {"ours": SAE(stack)}, CONTEXT)
    labelled = Labelled(rows["ours"], data.classes[order], data.train[order])
    draws = [probe(labelled, stream(seed, "against", data.name), KS) for seed in range(SEEDS)]
    dense = np.zeros((len(data.texts), D_SAE), np.float32)
    dense[order] = rows["ours"].toarray()  # pyright: ignore[reportAttributeAccessIssue]
    tests = int((~data.train).sum())
    return dense, {k: [draw[str(k)].value for draw in draws] for k in KS}, tests


def main() -> int:
    warnings.simplefilter("ignore")
    model, met = load_model(str(MODEL)), True
    sets = {name: read_labelled(Path(f"real-data/labelled/{name}.jsonl"), TEXTS) for name in LABELS}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stack = trained(folder / "shards")
        known = {"model": str(MODEL), "site": SITE, "context": CONTEXT}
        export(stack, "saelens", folder / "sae", known)
        import sae_lens

        sae = sae_lens.SAE.load_from_disk(folder / "sae")
        with taught(sets):
            once = evaluated(sae, sets, folder / "results")
            codes = {name: pooled(sae, name, folder / "results") for name in sets}
            scores = {name: redrawn(codes[name]) for name in sets}
    print(f"{'data set':12} classes  k  run_eval  SAEBench     sd      ours     sd   apart  accepted")
    for name, data in sets.items():
        mine, accuracy, tests = ours(model, stack, data)
        for k in KS:
            first, second = np.array(scores[name][k]), np.array(accuracy[k])
            spread, apart = first.std(ddof=1), abs(first.mean() - second.mean())
            accepted = max(2 * spread, 1 / tests)
            met &= bool(max(apart, abs(once[name, k] - first.mean()) / 1.5) <= accepted)
            row = f"{once[name, k]:8.4f}  {first.mean():8.4f} {spread:6.4f}"
            row += f"  {second.mean():8.4f} {second.std(ddof=1):6.4f}"
            print(f"{name:12} {len(data.names):7} {k:2}  {row}  {apart:6.4f}  {accepted:8.4f}", flush=True)
        theirs = in_order(codes[name], data)
        difference = float(np.abs(theirs - mine).max() / np.abs(theirs).max())
        met &= difference <= BAR
        print(f"{name:12} mean codes of {len(mine)} texts differ by {difference:.1e} of the largest (≤ {BAR:.0e})")
    print("SAEBench's sparse probing and ours agree:", "met" if met else "short")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
