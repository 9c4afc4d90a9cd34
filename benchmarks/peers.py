"""The training steps of our neighbours, as they ship: SAELens and dictionary_learning."""

# pyright: reportMissingImports=false
# (these live in the environment that `make bench` makes)

from collections.abc import Callable, Iterator
from typing import Any

import torch

Step = Callable[[torch.Tensor], object]


def sae_lens(features: int, dimensions: int, batch: int, l1: float, rate: float) -> tuple[Any, Step]:
    """SAELens' standard architecture, and one step of its trainer."""
    from sae_lens.config import SAETrainerConfig
    from sae_lens.saes.standard_sae import StandardTrainingSAE, StandardTrainingSAEConfig
    from sae_lens.training.sae_trainer import SAETrainer

    def nothing() -> Iterator[torch.Tensor]:
        yield torch.zeros(0)

    sae = StandardTrainingSAE(StandardTrainingSAEConfig(d_in=dimensions, d_sae=features, l1_coefficient=l1))
    settings = SAETrainerConfig(
        total_training_samples=batch * 10**6, train_batch_size_samples=batch, lr=rate, lr_end=rate
    )
    trainer = SAETrainer(settings, sae, nothing())
    return sae, lambda x: trainer._train_step(sae, x)


def dictionary_learning_step(features: int, dimensions: int, l1: float, rate: float) -> Step:
    """dictionary_learning's standard trainer."""
    from dictionary_learning.trainers.standard import StandardTrainer

    trainer = StandardTrainer(10**6, dimensions, features, 0, "none", lr=rate, l1_penalty=l1, device="cpu", seed=0)
    return lambda x: trainer.update(1, x)


def dictionary_learning_topk_step(features: int, dimensions: int, k: int, rate: float) -> Step:
    """dictionary_learning's top-k trainer."""
    from dictionary_learning.trainers.top_k import TopKTrainer

    trainer = TopKTrainer(10**6, dimensions, features, k, 0, "none", lr=rate, device="cpu", seed=0)
    return lambda x: trainer.update(1, x)


def sae_lens_architecture(rule: str, features: int, dimensions: int, k: int, batch: int) -> Step:
    """One step of SAELens' trainer of the architecture that our rule is called like, at its own defaults."""
    from sae_lens import saes
    from sae_lens.config import SAETrainerConfig
    from sae_lens.training.sae_trainer import SAETrainer

    names = {
        "relu": "Standard",
        "topk": "TopK",
        "batchtopk": "BatchTopK",
        "matryoshka": "MatryoshkaBatchTopK",
        "jumprelu": "JumpReLU",
        "gated": "Gated",
    }
    settings: dict[str, Any] = {"d_in": dimensions, "d_sae": features}
    if rule in ("topk", "batchtopk", "matryoshka"):
        settings["k"] = k
    if rule == "matryoshka":
        settings["matryoshka_widths"] = [features // share for share in (16, 8, 4, 2, 1)]
    config = getattr(saes, f"{names[rule]}TrainingSAEConfig")(**settings)
    sae = getattr(saes, f"{names[rule]}TrainingSAE")(config)
    training = SAETrainerConfig(
        total_training_samples=batch * 10**6, train_batch_size_samples=batch, lr=1e-3, lr_end=1e-3
    )
    trainer = SAETrainer(training, sae, iter([torch.zeros(0)]))
    return lambda x: trainer._train_step(sae, x)


def dictionary_learning_architecture(rule: str, features: int, dimensions: int, k: int) -> Step:
    """One step of dictionary_learning's trainer of the same architecture, at its own defaults."""
    from dictionary_learning import trainers
    from dictionary_learning.trainers.gdm import GatedSAETrainer
    from dictionary_learning.trainers.jumprelu import JumpReluTrainer
    from dictionary_learning.trainers.matryoshka_batch_top_k import MatryoshkaBatchTopKTrainer

    size = {"steps": 10**6, "activation_dim": dimensions, "dict_size": features, "layer": 0, "lm_name": "none"}
    size |= {"device": "cpu", "seed": 0}
    shares = [1 / 16, 1 / 16, 1 / 8, 1 / 4, 1 / 2]
    makers: dict[str, Callable[[], Any]] = {
        "relu": lambda: trainers.StandardTrainer(**size),
        "topk": lambda: trainers.TopKTrainer(k=k, **size),
        "batchtopk": lambda: trainers.BatchTopKTrainer(k=k, **size),
        "matryoshka": lambda: MatryoshkaBatchTopKTrainer(k=k, group_fractions=shares, **size),
        "jumprelu": lambda: JumpReluTrainer(**size),
        "gated": lambda: GatedSAETrainer(**size),
    }
    trainer = makers[rule]()
    return lambda x: trainer.update(1, x)
