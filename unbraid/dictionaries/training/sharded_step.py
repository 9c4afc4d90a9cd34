"""One training step of a dictionary whose features are shared out among processes: what each of them does.

    own       fire: the encoder's product over own rows, and the rule; top-k rules exchange candidates (`selection.py`)
    own       decode: codes · own decoder rows
    together  reconstruction = Σ over shards of that, b·d numbers, and what is added to it
    own       error, ∂code = error · direction + ∂penalties, ∂pre through the rule
    together  costs and L0, one short sum; the gradients of what has no features (pre-bias); a scalar, where clipped
    own       gradients of own rows, Adam, unit rows, samples since each feature fired

The mathematics are those of `step.py`, and the tests hold the two against each other. What fires is in lists, or dense
while nearly everything does; no process needs to know which way another took. Where there are more processes than
shards, each data rank has its samples, and the gradients of a shard are added up over data ranks before Adam.

A mechanism's cost is a sum over features, so that each process pays its own part, or it is given the codes of all
features and all samples: lists of what fired, gathered (`Mechanism.sharding`).
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import pad

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels as lists_kernels
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Named, Relu, TopK
from unbraid.dictionaries.lists import Inputs, Lists, encode_lists, too_dense
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanisms, Signals, gather_signals
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.dictionaries.training import kernels, sharded_kernels
from unbraid.dictionaries.training.adam import ROWS, WITHOUT_FEATURES
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import Costs, find_costs, loss_of
from unbraid.dictionaries.training.rules import Back, Dense, Fires, Learned, fire, fire_dense
from unbraid.dictionaries.training.selection import keep_of_batch, keep_of_sample
from unbraid.dictionaries.training.sharded_revival import OwnRevived, revive_own
from unbraid.dictionaries.training.step import State, StepOutput, apply_gradients, check_finite, rates
from unbraid.errors import UserError
from unbraid.mesh import Mesh
from unbraid.schedule import BETA1, BETA2, moment_after

RULES = (Relu, TopK, BatchTopK, JumpRelu, Gated)


def check_sharding(
    dictionary: Dictionary, mechanisms: Mechanisms, training: Training, workers: int, shards: int
) -> None:
    """UserError where a dictionary cannot be shared out among so many processes."""
    if workers % shards:
        raise UserError(f"shards is {shards} of {workers} workers; accepted: a number that divides workers")
    if shards > dictionary.d_sae or workers // shards > training.batch:
        raise UserError(
            f"{workers} workers in {shards} shards are too many for {dictionary.d_sae} features and batches of "
            f"{training.batch}; accepted: at least a feature for each shard, and a sample for each group of shards"
        )
    if type(dictionary.activation) not in RULES:
        raise UserError(
            "workers is above 1 and dictionary.activation draws at random for all features at once; accepted: "
            "activation.kind relu, topk, batchtopk, jumprelu or gated, or workers = 1"
        )
    for name, mechanism in mechanisms.items():
        if (reason := mechanism.needs_whole()) is not None:
            raise UserError(f"workers is above 1 and mechanisms.{name} {reason}; accepted: without it, or workers = 1")


@torch.no_grad()
def sharded_step(
    state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms, features: int, mesh: Mesh
) -> StepOutput:
    """Advance this process's part of a dictionary of so many `features` by one batch, in place; all call it together.

    `inputs` are the whole batch, the same for everybody.
    """
    stack, everything, batch = state.stack, inputs, len(inputs.x)
    inputs = _own_samples(everything, mesh)
    x, target, share = inputs.x, inputs.x if inputs.target is None else inputs.target, len(inputs.x) / batch
    signals = gather_signals(mechanisms, state.memories, stack)

    fires, memory = _fire(stack, inputs, batch, mesh)
    reconstruction = mesh.sum(fires.codes.decode(stack.decoder), "shards", "reconstruction") + _offset(stack, x)
    error, terms, in_again = reconstruction - target, {}, None
    terms["reconstruction"], slopes = loss_of(error, training)
    revived = revive_own(state, x, reconstruction, target, training, mesh)
    if revived.cost is not None:
        terms["auxk"] = revived.cost
    if fires.again is not None:
        other = mesh.sum(fires.again.decode(stack.decoder), "shards", "again") + _offset(stack, x) - target
        terms["auxiliary"], other_slopes = loss_of(other, training)
        in_again = fires.in_codes(other * other_slopes, stack.decoder)
    error = error * slopes

    forward = Forward(x, fires.codes, reconstruction, would_fire=fires.codes, other_target=inputs.target)
    whole = _whole(everything, fires, forward, state, mechanisms, features, mesh)
    costs = _costs("own", state, forward, terms, fires.counted, mechanisms, signals)
    joint = None if whole is None else _costs("gathered", state, whole, {}, None, mechanisms, signals)
    in_codes = fires.in_codes(error, stack.decoder)
    in_codes = costs.add_to(in_codes, fires.codes, codes_count=fires.counted is None)
    if joint is not None and joint.in_values is not None:
        in_codes += fires.own_of(joint.in_values / share, batch, mesh)
    back = fires.back(Learned(in_codes, costs.in_counted, in_again))
    report = _report(costs, terms, joint, fires.codes, back, batch, share, state.step, mesh)

    _update(state, _Gradient(fires, inputs, error, back, revived, costs.in_weights, share), training, mesh)
    stack.remember(memory)
    _conclude(state, fires.codes, whole, batch, features, training, mechanisms, signals, mesh)
    return report


def _own_samples(inputs: Inputs, mesh: Mesh) -> Inputs:
    if mesh.data == 1:
        return inputs
    some = mesh.samples(len(inputs.x))
    return Inputs(inputs.x[some], target=None if inputs.target is None else inputs.target[some])


def _offset(stack: Stack, x: Float[Tensor, "b d"]) -> Float[Tensor, "m _ o"]:
    """What is added to every reconstruction; all processes have it."""
    bias = stack.b_dec[:, None]
    return bias if stack.skip is None else bias + x @ stack.skip


@dataclass(frozen=True)
class _Fires:
    """What fires of own features, in lists or dense, and gradients back through it."""

    rule: Fires | Dense
    codes: Codes
    again: Codes | None
    lists: Lists | None

    @property
    def counted(self) -> Float[Tensor, "m b"] | None:
        return self.rule.counted

    def in_codes(self, error: Float[Tensor, "m b o"], decoder: Float[Tensor, "m f o"]) -> Float[Tensor, "m b k"]:
        """The gradient of every code: error · direction."""
        if self.lists is None:
            return error @ decoder.mT
        gradients = np.empty(self.codes.values.shape, np.float32)
        sharded_kernels.through_directions(
            *(np.asarray(self.lists.features), np.asarray(self.lists.counts)),
            *(error.contiguous().numpy(), decoder.numpy(), gradients),
        )
        return torch.from_numpy(gradients)

    def back(self, given: Learned) -> Back:
        return self.rule.back(given)

    def listed(self) -> tuple[Tensor, Tensor]:
        """Features and values in slots."""
        if self.codes.features is not None:
            return self.codes.features, self.codes.values
        slots = max(1, int(self.codes.l0().max()))
        features = (self.codes.values != 0).int().argsort(dim=-1, descending=True, stable=True)[..., :slots]
        return features, self.codes.values.gather(-1, features)

    def own_of(self, gradients: Float[Tensor, "m b k"], batch: int, mesh: Mesh) -> Tensor:
        """Of gradients in gathered codes those of own samples and features, in own slots."""
        features, values = self.listed()
        start = mesh.shard * (gradients.shape[-1] // mesh.shards)
        own = gradients[:, mesh.samples(batch), start : start + values.shape[-1]].to(values.dtype)
        own = own.masked_fill(values == 0, 0)
        if self.lists is not None:
            return own
        return torch.zeros_like(self.codes.values).scatter_add_(-1, features, own)


def _fire(stack: Stack, inputs: Inputs, batch: int, mesh: Mesh) -> tuple[_Fires, Named]:
    """What fires of own features, and what the rule will remember of it."""
    rule, lists, memory = stack.activation, None, {}
    if isinstance(rule, BatchTopK):
        wide = rule.model_copy(update={"k": -(-rule.k * batch // len(inputs.x))})  # all may be of these samples
        lists = encode_lists(replace(stack, activation=wide), inputs) or _all_positive(stack, inputs)
        least = keep_of_batch(lists, rule.k, batch, mesh)
        memory = {"threshold": rule.follow(stack.memory["threshold"], least)}
    elif isinstance(rule, TopK) or not too_dense(stack, inputs).any():
        lists = encode_lists(stack, inputs)
    if isinstance(rule, TopK) and lists is not None:
        keep_of_sample(lists, rule.k, mesh)
    if lists is None:
        dense = fire_dense(stack, stack.pre_activations(inputs.x))
        again = None if dense.again is None else Codes.dense(dense.again)
        return _Fires(dense, Codes.dense(dense.codes), again, None), memory
    fired, codes = fire(stack, lists), lists.codes()
    again = None if fired.again is None else Codes(codes.features, torch.as_tensor(fired.again), codes.width)
    return _Fires(fired, codes, again, lists), memory


def _all_positive(stack: Stack, inputs: Inputs) -> Lists:
    """Lists of all that is positive, where that is much."""
    codes = stack.pre_activations(inputs.x).relu_()
    features, values = _Fires(Dense(stack, codes, codes), Codes.dense(codes), None, None).listed()
    counts = (codes != 0).sum(-1)
    return Lists(features.int(), values.contiguous(), counts, stack.features)


def _whole(
    inputs: Inputs, fires: _Fires, own: Forward, state: State, mechanisms: Mechanisms, features: int, mesh: Mesh
) -> Forward | None:
    """The pass with the codes of all features and samples, where a mechanism wants it for its memory or its cost."""
    wanted = any(state.memories[name] or mechanism.sharding == "gathered" for name, mechanism in mechanisms.items())
    if not wanted:
        return None
    places, values = fires.listed()
    most = int(mesh.gather(torch.tensor([values.shape[-1]]), "everyone", "slots").max())
    places = (places + mesh.features(features).start).masked_fill(values == 0, 0).int()
    batch, padded = len(inputs.x), [pad(mine, (0, most - mine.shape[-1])) for mine in (places, values)]
    listed, strengths = (_gathered(mine, batch, mesh).flatten(2) for mine in padded)
    codes = Codes(listed, strengths, features)
    made = own.reconstruction if mesh.data == 1 else _gathered(own.reconstruction, batch, mesh)[:, :, 0].contiguous()
    return Forward(inputs.x, codes, made, would_fire=codes, other_target=inputs.target)


def _gathered(mine: Tensor, batch: int, mesh: Mesh) -> Tensor:
    """Everybody's m b k as m b s k: samples of data ranks one after the other, those of shards beside each other."""
    longest = mesh.samples(batch, 0)
    padded = pad(mine, (0, 0, 0, longest.stop - mine.shape[1]))
    ranks = mesh.gather(padded, "everyone", "lists").unflatten(0, (mesh.data, mesh.shards)).permute(0, 2, 3, 1, 4)
    some = [mesh.samples(batch, rank) for rank in range(mesh.data)]
    return torch.cat([samples[:, : s.stop - s.start] for samples, s in zip(ranks, some, strict=True)], 1)


