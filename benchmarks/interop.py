"""Dictionaries both ways between us and the libraries themselves: `make interop`, in the environment of `make bench`.

    written   a stack of ours, exported, loaded by the real library and run there
    read      a dictionary that the real library saved, loaded by `ub.load` and run here

Printed is the largest difference of codes and of reconstructions, relative to the largest of the library's, on the
same random inputs in float32. The bar is 1e-5. `python -m benchmarks.interop --golden FOLDER` keeps the libraries'
files with what they make of inputs, for tests that have no library.
"""

# pyright: reportMissingImports=false
# (these live in the environment that `make bench` makes)

import json
import shutil
import sys
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import unbraid as ub
from unbraid.dictionaries.formats.convert import export
from unbraid.errors import UserError

D_IN, D_SAE, D_OUT, K = 6, 10, 4, 3
BAR = 1e-5
SCALING = 0.37
SITES = {"model": "gpt2", "site": "blocks.0.hook_resid_mid", "target": "blocks.0.hook_mlp_out", "context": 128}
Result = tuple[torch.Tensor, torch.Tensor]
Run = Callable[[torch.Tensor], Result]


class Peer(ABC):
    """A library: how it saves a dictionary of each architecture, and how it loads and runs one."""

    format: ClassVar[str]
    ours: ClassVar[dict[str, ub.Activation]] = {}
    """What of ours is written for it, by its name of the architecture."""
    theirs: ClassVar[tuple[str, ...]] = ()
    """What it saves itself."""

    refused: ClassVar[tuple[str, ...]] = ()
    """What it saves itself and we cannot hold: `ub.load` says why."""

    @abstractmethod
    def save(self, architecture: str, folder: Path) -> Path:
        """A dictionary with random weights, as the library saves it."""

    @abstractmethod
    def load(self, path: Path, architecture: str) -> Run:
        """What the library makes of inputs."""

    def written(self, folder: Path) -> Path:
        """What it loads of an exported folder."""
        return folder


