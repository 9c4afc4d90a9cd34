"""What each constraint is named after moves as named, when models descend it and nothing else: over the registry.

Untrained heads attend widely, write evenly and predict each other, so that everything named can fall. Where a
published form, or one that is kept for old runs, does not do what the name says, its docstring says so, and it is held
to that here.
"""

import pytest
import torch

from unbraid.metrics import attention, heads
from unbraid.models import Transformer, start_models
from unbraid.models.constraints import CONSTRAINTS, costs, recorded_for
from unbraid.worlds.stories import Stories

WORLD = Stories(task="one_fact", people=2, places=3, rounds=1)
MODEL = Transformer(d_model=16, heads=2, d_ff=8, layers=1, positions="learned")
STEPS, RATE, STORIES = 150, 0.01, 64
PATTERN, READ, WRITTEN = (f"blocks.0.attn.hook_{name}" for name in ("pattern", "z", "result"))


def cosine_of_what_heads_write(recorded, batch):
    return attention.between_heads(heads.cosine_redundancy(heads.pooled(recorded[WRITTEN], batch.mask)))


def largest_r2(recorded, batch):
    """Held out; linear or not, whichever is larger."""
    pooled = heads.pooled(recorded[WRITTEN], batch.mask)
    return torch.stack([heads.largest_between(heads.held_out_r2(pooled, kernel)) for kernel in ("linear", "rbf")]).amax(
        0
    )


def effective_keys(recorded, batch):
    keys = attention.allowed(batch.mask, causal=True)
    return attention.over_queries(attention.attention_entropy(recorded[PATTERN], keys), batch.mask[None, :, None]).mean(
        1
    )


def evenness_of_what_heads_write(recorded, batch):
    return heads.evenness(attention.over_queries(recorded[WRITTEN].norm(dim=-1), batch.mask[None, :, None]))


MEASURES = {
    "orthogonality": cosine_of_what_heads_write,
    "independence": largest_r2,
    "attention_entropy": effective_keys,
    "head_usage": evenness_of_what_heads_write,
}
"""What each is named after; all are to fall."""
DO_NOT = {
    ("orthogonality", "published"),
    ("independence", "published"),
    ("independence", "info_nce_bound"),
    ("independence", "club_unit_length"),
}
"""The forms that do not lower it, or not reliably."""
CASES = [(name, form) for name, kind in CONSTRAINTS.items() for form in kind.model_fields["form"].annotation.__args__]


def descend(name, form):
    """Before and after models have descended the constraint alone, on fresh stories."""
    constraint = CONSTRAINTS[name](form=form)
    models = start_models(MODEL, len(WORLD.vocabulary), WORLD.length, len(WORLD.answers), [0, 1]).requires_grad_copy()
    adam = torch.optim.Adam(models.parameters().values(), RATE)
    measured = [measure(name, models)]
    for step in range(STEPS):
        output = models.forward(WORLD.batch(step, STORIES).tokens, recorded_for({name: constraint}, MODEL.layers))
        adam.zero_grad()
        costs({name: constraint}, output, MODEL.layers)[name].sum().backward()
        adam.step()
    return [*measured, measure(name, models)]


@torch.no_grad()
def measure(name, models):
    batch = WORLD.batch(0, 128, split="evaluation")
    return MEASURES[name](models.forward(batch.tokens, [PATTERN, READ, WRITTEN]).recorded, batch)


def test_every_constraint_has_a_measure_of_what_it_is_named_after():
    assert set(MEASURES) == set(CONSTRAINTS)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_what_it_is_named_after_falls_or_the_docstring_says_that_it_does_not(name, form):
    before, after = descend(name, form)
    if (name, form) in DO_NOT:
        assert (after > 0.8 * before).any()
        assert form in CONSTRAINTS[name].__doc__
    else:
        assert (after < 0.7 * before).all()
