from dataclasses import replace

import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import AuxK, Dictionary, Stack, TopK
from unbraid.dictionaries.mechanisms import Forward, Reallocation, Signals
from unbraid.dictionaries.mechanisms.directions import own_seeds
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit, inputs_of, train
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs
from unbraid.schedule import moment_after
from unbraid.worlds import Superposition

FEATURES, DIMENSIONS = 6, 4
STACK = Stack.start(Dictionary(d_sae=FEATURES), DIMENSIONS, [0, 1])


def pass_of(rates, rng, samples=20):
    """A pass in which feature f fires in the first `rates[f]` of the samples, and reconstructs badly."""
    values = (torch.arange(samples)[:, None] < torch.tensor(rates) * samples).float()
    x = torch.from_numpy(rng.standard_normal((samples, DIMENSIONS))).float()
    reconstruction = torch.from_numpy(rng.standard_normal((2, samples, DIMENSIONS))).float()
    return Forward(x, Codes.dense(values.expand(2, samples, FEATURES)), reconstruction)


def after(mechanism, passes):
    memory = mechanism.start(STACK)
    for forward in passes:
        memory = mechanism.observe(forward, memory, STACK, Signals())
    return memory


def test_activity_is_a_mean_corrected_for_its_age(rng):
    """Without the correction .5 would look like .5 · (1 - .9³) = .14, and be idle."""
    mechanism = Reallocation(threshold=0.2, momentum=0.9, every=3, form="published")
    memory = after(mechanism, [pass_of([0.5, 0.5, 0.1, 0.0, 0.25, 1.0], rng)] * 3)
    assert mechanism.idle(memory).tolist() == [[False, False, True, True, False, False]] * 2


def test_the_bar_is_relative_to_the_mean_activity_and_as_published_absolute(rng):
    passes = [pass_of([0.4, 0.4, 0.05, 0.0, 0.4, 0.4], rng)] * 2
    for form, threshold, expected in [
        ("corrected", 0.5, [False, False, True, True, False, False]),
        ("corrected", 0.1, [False, False, False, True, False, False]),
        ("published", 0.1, [False, False, True, True, False, False]),
        ("published", 0.5, [False] * 6),  # that would be everybody
    ]:
        mechanism = Reallocation(threshold=threshold, every=2, form=form)
        assert mechanism.idle(after(mechanism, passes)).tolist() == [expected] * 2


def test_the_idle_start_at_the_worst_reconstructed_samples_each_at_another(rng):
    mechanism = Reallocation(threshold=0.5, every=2)
    forward = pass_of([0.4, 0.4, 0.0, 0.0, 0.0, 0.4], rng)
    reset = mechanism.edit(forward, after(mechanism, [forward] * 2), STACK, Signals())
    assert reset is not None
    assert reset.features.tolist() == [[False, False, True, True, True, False]] * 2
    for member in range(2):
        residuals = (forward.x - forward.reconstruction[member]).numpy()
        order = np.argsort(-np.linalg.norm(residuals, axis=1))[:3]
        expected = residuals[order] / np.linalg.norm(residuals[order], axis=1, keepdims=True)
        ranked = sorted([2, 3, 4], key=lambda f: float(STACK.decoder[member, f, 0]))
        np.testing.assert_allclose(reset.decoder[member, ranked], expected, rtol=1e-5)
        length = 0.2 * float(STACK.encoder[member, [0, 1, 5]].norm(dim=-1).mean())
        np.testing.assert_allclose(reset.encoder[member, ranked], length * expected, rtol=1e-5)


def test_more_idle_than_samples_that_are_wrong_wait(rng):
    mechanism, forward = Reallocation(threshold=0.5, every=1), pass_of([1.0, 0, 0, 0, 0, 0], rng, samples=4)
    perfect = Forward(forward.x, forward.codes, forward.x.expand(2, 4, DIMENSIONS).clone())
    perfect.reconstruction[:, :3] += torch.tensor([1.0, 0, 0, 0])
    memory = after(mechanism, [forward])
    reset = mechanism.edit(perfect, memory, STACK, Signals())
    assert reset is not None
    assert reset.features.sum(-1).tolist() == [3, 3]
    nothing_wrong = Forward(forward.x, forward.codes, forward.x.expand(2, 4, DIMENSIONS))
    assert mechanism.edit(nothing_wrong, memory, STACK, Signals()) is None


def test_as_published_directions_are_random_of_length_one_and_each_members_own(rng):
    mechanism, forward = Reallocation(threshold=0.2, every=1, form="published"), pass_of([0.4] * 3 + [0.0] * 3, rng)
    memory = after(mechanism, [forward])
    resets = [mechanism.edit(forward, memory, STACK, Signals()) for _ in range(2)]
    later = mechanism.edit(forward, {**memory, "steps": memory["steps"] + 1}, STACK, Signals())
    assert resets[0] is not None
    assert resets[1] is not None
    assert later is not None
    assert torch.equal(resets[0].decoder, resets[1].decoder)
    assert not torch.equal(resets[0].decoder, later.decoder)
    assert not torch.equal(resets[0].decoder[0], resets[0].decoder[1])
    torch.testing.assert_close(resets[0].decoder[:, 3:].norm(dim=-1), torch.ones(2, 3))
    assert len(set(own_seeds(Stack.start(Dictionary(d_sae=50), 8, range(30))).tolist())) == 30