def perturb(module: torch.nn.Module) -> None:
    """Weights that hide nothing: no bias is 0, no row has length one, thresholds are positive."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape) * 0.4
            parameter.copy_(0.2 + 0.2 * noise.abs() if "threshold" in name else parameter + noise.to(parameter.dtype))


class SaeLens(Peer):
    """sae-lens."""

    format = "saelens"
    ours: ClassVar = {
        "standard": ub.Relu(),
        "topk": ub.TopK(k=K),
        "jumprelu (batchtopk)": ub.BatchTopK(k=K),
        "jumprelu": ub.JumpRelu(),
        "gated": ub.Gated(),
        "transcoder": ub.Relu(),
        "skip_transcoder": ub.Relu(),
        "jumprelu_transcoder": ub.JumpRelu(),
        "jumprelu_skip_transcoder": ub.JumpRelu(),
    }
    theirs = ("standard", "standard, b_dec not subtracted", "standard, bfloat16", "topk", "topk, rescaled", "jumprelu")
    theirs += (
        "jumprelu, b_dec not subtracted",
        "gated",
        "gated, b_dec not subtracted",
        "transcoder",
        "skip_transcoder",
    )
    theirs += ("jumprelu_transcoder", "jumprelu_skip_transcoder", "batchtopk, trained", "matryoshka, trained")
    theirs += ("standard, scaled inputs", "standard, hook_z", "standard, before 6.0", "topk, before 6.0")
    refused = ("matching_pursuit", "temporal", "abstopk", "standard, layer_norm", "standard, constant_norm_rescale")
    refused += ("standard, expected_average_only_in",)

    def save(self, architecture: str, folder: Path) -> Path:
        from sae_lens import SAE
        from sae_lens.training.activation_scaler import ActivationScaler

        kind, _, variant = architecture.partition(", ")
        if variant == "trained":
            return self._save_training(kind, folder)
        cfg = {"architecture": kind, "d_in": D_IN, "d_sae": D_SAE, "dtype": "float32", "device": "cpu"}
        cfg |= {"apply_b_dec_to_input": "transcoder" not in kind and variant != "b_dec not subtracted"}
        cfg |= {"d_out": D_OUT} if "transcoder" in kind else {}
        cfg |= {"k": K, "rescale_acts_by_decoder_norm": variant == "rescaled"} if kind in ("topk", "abstopk") else {}
        cfg |= {"normalize_activations": variant} if architecture in self.refused and variant else {}
        if kind == "temporal":
            cfg |= {"dim": D_IN, "n_heads": 1, "n_attn_layers": 1, "bottleneck_factor": 1, "kval_topk": K}
            del cfg["apply_b_dec_to_input"]
        cfg["metadata"] = {"sae_lens_version": "6.54.12", "model_name": "gpt2", "hook_name": "blocks.3.hook_resid_pre"}
        if variant == "hook_z":
            cfg["reshape_activations"] = "hook_z"
            cfg["metadata"]["hook_name"] = "blocks.3.attn.hook_z"
        sae = SAE.from_dict(cfg)
        perturb(sae)
        if variant == "bfloat16":
            sae = sae.to(dtype=torch.bfloat16)
        sae.save_model(folder)
        if variant == "scaled inputs":  # as a checkpoint of training leaves them
            self._edit(folder, normalize_activations="expected_average_only_in")
            ActivationScaler(SCALING).save(str(folder / "activation_scaler.json"))
        if variant == "before 6.0":
            legacy = {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": K}} if kind == "topk" else {}
            legacy |= {"architecture": "standard", "model_name": "gpt2", "hook_name": "blocks.3.hook_resid_pre"}
            self._edit(folder, metadata=None, k=None, rescale_acts_by_decoder_norm=None, **legacy)
        return folder

    @staticmethod
    def _edit(folder: Path, **changes: Any) -> None:
        """Other settings in cfg.json; without those that become None."""
        cfg = {**json.loads((folder / "cfg.json").read_text()), **changes}
        (folder / "cfg.json").write_text(json.dumps({name: value for name, value in cfg.items() if value is not None}))

    @staticmethod
    def _save_training(kind: str, folder: Path) -> Path:
        from sae_lens import saes

        name = {"batchtopk": "BatchTopK", "matryoshka": "MatryoshkaBatchTopK"}[kind]
        more: dict[str, Any] = {"matryoshka_widths": [4, D_SAE]} if kind == "matryoshka" else {}
        config = getattr(saes, f"{name}TrainingSAEConfig")(d_in=D_IN, d_sae=D_SAE, k=K, **more)
        sae = getattr(saes, f"{name}TrainingSAE")(config)
        perturb(sae)
        sae.topk_threshold.fill_(0.7)
        sae.save_inference_model(folder)
        return folder

    def load(self, path: Path, architecture: str) -> Run:
        from sae_lens import SAE

        sae = SAE.load_from_disk(path, dtype="float32")
        if architecture.endswith("scaled inputs"):  # which its loader leaves to the user
            sae.fold_activation_norm_scaling_factor(SCALING)
        if architecture.endswith("hook_z"):  # inputs by head
            return lambda x: (sae.encode(x.unflatten(-1, (2, -1))), sae(x.unflatten(-1, (2, -1))).flatten(-2))
        return lambda x: (sae.encode(x), sae(x))


class DictionaryLearning(Peer):
    """dictionary-learning."""

    format = "dictionary_learning"
    ours: ClassVar = {
        "AutoEncoder": ub.Relu(),
        "AutoEncoderTopK": ub.TopK(k=K),
        "BatchTopKSAE": ub.BatchTopK(k=K),
        "JumpReluAutoEncoder": ub.JumpRelu(),
        "GatedAutoEncoder": ub.Gated(),
        "MatryoshkaBatchTopKSAE": ub.BatchTopK(k=K),
    }
    theirs = (*ours, "AutoEncoderNew")

    def save(self, architecture: str, folder: Path) -> Path:
        """What `trainSAE` saves before the first step, with other weights: config.json is its own."""
        from dictionary_learning.training import trainSAE

        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            trainSAE([torch.randn(8, D_IN)], [_trainer(architecture)], steps=0, save_dir=str(folder), device="cpu")
        path = folder / "trainer_0" / "ae.pt"
        state = torch.load(path, weights_only=True)
        if architecture == "AutoEncoderNew":  # of an older version; 0.1 still has the class, and no trainer of it
            state["decoder.bias"] = state.pop("bias")
            config = json.loads((path.parent / "config.json").read_text())
            config["trainer"]["dict_class"] = architecture
            (path.parent / "config.json").write_text(json.dumps(config))
        module = _module(architecture, state)
        perturb(module)
        if architecture != "JumpReluAutoEncoder" and "threshold" in state:
            module.threshold.fill_(0.6)
        torch.save({name: tensor.cpu() for name, tensor in module.state_dict().items()}, path)
        return path

    def written(self, folder: Path) -> Path:
        return folder / "ae.pt"

    def load(self, path: Path, architecture: str) -> Run:
        from dictionary_learning.utils import load_dictionary

        if architecture in (
            "AutoEncoder",
            "AutoEncoderNew",
        ):  # whose loader scales decoder rows to length one, and codes with them
            module = _module(architecture, torch.load(path, weights_only=True))
        else:
            module, _ = load_dictionary(str(path.parent), "cpu")
        return lambda x: (module.encode(x), module(x))


def _trainer(architecture: str) -> dict[str, Any]:
    from dictionary_learning.trainers import batch_top_k, gdm, jumprelu, matryoshka_batch_top_k, standard, top_k

    common = {"activation_dim": D_IN, "dict_size": D_SAE, "steps": 4, "layer": 3, "lm_name": "EleutherAI/pythia-70m"}
    common |= {"device": "cpu", "seed": 0, "lr": 1e-3, "warmup_steps": 0, "submodule_name": "resid_post_layer_3"}
    sparsely = {"sparsity_warmup_steps": 0}
    match architecture:
        case "AutoEncoder" | "AutoEncoderNew":
            return {"trainer": standard.StandardTrainer, **common, "l1_penalty": 0.1, **sparsely}
        case "AutoEncoderTopK":
            return {"trainer": top_k.TopKTrainer, **common, "k": K}
        case "BatchTopKSAE":
            return {"trainer": batch_top_k.BatchTopKTrainer, **common, "k": K}
        case "MatryoshkaBatchTopKSAE":
            groups = {"group_fractions": [0.4, 0.6], "group_weights": [0.5, 0.5]}
            return {"trainer": matryoshka_batch_top_k.MatryoshkaBatchTopKTrainer, **common, "k": K, **groups}
        case "JumpReluAutoEncoder":
            return {
                "trainer": jumprelu.JumpReluTrainer,
                **common,
                "target_l0": 3.0,
                "sparsity_penalty": 1.0,
                **sparsely,
            }
        case _:
            return {"trainer": gdm.GatedSAETrainer, **common, "l1_penalty": 0.1, **sparsely}


def _module(architecture: str, state: dict[str, torch.Tensor]) -> Any:
    from dictionary_learning import utils

    kind = getattr(utils, architecture)
    more = [int(state["k"])] if "k" in state else []
    more += [state["group_sizes"].tolist()] if "group_sizes" in state else []
    module = kind(D_IN, D_SAE, *more)
    module.load_state_dict(state)
    return module


class Sparsify(Peer):
    """eai-sparsify."""

    format = "sparsify"
    ours: ClassVar = {"topk": ub.TopK(k=K), "transcode": ub.TopK(k=K), "transcode, skip": ub.TopK(k=K)}
    theirs = ("topk", "topk, free rows", "topk, multi_topk", "topk, skip", "transcode", "transcode, skip")
    refused = ("groupmax",)

    def save(self, architecture: str, folder: Path) -> Path:
        with redirect_stdout(StringIO()):
            from sparsify import SparseCoder, SparseCoderConfig
        config = SparseCoderConfig(
            num_latents=D_SAE,
            k=2 if "multi_topk" in architecture else K,  # whose forward also wants four times as many
            skip_connection="skip" in architecture,
            transcode="transcode" in architecture,
            multi_topk="multi_topk" in architecture,
            normalize_decoder="free" not in architecture,
            activation="groupmax" if architecture == "groupmax" else "topk",
        )
        coder = SparseCoder(D_IN, config)
        perturb(coder)
        if config.normalize_decoder:
            coder.set_decoder_norm_to_unit_norm()
        coder.save_to_disk(folder)
        return folder

    def load(self, path: Path, architecture: str) -> Run:
        with redirect_stdout(StringIO()):
            from sparsify import SparseCoder
        coder = SparseCoder.load_from_disk(path)

        def run(x: torch.Tensor) -> Result:
            top = coder.encode(x)
            codes = torch.zeros(len(x), coder.num_latents).scatter(-1, top.top_indices, top.top_acts)
            if coder.cfg.multi_topk:  # forward gives what four times as many features reconstruct
                return codes, coder.decode(top.top_acts, top.top_indices)
            return codes, coder(x).sae_out

        return run


class GemmaScope(Peer):
    """params.npz of Gemma Scope, and params.safetensors of its second release, by SAELens' loaders."""

    format = "gemma_scope"
    ours: ClassVar = {
        "jumprelu": ub.JumpRelu(),
        "jumprelu (batchtopk)": ub.BatchTopK(k=K),
        "jumprelu (relu)": ub.Relu(),
        "transcoder": ub.JumpRelu(),
    }
    theirs = ("jumprelu", "transcoder", "second release, transcoder, affine")

    def save(self, architecture: str, folder: Path) -> Path:
        o = D_IN if architecture == "jumprelu" else D_OUT
        tensors = {"W_enc": torch.randn(D_IN, D_SAE), "W_dec": torch.randn(D_SAE, o), "b_enc": torch.randn(D_SAE)}
        tensors |= {"b_dec": torch.randn(o), "threshold": torch.rand(D_SAE) + 0.1}
        if architecture.startswith("second"):
            small = {name.replace("W_", "w_"): tensor for name, tensor in tensors.items()}
            save_file({**small, "affine_skip_connection": torch.randn(D_IN, o)}, folder / "params.safetensors")
        else:
            np.savez(folder / "params.npz", **{name: tensor.numpy() for name, tensor in tensors.items()})  # pyright: ignore
        return folder

    def load(self, path: Path, architecture: str) -> Run:
        from sae_lens.loading import pretrained_sae_loaders as loaders

        small = {"device": "cpu", "cfg_overrides": {"d_in": D_IN, "d_sae": D_SAE}}
        if architecture.startswith("second"):
            shapes = {name: list(t.shape) for name, t in load_file(path / "params.safetensors").items()}
            loaders.get_safetensors_tensor_shapes = lambda *_: shapes
            repo, place = "google/gemma-scope-2-1b-pt", "transcoder/layer_3_affine"
            small, affine = {**small, "cfg_overrides": {}}, {"affine_connection": True}
            found = _from_hub(loaders.gemma_3_sae_huggingface_loader, path, repo, place, small, **affine)
        elif architecture == "transcoder":
            small["cfg_overrides"]["d_out"] = D_OUT
            loader = loaders.gemma_2_transcoder_huggingface_loader
            found = _from_hub(loader, path, "google/gemma-scope-2b-pt-transcoders", "layer_3/width_16k", small)
        else:
            loader = loaders.gemma_2_sae_huggingface_loader
            found = _from_hub(loader, path, "google/gemma-scope-2b-pt-res", "layer_3/width_16k", small)
        return _run_sae(*found)


