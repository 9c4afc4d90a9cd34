"""The operations on a CPU: numba's loops of `dictionaries/kernels.py` and `training/kernels.py`, in tensors' memory."""

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries import kernels, lists
from unbraid.dictionaries.lists import Inputs, Lists, Planted
from unbraid.dictionaries.operations.contract import Decoded, Events, Operations, Parts, Rates, Rows, Sums
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training import kernels as training_kernels


class Cpu(Operations):
    """Work in proportion to what fired, in loops that are parallel over samples or features."""

    def select(self, stack: Stack, inputs: Inputs) -> Lists | None:
        return lists.encode_lists(stack, inputs)

    def decode(self, stack: Stack, lists: Lists, slots: int, target: Float[Tensor, "b d"], parts: Parts) -> Decoded:
        members, count, (samples, dimensions) = stack.members, len(parts.edges), target.shape
        offset = torch.zeros(members, dimensions) if stack.pre_bias is None else stack.pre_bias
        decoded = Decoded(
            torch.empty(members, samples, dimensions),
            torch.empty(members, count, samples, dimensions),
            torch.empty(members, count, samples, dtype=torch.float64),
            torch.empty(members, samples, slots),
        )
        kernels.decode(
            *_listed(lists),
            *(parts.edges.numpy(), parts.factors.numpy(), parts.norm),
            *(stack.decoder.numpy(), offset.numpy(), target.contiguous().numpy()),
            *(decoded.reconstruction.numpy(), decoded.errors.numpy()),
            *(decoded.squares.numpy(), decoded.gradients.numpy()),
        )
        return decoded

    def sort_by_feature(self, lists: Lists, gradients: Float[Tensor, "m b k"]) -> Events:
        members, most = len(lists.counts), int(lists.counts.sum(1).max())
        events = Events(
            torch.empty(members, lists.width + 1, dtype=torch.int64),
            torch.empty(members, most, dtype=torch.int32),
            torch.empty(members, most),
            torch.empty(members, most),
        )
        given = lists.features.numpy(), lists.values.numpy(), gradients.numpy(), lists.counts.numpy()
        kernels.sort_by_feature(*given, *_arrays(events))
        return events

    def weight_gradients(self, sums: Sums, stack: Stack) -> tuple[Float[Tensor, "m f d"], Float[Tensor, "m f d"]]:
        encoder, decoder = torch.empty_like(stack.encoder), torch.empty_like(stack.decoder)
        training_kernels.weight_gradients(*_summed(sums), encoder.numpy(), decoder.numpy())
        return encoder, decoder

    def adam_rows(
        self,
        encoder_gradient: Float[Tensor, "m f d"],
        decoder_gradient: Float[Tensor, "m f d"],
        rates: Rates,
        rows: Rows,
    ) -> None:
        given = encoder_gradient.numpy(), decoder_gradient.numpy()
        training_kernels.take_step(*given, *_arrays(rates), *_arrays(rows))

    def update_rows(self, sums: Sums, rates: Rates, rows: Rows) -> Float[Tensor, "m d"]:
        members, features, dimensions = rows.encoder.shape
        passed_on = torch.empty(members, -(-features // training_kernels.BLOCK), dimensions)
        training_kernels.update_rows(*_summed(sums), passed_on.numpy(), *_arrays(rates), *_arrays(rows))
        return passed_on.sum(1)

    def largest(self, rows: Float[Tensor, "n f"], k: int) -> Int[Tensor, "n k"]:
        count, width = rows.shape
        places, values = np.full((count, k), -1, np.int32), np.empty((count, k), np.float32)
        kernels.append_largest(rows.numpy(), np.zeros(width, np.float32), places, values, np.empty(count, np.int64))
        return torch.from_numpy(places)

    def keep_largest(self, rows: Float[Tensor, "n f"], k: int) -> None:
        training_kernels.keep_largest(rows.numpy(), rows.numpy().view(np.int32), k)

    def sum_by_feature(self, lists: Lists, slots: Float[Tensor, "m b k"]) -> Float[Tensor, "m f"]:
        totals = torch.empty(len(lists.counts), lists.width)
        training_kernels.sum_by_feature(lists.features.numpy(), lists.counts.numpy(), slots.numpy(), totals.numpy())
        return totals

    def least(self, lists: Lists) -> Float[Tensor, "m"]:
        least = torch.empty(len(lists.counts))
        training_kernels.find_least(lists.values.numpy(), lists.counts.numpy(), least.numpy())
        return least

    def add_where_fired(self, codes: Float[Tensor, "m b k"], of_samples: Float[Tensor, "m b"], slots: Tensor) -> None:
        training_kernels.add_where_fired(codes.numpy(), of_samples.numpy(), slots.numpy())

    def fire_jump(
        self, lists: Lists, thresholds: Float[Tensor, "m f"]
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b"]]:
        pre, fires = _copy_of_used(lists), torch.empty(lists.counts.shape)
        training_kernels.fire_jump(*_placed(lists), *_numpy(thresholds, pre, lists.values, fires))
        return pre, fires

    def back_through_jump(
        self,
        lists: Lists,
        thresholds: Float[Tensor, "m f"],
        bandwidth: float,
        pre: Float[Tensor, "m b k"],
        in_fires: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b k"],
    ) -> Float[Tensor, "m b k"]:
        in_log = torch.empty_like(gradients)
        rest = _numpy(pre, in_fires, gradients, in_log)
        training_kernels.back_through_jump(*_placed(lists), thresholds.numpy(), bandwidth, *rest)
        return in_log

    def fire_gated(
        self, lists: Lists, gains: Float[Tensor, "m f"], biases: Float[Tensor, "m f"]
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b"]]:
        gates, counted = _copy_of_used(lists), torch.empty(lists.counts.shape)
        training_kernels.fire_gated(*_placed(lists), *_numpy(gains, biases, gates, lists.values, counted))
        return gates, counted

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
        in_gain, in_bias = torch.empty_like(gradients), torch.empty_like(gradients)
        given = _numpy(gains, biases, gate_bias, gates, in_counted, gradients, in_gates, in_gain, in_bias)
        training_kernels.back_through_gates(*_placed(lists), *given)
        return in_gain, in_bias

    def through_relu(self, codes: Float[Tensor, "m b f"], gradients: Float[Tensor, "m b f"]) -> Float[Tensor, "m f"]:
        bias = codes.new_empty(len(codes), codes.shape[2])
        training_kernels.through_relu(*_numpy(codes, gradients, bias))
        return bias

    def through_jump(
        self,
        pre: Float[Tensor, "m b f"],
        thresholds: Float[Tensor, "m f"],
        bandwidth: float,
        in_fires: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b f"],
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m f"]]:
        bias, log = torch.empty_like(thresholds), torch.empty_like(thresholds)
        rest = _numpy(in_fires, gradients, bias, log)
        training_kernels.through_jump(pre.numpy(), thresholds.numpy(), bandwidth, *rest)
        return bias, log

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
        sums = torch.empty_like(gains), torch.empty_like(gains), torch.empty_like(gains)
        training_kernels.through_gates(*_numpy(pre, gains, biases, gate_bias, in_counted, gradients, in_gates, *sums))
        return sums

    def fire_planted(
        self, planted: Planted, products: Float[Tensor, "n f"], bias: Float[Tensor, "f"], codes: Float[Tensor, "b f"]
    ) -> None:
        kernels.fire_planted(*_numpy(planted.places, planted.strengths, products, bias, codes))

    def add_planted(self, planted: Planted, rows: Float[Tensor, "b f"]) -> Float[Tensor, "n f"]:
        totals = torch.empty(len(planted.directions), rows.shape[1])
        kernels.add_planted(*_numpy(planted.places, planted.strengths, rows, totals))
        return totals


def _numpy(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


def _listed(lists: Lists) -> list[np.ndarray]:
    return _numpy(lists.features, lists.values, lists.counts)


def _placed(lists: Lists) -> list[np.ndarray]:
    return _numpy(lists.features, lists.counts)


def _copy_of_used(lists: Lists) -> Float[Tensor, "m b k"]:
    """The values in as few slots as do for the fullest sample."""
    return lists.values[..., : lists.fullest()].clone(memory_format=torch.contiguous_format)


def _arrays(named: Events | Rates | Rows) -> list[np.ndarray]:
    """In the order of the fields, which is the kernels'."""
    return [tensor.numpy() for tensor in vars(named).values()]


def _summed(sums: Sums) -> list[np.ndarray]:
    rest = sums.x, sums.errors, sums.segments, sums.pre_bias
    return [*_arrays(sums.events), *_numpy(*rest, sums.revived, sums.revived_encoder, sums.revived_decoder)]
