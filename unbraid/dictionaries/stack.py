"""m dictionaries as one set of tensors; one dictionary is a stack of one.

pre = (x - pre_bias) · encoderᵀ + encoder_bias      codes = activation(pre)
x̂   = codes · decoder + pre_bias                    every decoder row has length one

A transcoder's target is something else than its input, as what an MLP makes of it:

ŷ   = codes · decoder + decoder_bias (+ x · skip)   the decoder is m f o; pre_bias is subtracted from x alone
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, create_model, model_validator
from scipy.sparse import issparse
from torch.nn.functional import normalize

from unbraid.activations.normalization import Normalization
from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import Config, JsonDict, Registry, tagged
from unbraid.devices import Precision, place, product
from unbraid.dictionaries.activations import Activation, BatchTopK, Gated, JumpRelu, Named, Relu, TopK
from unbraid.dictionaries.variational import Variational
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.worlds.arrays import check_array, is_array, read_rows

BUILT_IN: dict[str, type[Activation]] = {
    "relu": Relu,
    "topk": TopK,
    "batchtopk": BatchTopK,
    "jumprelu": JumpRelu,
    "gated": Gated,
    "variational": Variational,
}
ACTIVATIONS = Registry("activation rule", Activation, BUILT_IN)

if TYPE_CHECKING:
    import pandas as pd

    AnyActivation = Activation
else:
    AnyActivation = tagged(ACTIVATIONS)


@dataclass(frozen=True)
class Target:
    """What must be predicted from the input, as far as the weights of a stack depend on it."""

    dimensions: int | None = None
    """o, the number of dimensions of the target; None: the input itself is the target."""
    sites: tuple[int, ...] = ()
    """Widths of the sites that the target is concatenated from, where they are several (crosscoders)."""
    first: Float[Tensor, "b o"] | None = None
    """The targets of the samples a dictionary begins at, where it does."""
    normalization: Normalization | None = None
    """What was done to the inputs, where a dictionary begins at one of the model's units."""
    target_normalization: Normalization | None = None
    """The same of the targets."""


INHIBITION = ("inhibitors", "inhibition_strength", "inhibition_threshold")
"""What a stack keeps of lateral inhibition in use: lists of features (m, f, r), -1 if empty, and two numbers (m,)."""


class TrainedDictionary(Config):
    """A dictionary that others begin at, in a configuration { from = "path" }."""

    member: int = Field(default=0, ge=0)
    """Which of its dictionaries, where the file holds several."""

    @property
    def path(self) -> str:
        """Its `from`, a word that Python keeps for itself."""
        return getattr(self, "from")


if TYPE_CHECKING:
    InitFrom = TrainedDictionary
else:
    FROM = "a dictionary's folder, file or hub id, as `ub.load` takes it"
    named = {"from": (str, Field(description=FROM))}
    InitFrom = create_model("InitFrom", __base__=TrainedDictionary, __module__=__name__, **named)