class LlamaScope(Peer):
    """A folder of Llama Scope, by SAELens' loader; decoder rows of length one, which it takes for granted."""

    format = "llama_scope"
    theirs = ("jumprelu",)

    def save(self, architecture: str, folder: Path) -> Path:
        rows = torch.nn.functional.normalize(torch.randn(D_SAE, D_IN), dim=-1)
        tensors = {"encoder.weight": torch.randn(D_SAE, D_IN), "encoder.bias": torch.randn(D_SAE)}
        tensors |= {"decoder.weight": rows.T.contiguous(), "decoder.bias": torch.randn(D_IN)}
        (folder / "checkpoints").mkdir()
        save_file(tensors, folder / "checkpoints" / "final.safetensors")
        settings = {"d_model": D_IN, "d_sae": D_SAE, "act_fn": "jumprelu", "jump_relu_threshold": 0.4}
        settings |= {"dataset_average_activation_norm": {"in": 5.5, "out": 5.5}, "norm_activation": "dataset-wise"}
        settings |= {"hook_point_in": "blocks.3.hook_resid_post", "hook_point_out": "blocks.3.hook_resid_post"}
        settings |= {"sparsity_include_decoder_norm": True, "use_decoder_bias": True, "top_k": 50}
        settings |= {"apply_decoder_bias_to_pre_encoder": False, "use_glu_encoder": False}
        (folder / "hyperparams.json").write_text(json.dumps(settings))
        return folder

    def load(self, path: Path, architecture: str) -> Run:
        """SAELens' codes are in units of normalized inputs; with the lengths of its decoder rows they are ours."""
        from sae_lens.loading import pretrained_sae_loaders as loaders

        small = {"device": "cpu", "cfg_overrides": {"dtype": "float32"}}
        cfg, state = _from_hub(
            loaders.llama_scope_sae_huggingface_loader, path, "fnlp/Llama3_1-8B-Base-LXR-8x", "x", small
        )
        sae = _sae(cfg, state)
        norm = json.loads((path / "hyperparams.json").read_text())["dataset_average_activation_norm"]["in"]
        sae.fold_activation_norm_scaling_factor(D_IN**0.5 / norm)
        return lambda x: (sae.encode(x) * sae.W_dec.norm(dim=-1), sae(x))