def _costs(
    sharding: str,
    state: State,
    forward: Forward,
    terms: Named,
    counted: Tensor | None,
    mechanisms: Mechanisms,
    signals: Signals,
) -> Costs:
    """What the mechanisms of this sort cost."""
    these = {name: mechanism for name, mechanism in mechanisms.items() if mechanism.sharding == sharding}
    with torch.enable_grad():
        return find_costs(state, forward, terms, counted, these, signals)


def _report(
    costs: Costs,
    shared: Named,
    joint: Costs | None,
    codes: Codes,
    back: Back,
    batch: int,
    share: float,
    step: int,
    mesh: Mesh,
) -> StepOutput:
    """Costs and L0 of all; where one of them or a gradient is not finite, everybody stops here: nothing has changed."""
    own = {name: cost.double() * share for name, cost in costs.terms.items()}
    parts = [cost * (name not in shared or mesh.shard == 0) for name, cost in own.items()]
    parts += [codes.l0().double().sum(-1) / batch, back.in_pre.flatten(1).abs().amax(1).double()]
    sums = mesh.sum(torch.stack(parts), "everyone", "report")
    terms = {name: cost.float() for name, cost in zip(own, sums, strict=False)}
    terms |= {} if joint is None else joint.terms
    check_finite({f"loss term '{name}'": cost for name, cost in terms.items()}, step)
    check_finite({"gradient": sums[-1]}, step)
    return StepOutput(terms, sums[-2])


