"""m models of one architecture as one set of stacked tensors: what all architectures share.

One model is a stack of one. A forward pass keeps only the activations that are asked for, and goes on with others in
place of those that are edited, under TransformerLens' names, here with the member axis first:

    blocks.0.hook_resid_pre | hook_resid_mid | hook_resid_post     m b t d     the residual stream
    blocks.0.hook_attn_out | hook_mlp_out                          m b t d     what is added to it
    blocks.0.attn.hook_q | hook_k | hook_v                         m b h t e   as the scores use them
    blocks.0.attn.hook_pattern                                     m b h t s   attention weights
    blocks.0.attn.hook_z                                           m b h t e   what each head reads
    blocks.0.attn.hook_result                                      m b h t d   what each head writes
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import suggest
from unbraid.devices import Precision, place, products_in
from unbraid.errors import UserError
from unbraid.models.attention import AttentionMask
from unbraid.models.attention.attention import Named
from unbraid.models.config import ModelConfig
from unbraid.models.layers import alibi_bias, linear

if TYPE_CHECKING:
    from unbraid.models.module import Model

PADDING = 0
"""The token that stands where a sequence has ended."""
Edit = Callable[[Tensor], Tensor]
"""What a forward pass goes on with in place of the activations it is given, of the same shape."""


@dataclass(frozen=True)
class Home:
    """The device of who asks, and whether what narrow products gave is to be widened again."""

    device: torch.device
    widens: bool = False

    def of(self, tensor: Tensor) -> Tensor:
        """The same numbers there."""
        narrow = self.widens and tensor.dtype in (torch.bfloat16, torch.float16)
        return (tensor.float() if narrow else tensor).to(self.device)


@dataclass(frozen=True)
class Recorder:
    """Edits activations as they are made, and keeps those that were asked for."""

    asked: frozenset[str]
    edits: Mapping[str, Edit] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    home: "Home" = field(default_factory=lambda: Home(torch.device("cpu")))
    """Where activations are edited and kept."""

    @classmethod
    def of(
        cls,
        settings: ModelConfig,
        names: Collection[str],
        edits: Mapping[str, Edit] | None = None,
        home: "Home | None" = None,
    ) -> "Recorder":
        """One that keeps and edits these; a name that the model does not have is refused."""
        if unknown := sorted(set(names) - set(settings.hooks())) if names else []:
            raise UserError(f"there is no '{unknown[0]}' to record; {suggest(unknown[0], settings.hooks())}")
        if unknown := sorted(set(edits) - set(settings.sites())) if edits else []:
            raise UserError(f"there is no '{unknown[0]}' to edit; {suggest(unknown[0], settings.sites())}")
        return cls(frozenset(names), edits or {}, home=home or Home(torch.device("cpu")))

    def keep(self, name: str, tensor: Tensor) -> Tensor:
        """What the pass goes on with: the activations as they are, or as they are edited."""
        if (edit := self.edits.get(name)) is not None:
            edited = edit(self.home.of(tensor))
            if edited.shape != tensor.shape:
                raise UserError(
                    f"the edit of {name} returned the shape {tuple(edited.shape)}; accepted: {tuple(tensor.shape)}, "
                    "as given"
                )
            tensor = edited.to(tensor.device)
        if name in self.asked:
            self.kept[name] = self.home.of(tensor)
        return tensor

    def wants(self, name: str) -> bool:
        """Whether it is kept or edited, so that it has to be made."""
        return name in self.asked or name in self.edits

    def under(self, prefix: str) -> frozenset[str]:
        """What is asked for below a prefix, without it."""
        return frozenset(name.removeprefix(prefix) for name in self.asked if name.startswith(prefix))


def token_rows(activations: Float[Tensor, "*axes"]) -> Float[Tensor, "m b t d"]:
    """One vector a token: as it is, or where a site has one for every head (`m b h t e`) the heads side by side."""
    return activations.transpose(2, 3).flatten(3) if activations.dim() == 5 else activations


def edit_rows(edit: Edit) -> Edit:
    """An edit of the vectors of tokens, at a site that may have one for every head."""

    def edited(activations: Tensor) -> Tensor:
        rows = edit(token_rows(activations))
        if activations.dim() == 5:
            return rows.unflatten(-1, (activations.shape[2], -1)).transpose(2, 3)
        return rows

    return edited


@dataclass(frozen=True)
class ForwardOutput:
    """What a forward pass gives."""

    resid: Float[Tensor, "m b t d"]
    """The final residual stream, from which logits are read."""
    attention_mask: AttentionMask
    recorded: Named
    """The activations that were asked for, by hook name."""
    costs: Named
    """Costs of the model itself, as load balance, each `m`."""


@dataclass(frozen=True)
class Models(ABC):
    """m transformers of one architecture as one set of tensors; one model is a stack of one.

    `start_models` makes untrained ones, `load_models` reads those of a run. `train_model` changes the weights in place;
    nothing else does. Activations are recorded by TransformerLens' hook names, with the member axis first.

    Parameters
    ----------
    settings : Transformer or Gauge
        The architecture, the same for all members.
    length : int
        Tokens of the longest sequence that a model can take.
    seeds : tuple of int
        One random seed per member.
    weights : dict of str to Tensor
        Every weight by name, with the member axis m first.
    precision : {"float32", "bfloat16", "float16"}
        Of matrix products; weights and everything else are float32.

    Attributes
    ----------
    members : int
        m, the number of models.
    words : int
        The size of the vocabulary.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> config = ub.Transformer(d_model=8, heads=2, d_ff=8)
    >>> models = ub.start_models(config, vocabulary=5, length=4, classes=3, seeds=[0, 1])
    >>> output = models.forward(torch.tensor([[1, 2, 3]]), record=["blocks.1.attn.hook_pattern"])
    >>> output.resid.shape  # member, sequence, token, d_model
    torch.Size([2, 1, 3, 8])
    >>> output.recorded["blocks.1.attn.hook_pattern"].shape  # member, sequence, head, query, key
    torch.Size([2, 1, 2, 3, 3])
    >>> models.read(output, asked=torch.tensor([[2]])).shape  # logits at token 2: member, sequence, question, class
    torch.Size([2, 1, 1, 3])
    >>> silent = models.forward(torch.tensor([[1, 2, 3]]), edit={"blocks.1.hook_mlp_out": torch.zeros_like})
    >>> bool((silent.resid == output.resid).all())
    False
    >>> models.module(1)(torch.tensor([[1, 2, 3]])).shape  # one member as a torch module: logits at every token
    torch.Size([1, 3, 3])
    """

    settings: ModelConfig
    length: int
    seeds: tuple[int, ...]
    weights: Named
    precision: Precision = "float32"
    """Of matrix products."""

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        record: Collection[str] = (),
        ablate_heads: Iterable[tuple[int, int]] = (),
        step: int | None = None,
        edit: Mapping[str, Edit] | None = None,
    ) -> ForwardOutput:
        """Run a batch through every member, on the models' device; what it gives is on that of the tokens.

        Parameters
        ----------
        tokens : integer Tensor, shape (b, t)
            Token ids; 0 is padding, at the right.
        record : collection of str
            The hooks whose activations to record; `settings.hooks()` lists them.
        ablate_heads : iterable of (layer, head)
            Heads whose output is set to zero.
        step : int, optional
            The training step, which seeds dropout. None: no dropout.
        edit : mapping of str to function, optional
            By hook, a function from the activations there to those that the pass goes on with, of the same shape;
            `settings.sites()` lists the hooks that can be edited. What is recorded there is the edited one.

        Returns
        -------
        ForwardOutput
            `resid`, the final residual stream (m, b, t, d); `recorded`, a dict of activations by hook; and `costs`, the
            model's own loss terms, each (m,).
        """
        home = self._home_of(tokens)
        recorder = Recorder.of(self.settings, record, edit, home)
        tokens = tokens.to(self.device)
        with products_in(self.precision, self.device):
            output = self.run(tokens, recorder, self.head_mask(ablate_heads), step)
        costs = {name: home.of(cost) for name, cost in output.costs.items()}
        mask = replace(output.attention_mask, token_mask=output.attention_mask.token_mask.to(home.device))
        return ForwardOutput(home.of(output.resid), mask, output.recorded, costs)

    @abstractmethod
    def run(
        self, tokens: Int[Tensor, "b t"], recorder: Recorder, head_masks: Mapping[int, Tensor], step: int | None
    ) -> ForwardOutput:
        """The pass itself, for tokens on the models' device; `head_masks` has 0 for ablated heads of a layer."""

    @property
    @abstractmethod
    def words(self) -> int:
        """The size of the vocabulary."""

    def parameters(self) -> Named:
        """What gradients may change, by name."""
        return dict(self.weights)

    def with_parameters(self, parameters: Named) -> Self:
        """The same models with other weights."""
        return replace(self, weights=parameters)

    def requires_grad_copy(self) -> Self:
        """The same tensors as leaves of autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.weights.items()})

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weights["answer.weight"].device

    def to(self, device: torch.device | str | None = None, precision: Precision | None = None) -> Self:
        """The same models on another device, or with matrix products in another precision."""
        weights = {name: p if device is None else place(p, device) for name, p in self.weights.items()}
        return replace(self, weights=weights, precision=precision or self.precision)

    def _home_of(self, given: Tensor) -> Home:
        return Home(given.device, self.precision != "float32")

    def member(self, index: int) -> Self:
        """One member, as a stack of one."""
        weights = {name: p[index : index + 1] for name, p in self.weights.items()}
        return replace(self, seeds=self.seeds[index : index + 1], weights=weights)

    def module(self, index: int = 0) -> "Model":
        """One member as a `torch.nn.Module`, in evaluation mode, with a copy of its weights; `stacked` goes back."""
        from unbraid.models.module import module_of  # which is made of this class

        return module_of(self, index)

    @property
    def members(self) -> int:
        return len(self.seeds)

    def read(self, output: ForwardOutput, asked: Int[Tensor, "b q"]) -> Float[Tensor, "m b q c"]:
        """Read the logits of the answers.

        Parameters
        ----------
        output : ForwardOutput
            What `forward` returned.
        asked : integer Tensor, shape (b, q)
            The position of each question's last token.

        Returns
        -------
        Tensor, shape (m, b, q, classes)
            On the device of the output.
        """
        home, resid, asked = self._home_of(output.resid), output.resid.to(self.device), asked.to(self.device)
        if self.settings.readout == "mean":
            mask = output.attention_mask.token_mask[:, :, None].to(resid)
            rows = (resid * mask).sum(2) / mask.sum(1)
            rows = rows[:, :, None, :].expand(-1, -1, asked.shape[1], -1)
        else:
            index = asked[None, :, :, None].expand(self.members, -1, -1, resid.shape[-1])
            rows = resid.gather(2, index)
        with products_in(self.precision, self.device):
            logits = linear(rows, self.weights["answer.weight"], self.weights.get("answer.bias"))
        return home.of(logits)

    def attention_mask(self, tokens: Int[Tensor, "b t"], alibi: bool) -> AttentionMask:
        """Which tokens attend to which; tokens that the model cannot take are refused."""
        self._check_tokens(tokens)
        mask: Bool[Tensor, "b t"] = tokens != PADDING
        mask[:, 0] = True  # so that a story without a word is no division by zero
        if not alibi:
            return AttentionMask(self.settings.causal, mask)
        length = mask.shape[1]
        bias = alibi_bias(self.length, self.settings.heads_per_layer)[:, :length, :length]
        return AttentionMask(self.settings.causal, mask, bias)

    def head_mask(self, ablate_heads: Iterable[tuple[int, int]]) -> Mapping[int, Tensor]:
        """Of each layer with an ablated head: 0 for those, 1 for the others."""
        masks: dict[int, Tensor] = {}
        for layer, head in ablate_heads:
            if not (0 <= layer < self.settings.layers and 0 <= head < self.settings.heads_per_layer):
                raise UserError(
                    f"head {head} of layer {layer} was to be ablated; the model has {self.settings.layers} layers of "
                    f"{self.settings.heads_per_layer} heads; accepted: layer and head counted from 0"
                )
            masks.setdefault(layer, torch.ones(self.settings.heads_per_layer))[head] = 0
        return masks

    def _check_tokens(self, tokens: Int[Tensor, "b t"]) -> None:
        if tokens.shape[1] > self.length:
            raise UserError(
                f"a sequence of {tokens.shape[1]} tokens was given to a model of {self.length} positions; "
                f"accepted: at most {self.length} tokens"
            )
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.words:
            wrong = next(word for word in tokens.flatten().tolist() if not 0 <= word < self.words)
            raise UserError(
                f"the word {wrong} was given to a model of {self.words} words; accepted: 0 to {self.words - 1}"
            )