class CircuitTracer(Peer):
    """circuit-tracer."""

    format = "circuit_tracer"
    ours: ClassVar = {
        "relu": ub.Relu(),
        "relu, skip": ub.Relu(),
        "jumprelu": ub.JumpRelu(),
        "jumprelu (batchtopk), skip": ub.BatchTopK(k=K),
    }

    def save(self, architecture: str, folder: Path) -> Path:
        raise NotImplementedError("dictionaries are not read from there")

    def load(self, path: Path, architecture: str) -> Run:
        """By its own reader of config.yaml, with the files here in the place of those on the hub."""
        import yaml
        from huggingface_hub import constants

        with patch.object(constants, "HF_HUB_ENABLE_HF_TRANSFER", False, create=True):  # which version 2 has no more
            from circuit_tracer.utils.hf_utils import load_transcoders

        config = yaml.safe_load((path / "config.yaml").read_text())
        config |= {"transcoders": [str(path / "layer_0.safetensors")], "scan": "ours"}
        transcoders: Any = load_transcoders(config, torch.device("cpu"), lazy_decoder=False)
        assert (transcoders.feature_input_hook, transcoders.feature_output_hook) == ("hook_resid_mid", "hook_mlp_out")
        transcoder = transcoders[0]
        return lambda x: (transcoder.encode(x), transcoder(x))