def test_features_are_judged_only_every_so_many_steps_and_only_when_as_old(rng):
    mechanism, forward = Reallocation(threshold=0.5, every=3), pass_of([0.4, 0.4, 0.4, 0.4, 0.0, 0.0], rng)
    memory, reset_at = mechanism.start(STACK), []
    for step in range(1, 13):
        memory = mechanism.observe(forward, memory, STACK, Signals())
        if mechanism.edit(forward, memory, STACK, Signals()) is not None:
            reset_at.append(step)
            late = step == 6
            for name in ("activity", "age"):
                memory[name][:, 4 if late else 5 :] = 0
        if step == 4:
            memory["age"][:] = 0  # as if everyone had started anew between two checks
            memory["activity"][:] = 0
    assert reset_at == [3, 9, 12]


@pytest.mark.parametrize(
    ("form", "scale", "expected"), [("corrected", 0.5, 0.5), ("corrected", 1.0, 1.0), ("published", 0.5, 1.0)]
)
def test_what_starts_anew_is_as_loud_as_it_is_told_and_as_published_as_the_others(form, scale, expected, rng):
    mechanism = Reallocation(threshold=0.2, every=1, encoder_scale=scale, form=form)
    forward = pass_of([0.4] * 3 + [0.0] * 3, rng)
    reset = mechanism.edit(forward, after(mechanism, [forward]), STACK, Signals())
    assert reset is not None
    others = STACK.encoder[:, :3].norm(dim=-1).mean(-1, keepdim=True)
    torch.testing.assert_close(reset.encoder[:, 3:].norm(dim=-1), expected * others.expand(2, 3))
    torch.testing.assert_close(reset.decoder[:, 3:].norm(dim=-1), torch.ones(2, 3))


@pytest.mark.parametrize("form", ["corrected", "published"])
@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, [2, 4, 6, 8, 10, 12, 14, 16]),  # not in the last fifth
        ({"decay_share": 0.5}, [2, 4, 6, 8]),  # at 10 the rate is about to fall
        ({"decay_share": 0.1}, [2, 4, 6, 8, 10, 12, 14, 16]),
        ({"until": 1.0}, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        ({"until": 0.25}, [2, 4]),
    ],
)
def test_nothing_starts_anew_too_late_except_as_published(schedule, expected, form, rng):
    settings, training = dict(schedule), {"steps": 20}
    until = {"until": settings.pop("until")} if "until" in settings else {}
    mechanism = Reallocation(threshold=0.2, every=2, momentum=0.0, form=form, **until)
    forward, memory, anew = pass_of([0.4] * 3 + [0.0] * 3, rng), mechanism.start(STACK), []
    for position in range(20):
        memory = mechanism.observe(forward, memory, STACK, Signals())
        now = replace(forward, moment=moment_after(position, Training(**training, **settings)))
        if mechanism.edit(now, memory, STACK, Signals()) is not None:
            anew.append(position + 1)
    assert anew == (expected if form == "corrected" else list(range(2, 21, 2)))


def explained_variance(mechanisms):
    """Of top-k dictionaries, many of whose features die, after a training that restarts them to its end or does not."""
    world = Superposition(dimensions=64, n_features=256, active=5.0, decay=0.98)
    rule = TopK(k=5, auxk=AuxK(weight=0))
    pace = Training(steps=400, batch=256, learning_rate=3e-3)
    stack = fit(world, Dictionary(d_sae=256, activation=rule), mechanisms, pace, seeds=[0, 1, 2])
    x = world.batch(0, 4096, split="evaluation").x
    left = (x - stack.decode(stack.encode(x))).square().sum((1, 2))
    return 1 - left / (x - x.mean(0)).square().sum()


def test_explained_variance_is_no_lower_with_it_than_without():
    """Restarting to the last step, at full length, leaves features that say nothing and fire everywhere."""
    without, late = explained_variance([]), Reallocation(every=50, momentum=0.9, until=1.0, encoder_scale=1.0)
    assert (explained_variance([Reallocation(every=50, momentum=0.9)]) >= without).all()
    assert (explained_variance([late]) < without - 0.03).all()


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_features_that_were_dead_fire_again(form):
    world, training = Superposition(dimensions=8, n_features=12, active=2.0), Training(steps=30, batch=64)
    mechanisms = {"reallocation": stack_configs([Reallocation(every=10, form=form)] * 2)}
    state = State.start(Dictionary(d_sae=16), 8, mechanisms, [0, 1])
    state.stack.encoder_bias[:, :5] = -100
    for _ in train(state, inputs_of(world, training), training, mechanisms):
        pass
    counts = state.stack.encode(world.batch(0, 512, split="evaluation").x).counts()
    assert (counts > 0).all()
    assert (state.adam.age["encoder"][:, :5] == 20).all()
    assert (state.adam.age["encoder"][:, 5:] == 30).all()