@dataclass(frozen=True)
class _Gradient:
    """All that the gradients of own weights are made of."""

    fires: _Fires
    inputs: Inputs
    error: Float[Tensor, "m b o"]
    back: Back
    revived: OwnRevived
    in_weights: Named
    share: float

    def arrays(self, stack: Stack, lists: Lists) -> list[np.ndarray]:
        """What the gradients of rows are sums of, for kernels; without a pre-bias that has no columns."""
        pre_bias = np.zeros((stack.members, 0), np.float32) if stack.pre_bias is None else stack.pre_bias.numpy()
        segments, errors = np.zeros(lists.width, np.int64), self.error.contiguous().numpy()[:, None]
        return [
            *(*_events(lists, self.back.in_pre), self.inputs.x.contiguous().numpy(), errors, segments, pre_bias),
            *(self.revived.places, self.revived.encoder, self.revived.decoder),
        ]

    def of_rows(self, stack: Stack) -> Named:
        """Those of encoder and decoder."""
        if self.fires.lists is not None:
            rows = {name: torch.empty_like(tensor) for name, tensor in stack.parameters().items() if name in ROWS}
            kernels.weight_gradients(*self.arrays(stack, self.fires.lists), *(rows[name].numpy() for name in ROWS))
            return rows
        encoder, decoder = self.back.in_pre.mT @ self.inputs.x, self.fires.codes.values.mT @ self.error
        if stack.pre_bias is not None:
            encoder -= self.back.total[..., None] * stack.pre_bias[:, None]
        return {"encoder": encoder, "decoder": decoder}

    def of_features(self) -> Named:
        """Those of weights that a feature has one of."""
        named = self.back.in_weights
        return {**named, "encoder_bias": named["encoder_bias"] + self.revived.in_bias}

    def of_output(self, stack: Stack, passed_on: Float[Tensor, "m d"] | None, mesh: Mesh) -> Named:
        """Those of what all processes have, given what own pre-activations say of the pre-bias."""
        of_error, named = self.error.sum(1), {}
        if stack.pre_bias is not None and passed_on is not None:
            through = mesh.sum(passed_on, "shards", "pre-bias")
            named["pre_bias"] = -through if stack.is_transcoder else of_error - through
        if stack.is_transcoder:
            named["decoder_bias"] = of_error
        if stack.skip is not None:
            named["skip"] = self.inputs.x.T @ self.error
        return named