class OpenAi(Peer):
    """OpenAI's sparse_autoencoder, which is on no registry: its layout and formula as its model.py describes them."""

    format = "openai"
    theirs = ("ReLU",)
    refused = ("TopK",)

    def save(self, architecture: str, folder: Path) -> Path:
        state: dict[str, Any] = {"pre_bias": torch.randn(D_IN), "latent_bias": torch.randn(D_SAE)}
        state |= {"encoder.weight": torch.randn(D_SAE, D_IN), "decoder.weight": torch.randn(D_IN, D_SAE)}
        state |= {"stats_last_nonzero": torch.zeros(D_SAE, dtype=torch.long), "activation": architecture}
        state |= {"activation_state_dict": {"k": torch.tensor(K)} if architecture == "TopK" else {}}
        torch.save(state, folder / "autoencoder.pt")
        return folder / "autoencoder.pt"

    def load(self, path: Path, architecture: str) -> Run:
        state = torch.load(path, weights_only=True)
        encoder, decoder = torch.nn.Linear(D_IN, D_SAE), torch.nn.Linear(D_SAE, D_IN)
        encoder.load_state_dict({"weight": state["encoder.weight"], "bias": state["latent_bias"]})
        decoder.load_state_dict({"weight": state["decoder.weight"], "bias": state["pre_bias"]})

        def run(x: torch.Tensor) -> Result:
            codes = torch.relu(encoder(x - state["pre_bias"]))
            return codes, decoder(codes)

        return run


def _from_hub(loader: Any, folder: Path, repo: str, place: str, more: dict[str, Any], **config: Any) -> tuple[Any, Any]:
    """What one of SAELens' loaders makes of a folder here in the place of one on the hub."""
    from sae_lens.loading import pretrained_sae_loaders as loaders

    def download(repo_id: str, filename: str, subfolder: str | None = None, **_: Any) -> str:
        name = filename if subfolder is None else f"{subfolder}/{filename}"
        path = folder / name.removeprefix(f"{place}/")
        if path.name == "config.json":
            path.write_text(json.dumps({"architecture": "jump_relu", "model_name": "gemma-v3-1b-pt", **config}))
        return str(path)

    kept, loaders.hf_hub_download = loaders.hf_hub_download, download
    try:
        cfg, state, _ = loader(repo_id=repo, folder_name=place, force_download=False, **more)
    finally:
        loaders.hf_hub_download = kept
    return cfg, state


def _sae(cfg: Any, state: Any) -> Any:
    from sae_lens import SAE
    from sae_lens.loading.pretrained_sae_loaders import handle_config_defaulting

    sae = SAE.from_dict(handle_config_defaulting(cfg))
    sae.load_state_dict(state)
    return sae


def _run_sae(cfg: Any, state: Any) -> Run:
    sae = _sae(cfg, state)
    return lambda x: (sae.encode(x), sae(x))