class Dictionary(Config):
    """The settings of a dictionary (sparse autoencoder): its size, its activation rule and how its weights begin.

    `fit` trains dictionaries with these settings.

    Examples
    --------
    >>> import unbraid as ub
    >>> dictionary = ub.Dictionary(d_sae=64, activation=ub.TopK(k=4))
    >>> dictionary.activation.k
    4
    """

    d_sae: int = Field(default=1024, ge=1, le=1 << 24)
    """Number of learned features; more can hold rarer directions, and may split or repeat common ones."""
    activation: AnyActivation = Relu()
    """The rule by which features fire."""
    pre_bias: bool = False
    """Whether a learned vector is subtracted from inputs and added to reconstructions (SAELens' b_dec)."""
    pre_bias_init: Literal["zeros", "geometric_median"] = "zeros"
    """Where the pre-bias begins: at 0, or at the geometric median of the first batch (Bricken et al. 2023)."""
    init: Literal["tied", "unit", "data", "published"] | InitFrom = "tied"
    """tied: random unit rows, encoder = decoder. unit: random unit decoder, encoder as in torch's `Linear`, no bias.
    data: samples of the first batch as unit rows, encoder = decoder. published: orthogonal decoder, encoder and bias as
    in torch's `Linear`. Where the target is not the input, the two have rows of their own: random ones, or (data) the
    inputs and the targets of the same samples. { from = "path" }: a trained dictionary of the same size and rule."""
    skip: bool = False
    """Whether a linear path from input to target stands beside the features, zero at the start (skip transcoder)."""
    decoder_norm: Literal["unit", "free"] = "unit"
    """unit: every decoder row is brought back to length one after a step. free: rows keep the length they learn; the
    sparsity cost must then weigh codes by it (`mechanisms.sparsity.weigh_by = "decoder_norm"`)."""

    firing_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the first batch in which each feature fires at the start, of relu, jump-relu and gated: biases, or
    thresholds, are set so, and steps are fast from the first; may cost recovery. None: biases begin as `init` says."""

    renamed: ClassVar[dict[str, str]] = {"features": "d_sae", "start": "init"}

    @model_validator(mode="after")
    def check_k(self) -> Self:
        if isinstance(self.activation, TopK | BatchTopK) and self.activation.k > self.d_sae:
            raise ValueError(
                f"activation.k is {self.activation.k}, more than the dictionary's {self.d_sae} features; "
                f"accepted: 1 to {self.d_sae}"
            )
        return self

    @model_validator(mode="after")
    def check_pre_bias(self) -> Self:
        if self.pre_bias_init != "zeros" and not self.pre_bias:
            raise ValueError(f'pre_bias_init is "{self.pre_bias_init}" without a pre-bias; accepted: pre_bias = true')
        return self

    @model_validator(mode="after")
    def check_firing_share(self) -> Self:
        if self.firing_share is not None and not isinstance(self.activation, Relu | JumpRelu | Gated):
            kind = type(self.activation).__name__
            raise ValueError(f"firing_share was given to {kind}; accepted: activation.kind relu, jumprelu or gated")
        return self

    @model_validator(mode="after")
    def check_from(self) -> Self:
        changed = self.pre_bias_init != "zeros" or self.firing_share is not None
        if isinstance(self.init, InitFrom) and changed:
            which = "firing_share" if self.firing_share is not None else "pre_bias_init"
            raise ValueError(
                f"{which} was given beside init.from, whose weights it would change; accepted: one of them"
            )
        return self

    def drawn_in_pieces(self, target: Target | None) -> bool:
        """Whether some of its first rows can be had without the others."""
        return self.init in ("tied", "unit") and target is None and self.pre_bias_init == "zeros"

    @property
    def from_data(self) -> bool:
        """Whether it begins at samples of its inputs."""
        return self.init == "data" or self.pre_bias_init != "zeros" or self.firing_share is not None


class Continuation(ABC):
    """A training that can go on from where it has brought a stack."""

    @abstractmethod
    def resume(self, steps: int | None, progress: bool) -> "Stack":
        """So many steps more; None: those that are left. The stack it had brought stays as it is."""


BLOCK = 4096
"""So many rows at most are encoded at a time, where they are many."""
HELD = 1 << 26
"""So many pre-activations are made at once, at most, of rows that come as the tensor they are needed as."""
DENSE_FROM = 1 / 3
"""Where more than this share of the features fires, dense codes take less room than lists."""


@dataclass(frozen=True)
class Feature:
    """What `stack.feature(i)` returns: one feature, in every member of the stack.

    Parameters
    ----------
    index : int
        Its number.
    direction : Tensor, shape (m, d)
        Its unit direction among the inputs.
    decoder : Tensor, shape (m, o)
        What it writes for a code of 1.
    encoder : Tensor, shape (m, d)
        What its pre-activation is the product with.
    bias : Tensor, shape (m,)
        Added to that product.
    threshold : Tensor, shape (m,), or None
        What its pre-activation must exceed, where the rule has a threshold.
    nearest : DataFrame
        The other features whose decoder rows are most like its own: member, feature, cosine.
    density : Tensor, shape (m,), or None
        The share of rows in which it fires; None where no rows were given.
    mean : Tensor, shape (m,), or None
        How strongly it fires, on average, where it does.
    top : DataFrame or None
        The rows in which it is strongest: member, row, code. Rows of (batch, sequence, d) are counted one after
        another.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0, 1])
    >>> feature: ub.Feature = stack.feature(0, torch.randn(100, 4))
    >>> feature.density.shape, list(feature.top.columns)
    (torch.Size([2]), ['member', 'row', 'code'])
    """

    index: int
    direction: Float[Tensor, "m d"]
    decoder: Float[Tensor, "m o"]
    encoder: Float[Tensor, "m d"]
    bias: Float[Tensor, "m"]
    threshold: Float[Tensor, "m"] | None
    nearest: "pd.DataFrame"
    density: Float[Tensor, "m"] | None = None
    mean: Float[Tensor, "m"] | None = None
    top: "pd.DataFrame | None" = None


@dataclass(frozen=True)
class Stack:
    """m dictionaries (sparse autoencoders) of one size as one set of tensors; one dictionary is a stack of one.

    `fit` trains a stack, `load_stack` reads that of a run, `Stack.start` makes an untrained one. Training changes the
    tensors in place; nothing else does. In the shapes m is the number of members, f of features (`d_sae`), d of input
    dimensions (`d_in`), o of target dimensions (`d_out`, the same as d in an autoencoder) and b of samples.

    Parameters
    ----------
    encoder : Tensor, shape (m, f, d)
        Encoder rows: pre-activations are encoder · (x - pre_bias) + encoder_bias.
    encoder_bias : Tensor, shape (m, f)
        Added to pre-activations.
    decoder : Tensor, shape (m, f, o)
        Decoder rows, of length one (unless `decoder_norm` is "free").
    pre_bias : Tensor, shape (m, d), or None
        Subtracted from inputs, added to reconstructions (in a transcoder only subtracted).
    activation : Activation
        The rule by which features fire.
    rule : dict of str to Tensor, each of shape (m, f)
        The activation's own weights, as the thresholds of `JumpRelu`.
    memory : dict of str to Tensor, each of shape (m,)
        What the activation remembers between training steps, as the threshold of `BatchTopK`.
    inhibition : dict of str to Tensor
        What lateral inhibition in use needs (`LateralInhibition(in_use=True)`); empty where there is none.
    decoder_bias : Tensor, shape (m, o), or None
        Added to predictions, in a transcoder; None in an autoencoder.
    skip : Tensor, shape (m, d, o), or None
        The linear path of a skip transcoder.
    sites : integer Tensor, shape (m, s), or None
        Widths of the sites that inputs and targets are concatenated from, in a crosscoder.
    decoder_norm : {"unit", "free"}
        Whether training brings decoder rows back to length one.
    metadata : dict
        What is known of where it comes from, as model, site and scores: kept in files, and without any effect.
    precision : {"float32", "bfloat16", "float16"}
        Of the two large matrix products; everything else is float32. Kept in no file.
    training : Continuation or None
        What `fit` leaves for `resume`: Adam's moments and the inputs. In memory only.

    Attributes
    ----------
    history : DataFrame
        How training went: a row for a logged step and member.
    W_enc : Tensor, shape (m, d, f)
        The encoder by SAELens' name and in its shape, with the member axis first; so are the next four.
    b_enc : Tensor, shape (m, f)
        The encoder's bias.
    W_dec : Tensor, shape (m, f, o)
        The decoder.
    b_dec : Tensor, shape (m, o)
        The pre-bias, in a transcoder the decoder's bias; zeros if there is none.
    threshold : Tensor, shape (m, f), or None
        What a pre-activation must exceed to fire, of `JumpRelu` and `BatchTopK`; None for other rules.
    d_in, d_sae, d_out, members : int
        d, f, o and m.
    is_transcoder : bool
        Whether the target is something else than the input.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0, 1])
    >>> stack.W_enc.shape, stack.W_dec.shape
    (torch.Size([2, 4, 8]), torch.Size([2, 8, 4]))
    >>> codes = stack.encode(torch.randn(5, 4))
    >>> codes.to_dense().shape  # member, sample, feature
    torch.Size([2, 5, 8])
    >>> stack.decode(codes).shape  # member, sample, dimension
    torch.Size([2, 5, 4])
    >>> stack(torch.randn(3, 5, 4, dtype=torch.bfloat16)).shape  # both, of any float type, in batches
    torch.Size([2, 3, 5, 4])
    >>> stack.member(1).members
    1
    """

    encoder: Float[Tensor, "m f d"]
    encoder_bias: Float[Tensor, "m f"]
    decoder: Float[Tensor, "m f o"]
    pre_bias: Float[Tensor, "m d"] | None
    activation: Activation
    rule: Named = field(default_factory=dict)
    """The activation's own weights, each `m f`."""
    memory: Named = field(default_factory=dict)
    """What the activation remembers between steps, each `m`."""
    inhibition: Named = field(default_factory=dict)
    """Lateral inhibition in use: the tensors named in `INHIBITION`, or none."""
    decoder_bias: Float[Tensor, "m o"] | None = None
    """What a transcoder adds to its predictions; an autoencoder has none."""
    sites: Int[Tensor, "m s"] | None = None
    """Widths of the sites that the target is concatenated from, in a crosscoder."""
    skip: Float[Tensor, "m d o"] | None = None
    """The linear path of a skip transcoder."""
    decoder_norm: Literal["unit", "free"] = "unit"
    """Whether `normalize` brings decoder rows back to length one."""
    metadata: JsonDict = field(default_factory=dict, compare=False)
    """What is known of where it comes from."""
    precision: Precision = "float32"
    """Of the encoder's and the decoder's product."""
    training: Continuation | None = field(default=None, compare=False, repr=False)
    """What `fit` leaves for `resume`."""

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or sent elsewhere: without the training, which may hold an iterator."""
        return {**vars(self), "training": None}

    @classmethod
    def start(
        cls,
        dictionary: Dictionary,
        dimensions: int,
        seeds: Sequence[int],
        x: Float[Tensor, "b d"] | None = None,
        target: Target | None = None,
        rows: slice | None = None,
    ) -> "Stack":
        """Make an untrained stack.

        Parameters
        ----------
        dictionary : Dictionary
            Size, activation rule and start.
        dimensions : int
            d, the number of input dimensions.
        seeds : sequence of int
            One per member; each seed draws that member's weights.
        x : Tensor, shape (b, d), optional
            Inputs to begin at, where the dictionary is to (`init = "data"`, `pre_bias_init`, `firing_share`); without
            them it begins as `tied` with a pre-bias of zeros.
        target : Target, optional
            What the input must predict, where that is not itself; the stack is then one of transcoders.
        rows : slice, optional
            Of its features these alone, as they are in the whole; others are not kept in memory, as far as `init` is
            "tied" or "unit".
        """
        if rows is not None and not dictionary.drawn_in_pieces(target):
            return cls.start(dictionary, dimensions, seeds, x, target)._of_features(rows)
        if dictionary.skip and (target is None or target.dimensions is None):
            raise UserError("dictionary.skip is true, and the target is the input; accepted: a world with a target")
        if isinstance(dictionary.init, InitFrom):
            from unbraid.dictionaries.formats.begin import begin_at  # formats read files into stacks

            return begin_at(dictionary, dimensions, len(seeds), target)
        draw = {"unit": _unit_decoder, "published": _published}.get(dictionary.init, _tied)
        rows = rows or slice(0, dictionary.d_sae)
        drawn = [draw(stream(seed, "rows"), dictionary.d_sae, dimensions, rows) for seed in seeds]
        encoder, bias, decoder = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*drawn, strict=True))
        pre_bias = torch.zeros(len(seeds), dimensions) if dictionary.pre_bias else None
        if x is not None:
            x = x.to(encoder.dtype)
            if pre_bias is not None and dictionary.pre_bias_init == "geometric_median":
                pre_bias[:] = geometric_median(x)
            if dictionary.init == "data":
                center = 0 if pre_bias is None else pre_bias[0]
                for member, seed in enumerate(seeds):
                    decoder[member] = _samples(stream(seed, "samples"), x - center, decoder[member])
                encoder.copy_(decoder)
        rule = dictionary.activation.parameters(len(seeds), encoder.shape[1])
        memory = dictionary.activation.memory(seeds)
        stack = cls(encoder, bias, decoder, pre_bias, dictionary.activation, rule, memory)
        stack = replace(stack, decoder_norm=dictionary.decoder_norm)
        if x is not None and dictionary.firing_share is not None:
            stack.fire_in(dictionary.firing_share, x)
        return stack if target is None else _toward(stack, target, dictionary, seeds, x)

    @classmethod
    def of(cls, tensors: Named, activation: Activation) -> "Stack":
        """The stack that has these `tensors()`."""
        rule = {name: tensors[name] for name in activation.parameters(1, 1)}
        memory = {name: tensors[name] for name in activation.memory([0])}
        inhibition = {name: tensors[name] for name in INHIBITION if name in tensors}
        rest = {name: tensor for name, tensor in tensors.items() if name not in {**rule, **memory, **inhibition}}
        named = {"pre_bias": None, **rest}
        return cls(**named, activation=activation, rule=rule, memory=memory, inhibition=inhibition)

    def parameters(self) -> Named:
        """What gradients may change, by name."""
        named = {"encoder": self.encoder, "encoder_bias": self.encoder_bias, "decoder": self.decoder, **self.rule}
        beside = {"pre_bias": self.pre_bias, "decoder_bias": self.decoder_bias, "skip": self.skip}
        return named | {name: tensor for name, tensor in beside.items() if tensor is not None}

    def tensors(self) -> Named:
        """All there is to save, by name."""
        sites = {} if self.sites is None else {"sites": self.sites}
        return {**self.parameters(), **self.memory, **self.inhibition, **sites}

    def with_parameters(self, parameters: Named) -> "Stack":
        rule = {name: parameters.get(name, tensor) for name, tensor in self.rule.items()}
        return replace(self, **{name: p for name, p in parameters.items() if name not in rule}, rule=rule)

    def requires_grad_copy(self) -> "Stack":
        """The same tensors, seen by autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.parameters().items()})

    def detached(self) -> "Stack":
        """The same tensors, unseen by autograd."""
        return self.with_parameters({name: p.detach() for name, p in self.parameters().items()})

    def member(self, index: int) -> "Stack":
        """One member, as a stack of one."""
        alone = Stack.of({name: t[index : index + 1] for name, t in self.tensors().items()}, self.activation)
        known = dict(self.metadata)
        if "members" in known:
            known["members"] = known["members"][index : index + 1]
        if "history" in known:
            known["history"] = [_of_member(line, index) for line in known["history"]]
        return replace(alone, decoder_norm=self.decoder_norm, metadata=known, precision=self.precision)

    def to(self, device: torch.device | str | None = None, precision: Precision | None = None) -> "Stack":
        """The same dictionaries on another device, or with products in another precision.

        Parameters
        ----------
        device : torch.device or str, optional
            As "cuda:0". What it encodes and decodes is moved there, and the answer back to where it was asked.
        precision : {"float32", "bfloat16", "float16"}, optional
            Of the encoder's and the decoder's product.

        Examples
        --------
        >>> import torch, unbraid as ub
        >>> stack = ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0]).to("cpu", precision="bfloat16")
        >>> stack.pre_activations(torch.randn(5, 4)).dtype
        torch.float32
        """
        moved = {name: tensor if device is None else place(tensor, device) for name, tensor in self.tensors().items()}
        there = Stack.of(moved, self.activation)
        precision = precision or self.precision
        return replace(there, decoder_norm=self.decoder_norm, metadata=self.metadata, precision=precision)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.encoder.device

    def _of_features(self, rows: slice) -> "Stack":
        """These features alone."""
        by_feature = {"encoder", "encoder_bias", "decoder", *self.rule}
        named = {name: t[:, rows].clone() if name in by_feature else t for name, t in self.tensors().items()}
        alone = Stack.of(named, self.activation)
        return replace(alone, decoder_norm=self.decoder_norm, metadata=self.metadata, precision=self.precision)

    def save(self, path: str | Path) -> None:
        """Write it to a folder, all members and exactly: weights (safetensors), settings, metadata and checksums.

        Parameters
        ----------
        path : str or Path
            A folder that is not there yet. `ub.load` reads it.

        Examples
        --------
        >>> import unbraid as ub
        >>> ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0, 1]).save("dictionaries/small")
        >>> ub.load("dictionaries/small").members
        2
        """
        from unbraid.dictionaries.formats.folder import save  # formats read files into stacks

        save(self.to("cpu"), Path(path))

    def push_to_hub(self, repo_id: str, format: str = "unbraid", private: bool = False) -> str:
        """Upload it to the Hugging Face hub, with a model card of what is known of it; `ub.load` reads it from there.

        Parameters
        ----------
        repo_id : str
            Where to, as "owner/name"; the repository is made if it is not there.
        format : str
            One of the formats of `unbraid export`; "saelens" is read by SAELens, too.
        private : bool
            Whether a repository that is made is private.

        Returns
        -------
        str
            The id that `ub.load` takes; of several members in another format, that of the first.
        """
        from unbraid.dictionaries.formats.hub import push  # formats read files into stacks

        return push(self.to("cpu"), repo_id, format, private)

    @property
    def history(self) -> "pd.DataFrame":
        """How training went: for each logged step and member its `loss`, the terms of that, and `l0`; saved with it."""
        import pandas as pd  # slow to load

        rows = [
            {"step": line["step"], "member": member, "loss": sum(values[member] for values in line["terms"].values())}
            | {name: values[member] for name, values in line["terms"].items()}
            | {"l0": l0}
            for line in self.metadata.get("history", [])
            for member, l0 in enumerate(line["l0"])
        ]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["step", "member", "loss", "l0"])

    def resume(self, steps: int | None = None, progress: bool = True) -> "Stack":
        """Train on: so many steps more, or those that Ctrl-C left. This stack stays as it is.

        Where neither the learning rate nor a mechanism depends on the number of steps (no decay, no warm-up share),
        the result is that of one long training, bit for bit. An iterator goes on where it is.

        Parameters
        ----------
        steps : int, optional
            How many more; if not given, those that are left.
        progress : bool, default True
            Whether a bar is shown in a terminal or notebook.

        Returns
        -------
        Stack

        Examples
        --------
        >>> import unbraid as ub
        >>> world, short, long = ub.Superposition(dimensions=8), ub.Training(steps=5), ub.Training(steps=9)
        >>> settings = ub.Dictionary(d_sae=12, activation=ub.TopK(k=2))
        >>> resumed = ub.fit(world, settings, training=short, seeds=[0]).resume(4)
        >>> bool((resumed.encoder == ub.fit(world, settings, training=long, seeds=[0]).encoder).all())
        True
        """
        if self.training is None:
            raise UserError(
                "resume was asked of dictionaries that this process has not trained; accepted: what `fit` returned, or "
                'fit with a dictionary whose init is {"from": path}, which begins at saved ones'
            )
        return self.training.resume(steps, progress)

    def feature(self, index: int, X: Any = None, top: int = 10) -> Feature:  # noqa: N803
        """All there is to know of one feature.

        Parameters
        ----------
        index : int
            Which, from 0.
        X : array, shape (n, d) or (batch, sequence, d), optional
            Rows to look for it in: how often it fires, how strongly, and where most.
        top : int, default 10
            How many rows, and other features near to it, are named.

        Returns
        -------
        Feature
            Its weights; `nearest`, a data frame of the features most like it; and, with X, `density`, `mean` and
            `top`, a data frame of the rows it is strongest in.

        Examples
        --------
        >>> import torch, unbraid as ub
        >>> stack = ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0])
        >>> feature = stack.feature(3, torch.eye(4), top=2)
        >>> feature.direction.shape, list(feature.nearest.columns)
        (torch.Size([1, 4]), ['member', 'feature', 'cosine'])
        """
        if not 0 <= index < self.d_sae:
            raise UserError(f"feature {index} was asked for; accepted: 0 to {self.d_sae - 1}")
        known = Feature(
            index=index,
            direction=self.directions[:, index],
            decoder=self.decoder[:, index],
            encoder=self.encoder[:, index],
            bias=self.encoder_bias[:, index],
            threshold=None if self.threshold is None else self.threshold[:, index],
            nearest=_nearest(self.decoder_directions, index, top),
        )
        if X is None:
            return known
        values = self.encode(X).column(index).detach()
        fired = (values != 0).sum(1)
        mean, strongest = values.sum(1) / fired.clamp_min(1), _largest(values, "row", "code", top)
        return replace(known, density=fired / values.shape[1], mean=mean, top=strongest[strongest["code"] != 0])

    @property
    def members(self) -> int:
        return self.encoder.shape[0]

    @property
    def features(self) -> int:
        return self.encoder.shape[1]

    @property
    def d_sae(self) -> int:
        """The number of features."""
        return self.features

    @property
    def d_in(self) -> int:
        """The number of input dimensions."""
        return self.encoder.shape[2]

    @property
    def d_out(self) -> int:
        """The number of target dimensions."""
        return self.decoder.shape[2]

    @property
    def is_transcoder(self) -> bool:
        """Whether the target is something else than the input."""
        return self.decoder_bias is not None

    @property
    def W_enc(self) -> Float[Tensor, "m d f"]:  # noqa: N802
        """The encoder: pre-activations are (x - b_dec) @ W_enc + b_enc."""
        return self.encoder.mT

    @property
    def b_enc(self) -> Float[Tensor, "m f"]:
        """The encoder's bias."""
        return self.encoder_bias

    @property
    def W_dec(self) -> Float[Tensor, "m f o"]:  # noqa: N802
        """The decoder: reconstructions are codes @ W_dec + b_dec."""
        return self.decoder

    @property
    def b_dec(self) -> Float[Tensor, "m o"]:
        """The pre-bias, in a transcoder the decoder's bias; zeros where there is none."""
        bias = self.decoder_bias if self.is_transcoder else self.pre_bias
        return self.decoder.new_zeros(self.members, self.d_out) if bias is None else bias

    @property
    def threshold(self) -> Float[Tensor, "m f"] | None:
        """What a pre-activation must exceed to fire, for `JumpRelu` and `BatchTopK`; None for other rules."""
        return self.activation.threshold_of(self.tensors())

    @property
    def directions(self) -> Float[Tensor, "m f d"]:
        """Unit rows among the inputs: what each feature writes, or, in a transcoder, which writes elsewhere, reads."""
        return normalize(self.encoder, dim=-1) if self.is_transcoder else self.decoder_directions

    @property
    def decoder_directions(self) -> Float[Tensor, "m f o"]:
        """Unit rows among the targets: what each feature writes."""
        return normalize(self.decoder, dim=-1) if self.decoder_norm == "free" else self.decoder

    def site_norms(self) -> Float[Tensor, "m f s"]:
        """The length of each decoder row at each site; where there is one site, of the whole row."""
        widths = [self.d_out] if self.sites is None else self.sites[0].tolist()
        return torch.stack([part.norm(dim=-1) for part in self.decoder.split(widths, dim=-1)], dim=-1)

    def shifted_bias(self) -> Float[Tensor, "m f"]:
        """The bias that is left when the pre-bias is taken from the product instead of from x."""
        if self.pre_bias is None:
            return self.encoder_bias
        return self.encoder_bias - (self.encoder @ self.pre_bias[..., None])[..., 0]

    def pre_activations(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "m b f"]:
        """Encoder outputs (m, b, f) before the activation rule."""
        if self.precision != "float32":
            x = x.expand(self.members, *x.shape)
            return self.shifted_bias()[:, None, :] + product(x, self.encoder.mT, self.precision)
        return torch.baddbmm(self.shifted_bias()[:, None, :], x.expand(self.members, *x.shape), self.encoder.mT)

    def __call__(self, x: Any) -> Float[Tensor, "m *b o"]:
        """The reconstructions of inputs: encode, then decode.

        Parameters
        ----------
        x : array, shape (b, d) or (batch, sequence, d)
            NumPy, torch or `scipy.sparse`, of any float type. Much is done in batches.

        Returns
        -------
        Tensor, shape (m, b, o) or (m, batch, sequence, o)
        """
        self._check_rows(x)
        if self._at_once(x):
            return self.decode(self.encode(x), x)
        parts = [self.decode(self._codes_of(rows), rows) for rows in self._blocks(x)]
        return torch.cat(parts, 1).view(self.members, *x.shape[:-1], self.d_out).to(_device_of(x))

    def encode(self, x: Any) -> Codes:
        """The codes of inputs in every member.

        Parameters
        ----------
        x : array, shape (b, d) or (batch, sequence, d)
            NumPy, torch or `scipy.sparse`, of any float type. Much is encoded in batches, and only what fires is kept.

        Returns
        -------
        Codes
            `to_dense()` has the shape (m, b, f) or (m, batch, sequence, f); `to_sparse(0)` is member 0's as a
            `scipy.sparse` array; `lists()` has what fired, as lists of features and values.
        """
        self._check_rows(x)
        if self._at_once(x):
            codes = self.inhibited(self.activation.codes(self.pre_activations(x.to(self.device)), self.tensors()))
            return codes.to(x.device)
        codes = Codes.concatenate([_smaller(self._codes_of(rows)) for rows in self._blocks(x)])
        return (codes if x.ndim == 2 else codes.shaped(*x.shape[:-1])).to(_device_of(x))

    def _at_once(self, x: Any) -> bool:
        """Whether it is a tensor such as is needed, and small enough or needed by autograd."""
        if not isinstance(x, Tensor) or x.ndim != 2 or x.dtype != self.encoder.dtype:
            return False
        return self._tracks(x) or len(x) <= max(1, HELD // (self.members * self.features))

    def _tracks(self, x: Tensor) -> bool:
        return torch.is_grad_enabled() and (x.requires_grad or self.encoder.requires_grad)

    def _check_rows(self, x: Any) -> None:
        if not is_array(x) or x.ndim < 2:
            check_array(x)
        if x.shape[-1] != self.d_in:
            raise UserError(
                f"inputs of shape {tuple(x.shape)} were given to dictionaries of {self.d_in} dimensions; accepted: "
                f"(b, {self.d_in}) or (batch, sequence, {self.d_in})"
            )

    def _blocks(self, x: Any) -> Iterator[Float[Tensor, "b d"]]:
        """Some rows at a time, as the weights are."""
        samples, block = int(np.prod(x.shape[:-1])), max(1, min(BLOCK, HELD // (self.members * self.features)))
        for start in range(0, max(samples, 1), block):
            numbers = np.arange(start, min(start + block, samples), dtype=np.int64)
            rows = x.flatten(0, -2)[start : start + block] if isinstance(x, Tensor) else read_rows(x, numbers)
            yield rows.to(self.encoder)

    def _codes_of(self, rows: Float[Tensor, "b d"]) -> Codes:
        from unbraid.dictionaries.encoding import encode  # which encodes with stacks

        quickly = rows.dtype == torch.float32 and rows.device.type == "cpu" and not self._tracks(rows) and len(rows)
        return encode(self, rows) if quickly else self.encode(rows)

    def inhibited(self, codes: Codes) -> Codes:
        """What fires in use, of what would: the same codes, unless the stack keeps inhibitors."""
        if not self.inhibition:
            return codes
        from unbraid.dictionaries.inhibition import inhibit  # compiled loops, which take a while to load

        return replace(codes, values=inhibit(codes, *(self.inhibition[name] for name in INHIBITION)))

    def probabilities(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "m b f"]:
        """How likely each feature is to fire: the posterior of a variational dictionary; 0 or 1 in any other."""
        pre, weights = self.pre_activations(x.to(self.device)), self.tensors()
        likely = self.activation.probabilities(pre, weights)
        if not self.inhibition:
            return likely.to(x.device)
        would_fire = self.activation.codes(pre, weights)
        silenced = (would_fire.to_dense() != 0) & (self.inhibited(would_fire).to_dense() == 0)
        return likely.masked_fill(silenced, 0).to(x.device)

    def decode(self, codes: Any, x: Any = None) -> Float[Tensor, "m *b o"]:
        """The reconstructions of codes.

        Parameters
        ----------
        codes : Codes, array of shape (m, b, f) or (m, batch, sequence, f), or `scipy.sparse` arrays (b, f)
            What `encode` returned, or the same as an array; of sparse arrays one for each member. With one member its
            axis may be left out of codes (b, f).
        x : array, shape (b, d) or (batch, sequence, d), optional
            The inputs they are codes of, which a skip transcoder needs.

        Returns
        -------
        Tensor, shape (m, b, o) or (m, batch, sequence, o)
        """
        asked_at, codes = _device_of(codes), self._as_codes(codes)
        reconstruction = codes.to(self.device).decode(self.decoder, self.precision)
        bias = self.decoder_bias if self.is_transcoder else self.pre_bias
        if bias is not None:
            reconstruction = reconstruction + bias.view(self.members, *(1 for _ in reconstruction.shape[1:-1]), -1)
        if self.skip is not None:
            reconstruction = reconstruction + self._skipped(x, self.skip)
        return reconstruction.to(asked_at)

    def _as_codes(self, given: Any) -> Codes:
        """Codes of these members, whatever they are given as."""
        if isinstance(given, Codes):
            return given
        if isinstance(given, np.ndarray | Tensor):
            dense = torch.as_tensor(given).to(self.encoder)
            codes = Codes.dense(dense[None] if dense.ndim == 2 else dense)
        else:
            several = given if isinstance(given, list | tuple) else [given]
            if not several or not all(issparse(each) for each in several):
                raise UserError(f"decode was given {type(given).__name__}; accepted: Codes, or arrays of codes")
            codes = Codes.of_sparse(several)
            codes = replace(codes, values=codes.values.to(self.encoder))
        if (codes.values.shape[0], codes.width) != (self.members, self.features):
            found = f"{codes.values.shape[0]} members of {codes.width} features"
            raise UserError(f"codes have {found}; accepted: {self.members} of {self.features}, the member axis first")
        return codes

    def _skipped(self, x: Any, skip: Float[Tensor, "m d o"]) -> Float[Tensor, "m *b o"]:
        if x is None:
            raise UserError("a skip transcoder was to decode codes without their inputs; accepted: decode(codes, x)")
        rows = torch.cat(list(self._blocks(x)))
        skipped = product(rows.expand(self.members, *rows.shape), skip, self.precision)
        return skipped.view(self.members, *x.shape[:-1], -1)

    def fire_in(self, share: float, x: Float[Tensor, "b d"]) -> None:
        """Let every feature fire in this share of the samples: by its threshold if it has one, else by its bias."""
        most = max(1, round(share * len(x)))
        for member in range(self.members):
            pre = self.member(member).pre_activations(x)[0]
            least = pre.T.topk(min(most + 1, len(x)), dim=-1).values[:, -1]
            if "log_threshold" in self.rule:
                self.rule["log_threshold"][member] = least.log().fmax(self.rule["log_threshold"][member])
            else:
                self.encoder_bias[member] -= least

    def remember(self, memory: Named) -> None:
        """Give the activation its new memory, in place."""
        for name, tensor in memory.items():
            self.memory[name].copy_(tensor)

    def normalize(self) -> None:
        """Bring every decoder row back to length one, in place; nothing is done where their lengths are free."""
        if self.decoder_norm == "free":
            return
        self.decoder.div_(self.decoder.norm(dim=-1, keepdim=True).clamp_min(1e-12))


def _smaller(codes: Codes) -> Codes:
    """As lists, unless those would take more room."""
    if codes.features is None and int(codes.l0().max()) > DENSE_FROM * codes.width:
        return codes
    return codes.lists()


def _of_member(line: JsonDict, index: int) -> JsonDict:
    """A line of the history, of one member alone."""
    terms = {name: values[index : index + 1] for name, values in line["terms"].items()}
    return {**line, "terms": terms, "l0": line["l0"][index : index + 1]}


def _nearest(rows: Float[Tensor, "m f o"], index: int, top: int) -> "pd.DataFrame":
    """The features most like one."""
    cosine = (rows @ rows[:, index, :, None])[..., 0].detach().clone()
    cosine[:, index] = -2  # it is no neighbour of its own
    return _largest(cosine, "feature", "cosine", min(top, rows.shape[1] - 1))


def _largest(values: Float[Tensor, "m n"], place: str, value: str, top: int) -> "pd.DataFrame":
    import pandas as pd  # slow to load

    best = values.topk(min(top, values.shape[1]), dim=1)
    member = np.repeat(np.arange(len(values)), best.values.shape[1])
    columns = {place: best.indices.flatten().cpu().numpy(), value: best.values.flatten().cpu().numpy()}
    return pd.DataFrame({"member": member} | columns)


Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Encoder, its bias, and decoder of one member."""


PIECE = 4096
"""So many rows are drawn at a time where others than these are wanted, too."""


def _drawn(draw: Callable[[tuple[int, int]], np.ndarray], features: int, dimensions: int, rows: slice) -> np.ndarray:
    """These rows of all that would be drawn at once: what is between is drawn and forgotten."""
    if len(range(features)[rows]) == features:
        return draw((features, dimensions))
    kept = []
    for start in range(0, features, PIECE):
        piece = draw((min(PIECE, features - start), dimensions))
        kept.append(piece[max(0, rows.start - start) : max(0, rows.stop - start)].copy())
    return np.concatenate(kept)


def _tied(rng: np.random.Generator, features: int, dimensions: int, wanted: slice) -> Drawn:
    drawn = _drawn(lambda shape: rng.standard_normal(shape, dtype=np.float32), features, dimensions, wanted)
    rows = _unit(drawn)
    return rows, np.zeros(len(rows), np.float32), rows.copy()


def _unit_decoder(rng: np.random.Generator, features: int, dimensions: int, wanted: slice) -> Drawn:
    bound = dimensions**-0.5
    encoder = _drawn(lambda shape: rng.uniform(-bound, bound, shape).astype(np.float32), features, dimensions, wanted)
    decoder = _drawn(lambda shape: rng.standard_normal(shape, dtype=np.float32), features, dimensions, wanted)
    return encoder, np.zeros(len(encoder), np.float32), _unit(decoder)


def _toward(
    stack: Stack, target: Target, dictionary: Dictionary, seeds: Sequence[int], x: Float[Tensor, "b d"] | None
) -> Stack:
    """The stack with a decoder into the target's space, a bias there and, if asked for, a skip path of zeros."""
    sites = torch.tensor([target.sites] * len(seeds)) if target.sites else None
    if target.dimensions is None:
        return replace(stack, sites=sites)
    draws = [stream(seed, "target rows").standard_normal((stack.features, target.dimensions)) for seed in seeds]
    decoder = torch.from_numpy(np.stack([_unit(rows) for rows in draws]).astype(np.float32))
    bias = torch.zeros(len(seeds), target.dimensions)
    if dictionary.init == "data" and x is not None and target.first is not None:
        center = 0 if stack.pre_bias is None else stack.pre_bias[0]
        for member, seed in enumerate(seeds):
            chosen = _choose(stream(seed, "samples"), x.to(decoder.dtype) - center, stack.features)
            rows = normalize(target.first.to(decoder.dtype)[chosen], dim=-1)
            decoder[member, : len(rows)] = rows.where(rows.any(-1, keepdim=True), decoder[member, : len(rows)])
    skip = torch.zeros(len(seeds), stack.d_in, target.dimensions) if dictionary.skip else None
    return replace(stack, decoder=decoder, decoder_bias=bias, skip=skip, sites=sites)


def _samples(rng: np.random.Generator, x: Float[Tensor, "b d"], rows: Float[Tensor, "f d"]) -> Float[Tensor, "f d"]:
    """Other samples for each row, at length one; the rows that are given, where there are too few."""
    chosen = x[_choose(rng, x, len(rows))]
    return torch.cat([normalize(chosen, dim=-1), rows[len(chosen) :]])


def _choose(rng: np.random.Generator, x: Float[Tensor, "b d"], number: int) -> Int[Tensor, "_"]:
    """So many samples at random that are not 0, or all of them, where they are fewer."""
    some = (x.norm(dim=-1) > 0).nonzero()[:, 0]
    return some[torch.from_numpy(rng.permutation(len(some))[:number])]


def geometric_median(x: Float[Tensor, "b d"], steps: int = 100) -> Float[Tensor, "d"]:
    """The point with the least sum of distances to the samples, by Weiszfeld's iteration from their mean.

    Parameters
    ----------
    x : Tensor, shape (b, d)
        The samples.
    steps : int
        Iterations, at most; it stops where the point moves by less than a millionth of the mean distance.

    Returns
    -------
    Tensor, shape (d,)

    Examples
    --------
    >>> import torch
    >>> from unbraid.dictionaries.stack import geometric_median
    >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-100.0, 0.0]])
    >>> bool((geometric_median(x).abs() < 1e-3).all())  # the mean is far from it
    True
    """
    point = x.double().mean(0)
    for _ in range(steps):
        distances = (x - point).norm(dim=-1).clamp_min(1e-12)
        moved = (x / distances[:, None]).sum(0) / (1 / distances).sum()
        still = (moved - point).norm() <= 1e-6 * distances.mean()
        point = moved
        if still:
            break
    return point.to(x.dtype)


def _published(rng: np.random.Generator, features: int, dimensions: int, _wanted: slice) -> Drawn:
    bound = dimensions**-0.5
    encoder = rng.uniform(-bound, bound, (features, dimensions)).astype(np.float32)
    bias = rng.uniform(-bound, bound, features).astype(np.float32)
    wide = rng.standard_normal((max(features, dimensions), min(features, dimensions)))
    orthogonal, triangle = np.linalg.qr(wide)
    orthogonal *= np.sign(np.diag(triangle))  # as torch.nn.init.orthogonal_ makes it uniform
    decoder = orthogonal if features >= dimensions else orthogonal.T
    return encoder, bias, _unit(decoder).astype(np.float32)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _device_of(given: Any) -> torch.device:
    """Where somebody asked from; arrays that are not torch's are on the CPU."""
    given = given.values if isinstance(given, Codes) else given
    return given.device if isinstance(given, Tensor) else torch.device("cpu")