def _update(state: State, gradient: _Gradient, training: Training, mesh: Mesh) -> None:
    """Adam's step on own rows, and everybody's same step on what all have."""
    stack, rate, lists = state.stack, rates(state, training), gradient.fires.lists
    plain = stack.decoder_norm == "unit" and training.clip is None and not gradient.in_weights
    if plain and mesh.data == 1 and lists is not None:
        blocks = -(-stack.features // kernels.BLOCK)
        passed_on = np.empty((stack.members, blocks, stack.d_in), np.float32)
        kernels.update_rows(*gradient.arrays(stack, lists), passed_on, *_adam(state, rate))
        gradients = gradient.of_features() | gradient.of_output(stack, torch.from_numpy(passed_on).sum(1), mesh)
        state.adam.update_others(stack.parameters(), gradients, rate)
        return
    totals = gradient.back.total + gradient.revived.in_bias
    passed_on = None if stack.pre_bias is None else (totals[:, None] @ stack.encoder)[:, 0]
    gradients = gradient.of_rows(stack) | gradient.of_features() | gradient.of_output(stack, passed_on, mesh)
    for name, more in gradient.in_weights.items():
        gradients[name] = gradients[name] + more
    gradients = {name: mesh.sum(gradients[name] * gradient.share, "data", "gradients") for name in stack.parameters()}
    if not plain:
        apply_gradients(state, gradients, _lengths(gradients, mesh), rate, training)
        return
    kernels.take_step(*(gradients[name].contiguous().numpy() for name in ROWS), *_adam(state, rate))
    state.adam.update_others(stack.parameters(), gradients, rate)


def _events(lists: Lists, in_pre: Float[Tensor, "m b k"]) -> list[np.ndarray]:
    """What fired, in the order of features: where each one's begin, samples, values and gradients."""
    features, values, counts = (np.asarray(part) for part in (lists.features, lists.values, lists.counts))
    shape = len(counts), int(counts.sum(1).max(initial=0))
    starts, samples = np.empty((len(counts), lists.width + 1), np.int64), np.empty(shape, np.int32)
    events = [starts, samples, np.empty(shape, np.float32), np.empty(shape, np.float32)]
    lists_kernels.sort_by_feature(features, values, in_pre.numpy(), counts, *events)
    return events


def _adam(state: State, rate: Float[Tensor, "m"]) -> list[np.ndarray]:
    """Count an update of rows; their rates and corrections, and the rows with their moments, for kernels."""
    adam, named = state.adam, state.stack.parameters()
    for name in ROWS:
        adam.age[name].add_(1)
    age = adam.age["encoder"]
    corrections = [(rate[:, None] / (1 - BETA1**age)).float().numpy(), (1 - BETA2**age).sqrt().float().numpy()]
    return corrections + [part[name].numpy() for name in ROWS for part in (named, adam.mean, adam.square)]


def _lengths(gradients: Named, mesh: Mesh) -> Float[Tensor, "m"]:
    """The length of each member's whole gradient: own rows by one sum, what all have once."""
    squares = {name: gradient.double().flatten(1).square().sum(1) for name, gradient in gradients.items()}
    own = torch.stack([square for name, square in squares.items() if name not in WITHOUT_FEATURES]).sum(0)
    shared = [square for name, square in squares.items() if name in WITHOUT_FEATURES]
    return torch.stack([mesh.sum(own, "shards", "length"), *shared]).sum(0).sqrt().float()


def _conclude(
    state: State,
    codes: Codes,
    whole: Forward | None,
    batch: int,
    features: int,
    training: Training,
    mechanisms: Mechanisms,
    signals: Signals,
    mesh: Mesh,
) -> None:
    """Count the samples since each feature fired, let mechanisms observe, and count the step."""
    stack = state.stack
    if state.since_fired is not None:
        counts = mesh.sum(codes.counts(), "data", "fired")
        state.since_fired.add_(batch).masked_fill_(counts > 0, 0)
    if whole is not None:
        seen = replace(whole, moment=moment_after(state.step, training))
        nothing, size = stack.encoder.new_zeros(1), (stack.members, features)  # as wide as the whole, without numbers
        rows = nothing.expand(*size, stack.d_in), nothing.expand(size), nothing.expand(*size, stack.d_out)
        wide = Stack(*rows, pre_bias=None, activation=stack.activation)
        for name, mechanism in mechanisms.items():
            if state.memories[name]:
                state.memories[name] = mechanism.observe(seen, state.memories[name], wide, signals)
    state.step += 1