PEERS: tuple[Peer, ...] = (
    *(SaeLens(), DictionaryLearning(), Sparsify(), GemmaScope(), LlamaScope(), OpenAi(), CircuitTracer()),
)


def our_stack(peer: Peer, architecture: str) -> ub.Stack:
    """One of ours for an architecture of theirs, with random weights everywhere."""
    rule = peer.ours[architecture]
    transcodes = "transcode" in architecture or peer.format == "circuit_tracer"
    stack = ub.Stack.start(ub.Dictionary(d_sae=D_SAE, activation=rule, pre_bias=True), D_IN, seeds=[0])
    for tensor in stack.tensors().values():
        if tensor.dtype == torch.float32:
            tensor += 0.3 * torch.randn(tensor.shape)
    if "threshold" in stack.memory:
        stack.memory["threshold"][:] = 0.6
    if not transcodes:
        stack.normalize()
        groups = {"dictionary_learning": {"group_sizes": [4, D_SAE - 4]}} if "Matryoshka" in architecture else {}
        return replace(stack, metadata={**SITES, **groups})
    o = D_OUT if peer.format in ("saelens", "gemma_scope") else D_IN
    skip = torch.randn(1, D_IN, o) if "skip" in architecture else None
    weights = {"decoder": torch.randn(1, D_SAE, o), "decoder_bias": torch.randn(1, o), "skip": skip}
    return replace(stack, **weights, decoder_norm="free", metadata=SITES)


def difference(theirs: Result, ours: Result) -> tuple[float, float]:
    """Of codes and of reconstructions, relative to the largest of theirs."""
    pairs = zip(theirs, ours, strict=True)
    first, second = (float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    return first, second


def run_stack(stack: ub.Stack, x: torch.Tensor) -> Result:
    codes = stack.encode(x)
    return codes.to_dense()[0], stack.decode(codes, x)[0]


def refusal(peer: Peer, architecture: str) -> str:
    """Why what the library saved is not read; that it is read is an error."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        path = peer.save(architecture, Path(temporary))
        try:
            ub.load(path)
        except UserError as problem:
            return str(problem).partition(": ")[2]
    raise AssertionError(f"{peer.format}'s {architecture} was read")


def keep_golden(peer: Peer, architecture: str, path: Path, x: torch.Tensor, result: Result, golden: Path) -> None:
    """The library's files, and what it makes of inputs."""
    name = architecture.replace(", ", "-").replace(" ", "_")
    folder = golden / peer.format / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(path if path.is_dir() else path.parent, folder)
    codes, reconstruction = (tensor.detach().contiguous() for tensor in result)
    save_file({"x": x, "codes": codes, "reconstruction": reconstruction}, folder / "expected.safetensors")


def main() -> int:
    warnings.simplefilter("ignore")
    golden = Path(sys.argv[2]) if sys.argv[1:2] == ["--golden"] else None
    worst, x = 0.0, 2 * torch.randn(64, D_IN, generator=torch.Generator().manual_seed(1))
    print(f"{'format':20} {'architecture':36} {'direction':9} {'codes':>9} {'x̂':>9}")
    for peer in PEERS:
        rows = [(name, "written") for name in peer.ours] + [(name, "read") for name in peer.theirs]
        for architecture, direction in rows:
            torch.manual_seed(0)
            with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
                # a path with "transcoder" in it is read as one, as on the hub
                folder = Path(temporary) / ("transcoder" if "transcoder" in architecture else "autoencoder")
                if direction == "written":
                    stack = our_stack(peer, architecture)
                    export(stack, peer.format, folder)
                    theirs = peer.load(peer.written(folder), architecture)(x)
                else:
                    folder.mkdir()
                    path = peer.save(architecture, folder)
                    theirs, stack = peer.load(path, architecture)(x), ub.load(path)
                    if golden is not None:
                        keep_golden(peer, architecture, path, x[:8], (theirs[0][:8], theirs[1][:8]), golden)
                codes, reconstructions = difference(theirs, run_stack(stack, x))
            worst = max(worst, codes, reconstructions)
            print(f"{peer.format:20} {architecture:36} {direction:9} {codes:9.1e} {reconstructions:9.1e}", flush=True)
        for architecture in peer.refused:
            print(f"{peer.format:20} {architecture:36} refused   {refusal(peer, architecture)}", flush=True)
    print(f"largest difference {worst:.1e}; the bar is {BAR:.0e}: {'met' if worst <= BAR else 'short'}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
