"""What every device's operations promise: tensors of that device in, tensors of that device out, float32.

A sum is taken in an order that does not depend on the number of threads. What is changed in place is said so.

Lists are slots in the order of features: `features[m, b, k]`, `values[m, b, k]`, of which the first `counts[m, b]` are
in use. Events are the same in the order of features: feature f of member m has those from `starts[m, f]` to
`starts[m, f + 1]`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries.lists import Inputs, Lists, Planted
from unbraid.dictionaries.stack import Stack


@dataclass(frozen=True)
class Parts:
    """How errors are weighed: those of the whole reconstruction, and of prefixes of the features that stand alone."""

    edges: Int[Tensor, "s"]
    """Segment s is of the features from edges[s - 1] to edges[s]; the last edge is the dictionary's width."""
    factors: Float[Tensor, "m s"]
    norm: bool
    """Whether the whole error is divided by its length as well."""


@dataclass(frozen=True)
class Decoded:
    """What lists decode to."""

    reconstruction: Float[Tensor, "m b d"]
    errors: Float[Tensor, "m s b d"]
    """errors[m, s]: the sum over t ≥ s of factors[t] · (what is made by features before edges[t], less the target)."""
    squares: Float[Tensor, "m s b"]
    """In float64: the squared length of what is made by features before edges[s], less the target."""
    gradients: Float[Tensor, "m b k"]
    """The gradient in each code: its segment's error · its direction; 0 in slots that are not in use."""


@dataclass(frozen=True)
class Events:
    """What fired, in the order of features; those of one feature in the order of samples."""

    starts: Int[Tensor, "m p"]
    """Where each feature's events begin, and the last one's end: p = f + 1."""
    samples: Int[Tensor, "m e"]
    values: Float[Tensor, "m e"]
    gradients: Float[Tensor, "m e"]


@dataclass(frozen=True)
class Sums:
    """All that the gradients of the rows are sums of."""

    events: Events
    x: Float[Tensor, "b d"]
    errors: Float[Tensor, "m s b o"]
    segments: Int[Tensor, "f"]
    """The segment of each feature: a row of the decoder learns from that segment's errors."""
    pre_bias: Float[Tensor, "m p"]
    """p = d; without a pre-bias it has no columns."""
    revived: Int[Tensor, "m f"]
    """At which of the following rows a feature has more gradients, or -1."""
    revived_encoder: Float[Tensor, "n e"]
    """e = d + 1: behind each row stands the gradient of its bias."""
    revived_decoder: Float[Tensor, "n o"]


@dataclass(frozen=True)
class Rows:
    """The weights that are rows of features, with Adam's moments of them."""

    encoder: Float[Tensor, "m f d"]
    encoder_mean: Float[Tensor, "m f d"]
    encoder_square: Float[Tensor, "m f d"]
    decoder: Float[Tensor, "m f d"]
    decoder_mean: Float[Tensor, "m f d"]
    decoder_square: Float[Tensor, "m f d"]

    def tensors(self) -> tuple[Tensor, ...]:
        encoder = self.encoder, self.encoder_mean, self.encoder_square
        return *encoder, self.decoder, self.decoder_mean, self.decoder_square


@dataclass(frozen=True)
class Rates:
    """What Adam needs to know of each feature's age."""

    rates: Float[Tensor, "m f"]
    """The learning rate over Adam's first correction."""
    roots: Float[Tensor, "m f"]
    """The root of its second correction."""


