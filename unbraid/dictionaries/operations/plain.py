"""The operations in plain torch, on any device: short, and what the kernels of other devices are held to.

What fired is a mask over all features while it is being found, and a sum over what fired is a dense product: in
proportion to the dictionary's width, which is what devices without kernels of ours do fastest. Where numbers tie for
last the first counts, and sums have one order, so that the same device gives the same bits.
"""

import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.devices import widest
from unbraid.dictionaries.activations import BatchTopK, TopK
from unbraid.dictionaries.lists import DENSE_SHARE, Inputs, Lists, Planted, listing_floors
from unbraid.dictionaries.operations.contract import Decoded, Events, Operations, Parts, Rates, Rows, Sums
from unbraid.dictionaries.stack import Stack
from unbraid.schedule import BETA1, BETA2, EPSILON


class Plain(Operations):
    """Every operation, as torch says it."""

    def select(self, stack: Stack, inputs: Inputs) -> Lists | None:
        pre = stack.pre_activations(inputs.x)
        kept = listed(stack, pre)
        counts = kept.sum(-1)
        any_number = not isinstance(stack.activation, TopK | BatchTopK)
        if any_number and counts.to(pre.dtype).mean(1).max() > DENSE_SHARE * stack.features:
            return None
        slots = max(1, int(counts.max()))
        places = torch.where(kept, kept.cumsum(-1) - 1, slots)  # all that is not listed shares a slot beyond the last
        features, values = self.compact(pre, places, slots)
        return Lists(features, values, counts, stack.features)

    def compact(
        self, pre: Float[Tensor, "m b f"], places: Int[Tensor, "m b f"], slots: int
    ) -> tuple[Int[Tensor, "m b k"], Float[Tensor, "m b k"]]:
        """The features and numbers that have a place below `slots`, at it; 0 where nothing has it."""
        empty = pre.new_zeros(*pre.shape[:2], slots + 1)
        columns = torch.arange(pre.shape[2], device=pre.device).expand_as(places)
        features = torch.zeros_like(empty, dtype=torch.int64).scatter_(-1, places, columns)[..., :slots]
        values = empty.scatter_(-1, places, pre)[..., :slots]
        return features.int().contiguous(), values.contiguous()

    def decode(self, stack: Stack, lists: Lists, slots: int, target: Float[Tensor, "b d"], parts: Parts) -> Decoded:
        features, values = lists.features[..., :slots], used(lists, slots) * lists.values[..., :slots]
        made = self.partial_sums(features, values, parts.edges, stack.decoder).cumsum(1)
        if stack.pre_bias is not None:
            made = made + stack.pre_bias[:, None, None]
        left = made - target
        squares = left.square().sum(-1).to(widest(target.device))
        factors = parts.factors[..., None].expand(-1, -1, len(target)).clone()
        if parts.norm:
            lengths = squares[:, -1].sqrt().to(target.dtype)
            factors[:, -1] = torch.where(lengths > 0, factors[:, -1] / lengths, 0)
        errors = (factors[..., None] * left).flip(1).cumsum(1).flip(1).contiguous()
        segments = torch.bucketize(features, parts.edges, right=True).clamp_max(len(parts.edges) - 1)
        gradients = self.slot_products(features, segments, errors, stack.decoder) * used(lists, slots)
        return Decoded(made[:, -1].contiguous(), errors, squares, gradients)

    def partial_sums(
        self,
        features: Int[Tensor, "m b k"],
        values: Float[Tensor, "m b k"],
        edges: Int[Tensor, "s"],
        rows: Float[Tensor, "m f d"],
    ) -> Float[Tensor, "m s b d"]:
        """Of each sample Σ value · row over the slots of each segment."""
        segment = torch.bucketize(features, edges, right=True)
        parts = (values * (segment == number) for number in range(len(edges)))
        return torch.stack([Codes(features, part, rows.shape[1]).decode(rows) for part in parts], 1)

    def slot_products(
        self,
        features: Int[Tensor, "m b k"],
        segments: Int[Tensor, "m b k"],
        errors: Float[Tensor, "m s b d"],
        rows: Float[Tensor, "m f d"],
    ) -> Float[Tensor, "m b k"]:
        """The error of each slot's segment · the row of its feature."""
        made = features.new_zeros(features.shape, dtype=rows.dtype)
        for member, slot in ((m, k) for m in range(len(rows)) for k in range(features.shape[2])):
            chosen = rows[member].index_select(0, features[member, :, slot].long())
            where = segments[member, :, slot][None, :, None].expand(1, -1, rows.shape[2])
            made[member, :, slot] = (errors[member].gather(0, where)[0] * chosen).sum(-1)
        return made

    def sort_by_feature(self, lists: Lists, gradients: Float[Tensor, "m b k"]) -> Events:
        slots = gradients.shape[2]
        keys = torch.where(used(lists, slots), lists.features[..., :slots].long(), lists.width).flatten(1)
        sorted_keys, order = keys.sort(dim=1, stable=True)
        edges = torch.arange(lists.width + 1, device=keys.device).repeat(len(keys), 1)
        starts = torch.searchsorted(sorted_keys.contiguous(), edges)
        values, gradients = (slot.flatten(1).gather(1, order) for slot in (lists.values[..., :slots], gradients))
        return Events(starts, (order // slots).int(), values, gradients)

    def weight_gradients(self, sums: Sums, stack: Stack) -> tuple[Float[Tensor, "m f d"], Float[Tensor, "m f d"]]:
        return self.row_gradients(sums)

    def row_gradients(self, sums: Sums) -> tuple[Float[Tensor, "m f d"], Float[Tensor, "m f d"]]:
        """The same; the weights themselves do not matter."""
        in_pre, codes = (_dense(sums, slots) for slots in (sums.events.gradients, sums.events.values))
        encoder = in_pre.mT @ sums.x
        decoder = codes.mT @ sums.errors[:, 0]
        for number in range(1, sums.errors.shape[1]):
            decoder = torch.where((sums.segments == number)[:, None], codes.mT @ sums.errors[:, number], decoder)
        again = sums.revived >= 0
        if len(sums.revived_encoder):
            encoder = encoder + _revived(sums.revived, sums.revived_encoder[:, :-1]) * again[..., None]
            decoder = decoder + _revived(sums.revived, sums.revived_decoder) * again[..., None]
        if sums.pre_bias.shape[1]:
            encoder = encoder - self.totals(sums)[..., None] * sums.pre_bias[:, None]
        return encoder, decoder

    def totals(self, sums: Sums) -> Float[Tensor, "m f"]:
        """The sum of each feature's gradients in all its pre-activations."""
        total = _dense(sums, sums.events.gradients).sum(1)
        if not len(sums.revived_encoder):
            return total
        return total + _revived(sums.revived, sums.revived_encoder[:, -1:])[..., 0] * (sums.revived >= 0)

    def adam_rows(
        self,
        encoder_gradient: Float[Tensor, "m f d"],
        decoder_gradient: Float[Tensor, "m f d"],
        rates: Rates,
        rows: Rows,
    ) -> None:
        encoder, encoder_mean, encoder_square, decoder, decoder_mean, decoder_square = rows.tensors()
        rate, root = rates.rates[..., None], rates.roots[..., None]
        for gradient, row, mean, square in (
            (encoder_gradient, encoder, encoder_mean, encoder_square),
            (decoder_gradient, decoder, decoder_mean, decoder_square),
        ):
            mean.lerp_(gradient, 1 - BETA1)
            square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            row.sub_(rate * mean / (square.sqrt() / root + EPSILON))
        decoder.div_(decoder.norm(dim=-1, keepdim=True).clamp_min(1e-12))

    def update_rows(self, sums: Sums, rates: Rates, rows: Rows) -> Float[Tensor, "m d"]:
        passed_on = rows.encoder.new_zeros(len(rows.encoder), rows.encoder.shape[2])
        if sums.pre_bias.shape[1]:
            passed_on = (self.totals(sums)[:, None] @ rows.encoder)[:, 0]
        self.adam_rows(*self.row_gradients(sums), rates, rows)
        return passed_on

    def largest(self, rows: Float[Tensor, "n f"], k: int) -> Int[Tensor, "n k"]:
        width = rows.shape[1]
        kept = _first_largest(rows, min(k, width)) & (rows > 0)
        columns = torch.where(kept, torch.arange(width, device=rows.device), width)
        found = columns.sort(dim=1).values[:, :k]
        padding = found.new_full((len(rows), max(0, k - width)), width)
        found = torch.cat([found, padding], 1)
        return torch.where(found == width, -1, found).int()

    def keep_largest(self, rows: Float[Tensor, "n f"], k: int) -> None:
        rows.masked_fill_(~(_first_largest(rows, k) & (rows > 0)), 0)

    def sum_by_feature(self, lists: Lists, slots: Float[Tensor, "m b k"]) -> Float[Tensor, "m f"]:
        count = slots.shape[2]
        columns = torch.where(used(lists, count), lists.features[..., :count].long(), lists.width)
        dense = slots.new_zeros(*slots.shape[:2], lists.width + 1).scatter(-1, columns, slots)
        return dense[..., : lists.width].sum(1)

    def least(self, lists: Lists) -> Float[Tensor, "m"]:
        slots = lists.values.shape[2]
        found = torch.where(used(lists, slots), lists.values, torch.inf).amin((1, 2))
        return torch.where(found.isinf(), 0, found)

    def add_where_fired(self, codes: Float[Tensor, "m b k"], of_samples: Float[Tensor, "m b"], slots: Tensor) -> None:
        slots.add_(of_samples[..., None] * (codes > 0))

    def fire_jump(
        self, lists: Lists, thresholds: Float[Tensor, "m f"]
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b"]]:
        pre = _used_values(lists)
        fires = used(lists, pre.shape[2]) & (pre > _of_slots(thresholds, lists, pre.shape[2]))
        lists.values[..., : pre.shape[2]] = pre * fires
        return pre, fires.sum(-1).to(pre.dtype)

    def back_through_jump(
        self,
        lists: Lists,
        thresholds: Float[Tensor, "m f"],
        bandwidth: float,
        pre: Float[Tensor, "m b k"],
        in_fires: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b k"],
    ) -> Float[Tensor, "m b k"]:
        slots = pre.shape[2]
        threshold, real = _of_slots(thresholds, lists, slots), used(lists, slots)
        near = ((pre - threshold).abs() < bandwidth / 2) / bandwidth
        in_log = -near * (threshold * gradients + in_fires[..., None]) * threshold * real
        gradients.mul_((pre > threshold) & real)
        return in_log

    def fire_gated(
        self, lists: Lists, gains: Float[Tensor, "m f"], biases: Float[Tensor, "m f"]
    ) -> tuple[Float[Tensor, "m b k"], Float[Tensor, "m b"]]:
        gates = _used_values(lists)
        slots = gates.shape[2]
        gates = gates * used(lists, slots)
        magnitudes = (_of_slots(gains, lists, slots) * gates + _of_slots(biases, lists, slots)).relu()
        lists.values[..., :slots] = magnitudes * used(lists, slots)
        return gates, gates.sum(-1)

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
        slots = gates.shape[2]
        gain, bias, own = (_of_slots(of, lists, slots) for of in (gains, biases, gate_bias))
        real = used(lists, slots)
        in_magnitude = gradients * ((gain * gates + bias > 0) & real)
        in_gates.add_(in_counted[..., None] * real)
        gradients.copy_(in_magnitude * gain + in_gates)
        return in_magnitude * gain * (gates - own), in_magnitude

    def through_relu(self, codes: Float[Tensor, "m b f"], gradients: Float[Tensor, "m b f"]) -> Float[Tensor, "m f"]:
        return gradients.mul_(codes > 0).sum(1)

    def through_jump(
        self,
        pre: Float[Tensor, "m b f"],
        thresholds: Float[Tensor, "m f"],
        bandwidth: float,
        in_fires: Float[Tensor, "m b"],
        gradients: Float[Tensor, "m b f"],
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m f"]]:
        threshold = thresholds[:, None]
        near = ((pre - threshold).abs() < bandwidth / 2) / bandwidth
        log = -(near * (threshold * gradients + in_fires[..., None]) * threshold).sum(1)
        return gradients.mul_(pre > threshold).sum(1), log

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
        gain, is_open = gains[:, None], pre > 0
        in_magnitude = gradients * (is_open & (gain * pre + biases[:, None] > 0))
        through = (in_gates + in_counted[..., None]) * is_open
        gradients.copy_(in_magnitude * gain + through)
        in_gain = (in_magnitude * gain * (pre - gate_bias[:, None])).sum(1)
        return through.sum(1), in_gain, in_magnitude.sum(1)

    def fire_planted(
        self, planted: Planted, products: Float[Tensor, "n f"], bias: Float[Tensor, "f"], codes: Float[Tensor, "b f"]
    ) -> None:
        codes.copy_((_planted_in(planted, len(products)) @ products + bias).relu())

    def add_planted(self, planted: Planted, rows: Float[Tensor, "b f"]) -> Float[Tensor, "n f"]:
        return _planted_in(planted, len(planted.directions)).mT @ rows


def listed(stack: Stack, pre: Float[Tensor, "m b f"]) -> Bool[Tensor, "m b f"]:
    """What the rule lists of these pre-activations."""
    rule = stack.activation
    if isinstance(rule, TopK):
        return _first_largest(pre.flatten(0, 1), rule.k).view_as(pre) & (pre > 0)
    if isinstance(rule, BatchTopK):
        return _first_largest(pre.flatten(1), rule.k * pre.shape[1]).view_as(pre) & (pre > 0)
    return pre > listing_floors(stack)[:, None]


def used(lists: Lists, slots: int) -> Bool[Tensor, "m b k"]:
    """Which of the first so many slots are in use."""
    return torch.arange(slots, device=lists.counts.device) < lists.counts[..., None]


def _first_largest(rows: Float[Tensor, "n f"], k: int) -> Bool[Tensor, "n f"]:
    """The k largest of each row; of those that tie for last the first."""
    least = rows.topk(k, dim=1).values[:, -1:]
    above, ties = rows > least, rows == least
    return above | (ties & (ties.cumsum(1) <= k - above.sum(1, keepdim=True)))


def _of_slots(by_feature: Float[Tensor, "m f"], lists: Lists, slots: int) -> Float[Tensor, "m b k"]:
    features = lists.features[..., :slots].long()
    return by_feature.gather(1, features.flatten(1)).view(features.shape)


def _used_values(lists: Lists) -> Float[Tensor, "m b k"]:
    return lists.values[..., : lists.fullest()].clone()


def _dense(sums: Sums, slots: Float[Tensor, "m e"]) -> Float[Tensor, "m b f"]:
    """The events' numbers, of every sample and feature; those that belong to none go to a column beyond the last."""
    starts, (members, events) = sums.events.starts, slots.shape
    width = starts.shape[1] - 1
    places = torch.arange(events, device=slots.device).repeat(members, 1)
    features = torch.searchsorted(starts[:, 1:].contiguous(), places, right=True).clamp_max(width)
    dense = slots.new_zeros(members, len(sums.x), width + 1)
    cells = sums.events.samples.long() * (width + 1) + features
    return dense.flatten(1).scatter(1, cells, slots).view_as(dense)[..., :width]


def _revived(places: Int[Tensor, "m f"], rows: Float[Tensor, "n d"]) -> Float[Tensor, "m f d"]:
    """Each feature's row; any where it has none."""
    return rows.index_select(0, places.clamp_min(0).long().flatten()).view(*places.shape, rows.shape[1])


def _planted_in(planted: Planted, directions: int) -> Float[Tensor, "b n"]:
    empty = planted.strengths.new_zeros(len(planted.strengths), directions)
    return empty.scatter_add(1, planted.places.long(), planted.strengths)