class Operations(ABC):
    """The operations of one device."""

    @abstractmethod
    def select(self, stack: Stack, inputs: Inputs) -> Lists | None:
        """What each rule lists of this batch, with pre-activations as values; None where dense products are cheaper.

        Relu, gated: what is positive. Jump-relu: what is above θ - bandwidth/2. Top-k: the k largest of a sample that
        are positive. Batch top-k: the k·b largest of the batch that are positive. Nothing is approximate. Slots that
        are not in use, up to the fullest sample's count, hold feature 0 and value 0.
        """

    @abstractmethod
    def decode(self, stack: Stack, lists: Lists, slots: int, target: Float[Tensor, "b d"], parts: Parts) -> Decoded:
        """Each sample as the pre-bias and the sum of the rows that fired, held against the target; in so many slots."""

    @abstractmethod
    def sort_by_feature(self, lists: Lists, gradients: Float[Tensor, "m b k"]) -> Events:
        """Lists, and the gradients in their pre-activations, in the order of features."""

    @abstractmethod
    def weight_gradients(self, sums: Sums, stack: Stack) -> tuple[Float[Tensor, "m f d"], Float[Tensor, "m f d"]]:
        """Encoder: Σ gradient · x, less their total times the pre-bias. Decoder: Σ value · its segment's error."""

    @abstractmethod
    def adam_rows(
        self,
        encoder_gradient: Float[Tensor, "m f d"],
        decoder_gradient: Float[Tensor, "m f d"],
        rates: Rates,
        rows: Rows,
    ) -> None:
        """Adam's step of every row, and decoder rows back to length one; in place."""

    @abstractmethod
    def update_rows(self, sums: Sums, rates: Rates, rows: Rows) -> Float[Tensor, "m d"]:
        """`weight_gradients` and `adam_rows` at once, in place.

        Returns Σ over features of (the total of its gradients) · its encoder row as it was before: what a pre-bias
        loses by pre-activations. Anything where there is none.
        """

    @abstractmethod
    def largest(self, rows: Float[Tensor, "n f"], k: int) -> Int[Tensor, "n k"]:
        """Where the k largest of each row are, of those that are positive, ascending; -1 in places left over."""

    @abstractmethod
    def keep_largest(self, rows: Float[Tensor, "n f"], k: int) -> None:
        """Leave the k largest of each row that are positive, of equal ones the first, and 0 elsewhere; in place."""

    @abstractmethod
    def sum_by_feature(self, lists: Lists, slots: Float[Tensor, "m b k"]) -> Float[Tensor, "m f"]:
        """The sum over each feature's slots."""

    @abstractmethod
    def least(self, lists: Lists) -> Float[Tensor, "m"]:
        """The least value in use of each member; 0 where none is."""

    @abstractmethod
    def add_where_fired(self, codes: Float[Tensor, "m b k"], of_samples: Float[Tensor, "m b"], slots: Tensor) -> None:
        """Add each sample's own number to the slots of the codes that fired in it; in place."""

    @abstractmethod
    def fire_jump(
        self, lists: Lists, thresholds: Float[Tensor, "m f"]
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b"]]:
        """Put z · H(z - θ) in the slots. Returns z, in the slots in use, and how many fire in each sample."""

    @abstractmethod
    def back_through_jump(
        self,
        lists: Lists,
        thresholds: Float[Tensor, "m f"],
        bandwidth: float,
        pre: Float[Tensor, "m b k"],
        in_fires: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b k"],
    ) -> Float[Tensor, "m b k"]:
        """From gradients in codes, in place, to those in pre-activations. Returns those in log θ, slot by slot."""

    @abstractmethod
    def fire_gated(
        self, lists: Lists, gains: Float[Tensor, "m f"], biases: Float[Tensor, "m f"]
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b"]]:
        """Put relu(gain · gate + bias) in the slots. Returns gates, in the slots in use, and their sum by sample."""

    @abstractmethod
    def back_through_gates(
        self,
        lists: Lists,
        gains: Float[Tensor, "m f"],
        biases: Float[Tensor, "m f"],
        gate_bias: Float[Tensor, "m f"],
        gates: Float[Tensor, "m b k"],
        in_counted: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b k"],
        in_gates: Float[Tensor, "m b k"],
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b k"]]:
        """From gradients in codes, in place, to those in pre-activations. Returns those in log gain and magnitudes.

        `in_gates` holds what the auxiliary loss says of gates, and gets what the sparsity cost says too.
        """

    @abstractmethod
    def through_relu(self, codes: Float[Tensor, "m b f"], gradients: Float[Tensor, "m b f"]) -> Float[Tensor, "m f"]:
        """Keep gradients of codes that fired, in place. Returns their sums over samples."""

    @abstractmethod
    def through_jump(
        self,
        pre: Float[Tensor, "m b f"],
        thresholds: Float[Tensor, "m f"],
        bandwidth: float,
        in_fires: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b f"],
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m f"]]:
        """`back_through_jump` where every feature has its place. Returns sums over samples: in the bias, in log θ."""

    @abstractmethod
    def through_gates(
        self,
        pre: Float[Tensor, "m b f"],
        gains: Float[Tensor, "m f"],
        biases: Float[Tensor, "m f"],
        gate_bias: Float[Tensor, "m f"],
        in_counted: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b f"],
        in_gates: Float[Tensor, "m b f"],
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m f"], Float[Tensor, "m f"]]:
        """`back_through_gates` where every feature has its place.

        Returns sums over samples: in the gates' bias, in log gain, in magnitudes' bias.
        """

    @abstractmethod
    def fire_planted(
        self, planted: Planted, products: Float[Tensor, "n f"], bias: Float[Tensor, "f"], codes: Float[Tensor, "b f"]
    ) -> None:
        """Write relu(Σ_k strength · products[place] + bias) of every sample into the codes."""

    @abstractmethod
    def add_planted(self, planted: Planted, rows: Float[Tensor, "b f"]) -> Float[Tensor, "n f"]:
        """For every planted direction the sum of the rows it is planted in, each times its strength."""
