"""Scores and tables of heads: of models made to be known, and against loops over stories, queries and keys."""

import numpy as np
import pytest
import torch

from unbraid.evaluation.heads import (
    AS_UNTRAINED,
    HeadEvaluation,
    ablation_tables,
    attention_tables,
    draw_heads,
    evaluate_heads,
    held_out_batches,
    hopfield_scores,
    question_groups,
    show_attention,
    support_distance,
)
from unbraid.metrics.attention import between_heads
from unbraid.metrics.heads import expected_cosine, explained, right
from unbraid.models import Routed
from unbraid.models.attention.hopfield import Hopfield

SETTINGS = HeadEvaluation(stories=70, heads=40)


def test_a_model_that_always_says_one_answer_has_the_share_of_it(make, world):
    models = make(members=2)
    for name in ("answer.weight", "answer.bias"):
        models.weights[name][:] = 0
    models.weights["answer.bias"][0, 2] = 1
    models.weights["answer.bias"][1, 1] = 1
    found = evaluate_heads(models, world, SETTINGS)
    answers = torch.cat([batch.answers.flatten() for batch in held_out_batches(world, 70)])
    shares = [(answers == answer).double().mean().item() for answer in (2, 1)]
    assert found.values["accuracy"].tolist() == pytest.approx(shares)
    assert found.values["importance_most"].tolist() == [0, 0]
    assert found.values["idle"].tolist() == [1, 1]


def test_of_untrained_models_every_score_is_its_own_chance(make, world):
    """They are what chance is where it is the same model before training."""
    found = evaluate_heads(make(members=2), world, SETTINGS)
    for name in (*AS_UNTRAINED, "attention_gradient"):
        torch.testing.assert_close(found.values[name], found.chance[name], equal_nan=True)
    torch.testing.assert_close(found.tables["support"], found.tables["support_untrained"])
    assert found.chance["accuracy"].tolist() == pytest.approx([world.shortcuts()["chance"]] * 2)
    assert found.chance["head_cosine"].tolist() == pytest.approx([expected_cosine(8)] * 2)
    assert found.chance["attention_entropy"].tolist() == [1, 1]
    assert found.chance["attention_gradient_left"].tolist() == [1, 1]


def test_members_are_examined_as_if_alone(make, world):
    models = make(members=3)
    together, alone = evaluate_heads(models, world, SETTINGS), evaluate_heads(models.member(1), world, SETTINGS)
    for part in ("values", "chance", "tables"):
        for name, value in getattr(alone, part).items():
            torch.testing.assert_close(getattr(together, part)[name][1:2], value, equal_nan=True, rtol=0, atol=0)


def test_scores_are_of_the_last_layer_or_of_the_best_head(make, world):
    found = evaluate_heads(make(), world, SETTINGS)
    assert found.values["support_best"].item() == found.tables["support"].max().item()
    assert found.values["support_mass"].item() == pytest.approx(found.tables["support"][0, 1].mean().item())
    assert found.values["head_cka"].item() == pytest.approx(between_heads(found.tables["cka"][:, 1]).item())
    quietest = int(found.tables["activity"][0, 1].argmin())
    assert found.values["least_used_head_drop"].item() == found.tables["largest_drop"][0, 1, quietest].item()


def test_fresh_stories_are_the_same_whatever_their_number(world):
    few, many = held_out_batches(world, 10), held_out_batches(world, 100)
    tokens = few[0].tokens
    assert (many[0].tokens[:10, : tokens.shape[1]] == tokens[:, : many[0].tokens.shape[1]]).all()
    assert sum(len(batch.tokens) for batch in many) == 100


@pytest.mark.parametrize("causal", [True, False])
def test_where_heads_look_is_what_loops_over_the_patterns_find(make, world, causal):
    """70 stories are two batches, of unequal size and padded to other lengths."""
    one, batches = make(causal=causal), held_out_batches(world, 70)
    assert [len(batch.tokens) for batch in batches] == [64, 6]
    found = attention_tables(one, batches)
    support, uniform, evenness = [], [], []
    for batch in batches:
        pattern = one.forward(batch.tokens, ["blocks.1.attn.hook_pattern"]).recorded["blocks.1.attn.hook_pattern"]
        for b in range(len(batch.tokens)):
            length = int(batch.mask[b].sum())
            for q, place in enumerate(batch.asked[b].tolist()):
                told = batch.support[b, q].nonzero()[:, 0].tolist()
                support.append(pattern[0, b, 1, place, told].sum().item())
                uniform.append(len(told) / (place + 1 if causal else length))
            for t in range(1 if causal else 0, length):
                keys = pattern[0, b, 1, t, : t + 1 if causal else length].double().numpy()
                evenness.append(np.exp(-(keys * np.log(keys)).sum()) / len(keys))
    assert found["support"][0, 1, 1].item() == pytest.approx(np.mean(support), rel=1e-4)
    assert found["uniform"].item() == pytest.approx(np.mean(uniform), rel=1e-4)
    assert found["attention_entropy"][0, 1, 1].item() == pytest.approx(np.mean(evenness), rel=1e-4)


def test_what_heads_write_and_read_is_taken_over_all_stories(make, world):
    one, batches = make(), held_out_batches(world, 70)
    found = attention_tables(one, batches)
    names = ["blocks.0.attn.hook_result", "blocks.0.attn.hook_z"]
    lengths, read, values, means = [], [], [], []
    for batch in batches:
        written, z = (one.forward(batch.tokens, names).recorded[name][0] for name in names)
        for b in range(len(batch.tokens)):
            for t in range(int(batch.mask[b].sum())):
                lengths.append(written[b, :, t].norm(dim=-1))
                read.append(z[b, :, t])
                values.append(batch.factors["person"][b, t].item())
            means.append(written[b][:, batch.mask[b]].mean(1))
    activity = torch.stack(lengths).mean(0)
    torch.testing.assert_close(found["activity"][0, 0], activity / activity.sum())
    place = list(batches[0].factors).index("person")
    expected = explained(torch.stack(read)[None], torch.tensor(values))[0]
    torch.testing.assert_close(found["explained"][0, 0, :, place], expected, rtol=1e-4, atol=1e-5)
    cosines = torch.nn.functional.cosine_similarity(*torch.stack(means).unbind(1), dim=-1).abs().mean()
    assert found["cosine"][0, 0, 0, 1].item() == pytest.approx(cosines.item(), rel=1e-4)


def test_a_routed_head_is_looked_at_where_tokens_take_it(make, world):
    """Loops over the tokens whose gate is open; at a question that does not take the head, nothing is looked at."""
    one, batches = make(heads=4, attention=Routed(k=2)), held_out_batches(world, 70)
    found = attention_tables(one, batches)
    names = ["blocks.1.attn.hook_pattern", "blocks.1.attn.hook_gate", "blocks.1.attn.hook_z"]
    support, evenness, read, values = [], [], [], []
    for batch in batches:
        recorded = one.forward(batch.tokens, names).recorded
        pattern, gate, z = (recorded[name][0] for name in names)
        for b in range(len(batch.tokens)):
            for q, place in enumerate(batch.asked[b].tolist()):
                told = batch.support[b, q].nonzero()[:, 0].tolist()
                support.append(pattern[b, 1, place, told].sum().item() if gate[b, place, 1] > 0 else 0.0)
            for t in range(int(batch.mask[b].sum())):
                read.append(z[b, :, t] * gate[b, t, :, None])
                values.append(batch.factors["person"][b, t].item())
                if t and gate[b, t, 1] > 0:
                    keys = pattern[b, 1, t, : t + 1].double().numpy()
                    evenness.append(np.exp(-(keys * np.log(keys)).sum()) / len(keys))
    assert found["support"][0, 1, 1].item() == pytest.approx(np.mean(support), rel=1e-4)
    assert found["attention_entropy"][0, 1, 1].item() == pytest.approx(np.mean(evenness), rel=1e-4)
    place = list(batches[0].factors).index("person")
    expected = explained(torch.stack(read)[None], torch.tensor(values))[0]
    torch.testing.assert_close(found["explained"][0, 1, :, place], expected, rtol=1e-4, atol=1e-5)


def test_tables_have_a_layer_and_a_head_axis(make, world):
    found = attention_tables(make(heads=4, layers=3), held_out_batches(world, 8))
    shapes = {name: tuple(table.shape) for name, table in found.items()}
    factors = len(world.factors)
    assert shapes["support"] == shapes["attention_entropy"] == shapes["activity"] == (1, 3, 4)
    assert shapes["distance"] == shapes["cosine"] == shapes["cka"] == shapes["dependence"] == (1, 3, 4, 4)
    assert shapes["cka_layers"] == (1, 12, 12)
    torch.testing.assert_close(found["cka_layers"][0, 4:8, 4:8], found["cka"][0, 1])
    assert shapes["explained"] == (1, 3, 4, factors)
    assert "usage" not in shapes


def test_heads_that_write_the_same_predict_each_other_and_dealt_stories_do_not(make, world):
    """Head 1 of the last layer reads the values of head 0 by the same attention, and writes them mirrored."""
    models = make(layers=2, positions="learned")
    qkv, out = models.weights["blocks.1.attn.qkv"], models.weights["blocks.1.attn.out"]
    for part in range(0, 24, 8):
        qkv[:, part + 4 : part + 8] = qkv[:, part : part + 4]
    out[:, :, 4:] = -out[:, :, :4]
    found = evaluate_heads(models, world, HeadEvaluation(stories=64, heads=64))
    assert found.values["head_dependence"].item() > 0.999
    assert found.values["head_dependence_nonlinear"].item() > 0.9
    assert found.tables["cosine"][0, 1, 0, 1].item() == pytest.approx(1, abs=1e-4)
    assert abs(found.chance["head_dependence"].item()) < 0.2
    assert abs(found.chance["head_dependence_nonlinear"].item()) < 0.2


def test_heads_to_show_are_drawn_by_the_seed_of_the_member(make, world):
    models = make(members=30, heads=4, layers=3)
    drawn = [draw_heads(models.member(index)) for index in range(30)]
    assert all(len(set(heads)) == 4 for heads in drawn)
    assert {head for heads in drawn for head in heads} == {(layer, head) for layer in range(3) for head in range(4)}
    assert drawn[3] == draw_heads(models.member(3)) == show_attention(models.member(3), world, 1).drawn
    assert len(draw_heads(make(heads=1))) == 2


def test_a_head_that_nothing_reads_is_needed_for_nothing(make, world):
    one, batches = make(), held_out_batches(world, 40)
    out = one.weights["blocks.1.attn.out"]
    out[:, :, 4:] = 0  # of 8 columns the last four are those of head 1
    found = ablation_tables(one, batches)
    for name in ("importance", "needed", "largest_drop", "dealt_drop"):
        assert found[name].shape == (1, 2, 2)
        assert found[name][0, 1, 1].item() == 0, name


def test_importance_is_the_accuracy_lost_by_writing_nothing(make, world):
    """Silencing is as good as a head whose columns of the output are zero."""
    one, batches = make(), held_out_batches(world, 40)
    found = ablation_tables(one, batches)

    def answered() -> torch.Tensor:
        return torch.cat([right(one.read(one.forward(b.tokens), b.asked), b.answers).flatten(1) for b in batches], 1)

    whole = answered()
    one.weights["blocks.0.attn.out"][:, :, :4] = 0
    without = answered()
    lost = whole.double().mean() - without.double().mean()
    assert found["importance"][0, 0, 0].item() == pytest.approx(lost.item())
    assert found["needed"][0, 0, 0].item() == pytest.approx((whole & ~without).double().mean().item())
    assert (whole & ~without).any()
    assert (found["largest_drop"] >= found["importance"] - 1e-9).all()


def test_questions_are_grouped_by_answer_order_and_distance(world):
    batches = held_out_batches(world, 70)
    answers, order, quarters = question_groups(batches)
    assert answers.tolist() == torch.cat([batch.answers.flatten() for batch in batches]).tolist()
    assert order.tolist() == [0, 1] * 70
    far = support_distance(batches[0])
    first = batches[0]
    expected = int(first.asked[0, 0]) - int(first.support[0, 0].nonzero().max())
    assert far[0].item() == expected
    assert set(quarters.tolist()) <= {0, 1, 2, 3}
    apart = torch.cat([support_distance(batch) for batch in batches])
    assert apart[quarters == 0].max() <= apart[quarters == quarters.max()].min()


def test_other_attention_has_nothing_to_say(make, world):
    assert hopfield_scores(make(), held_out_batches(world, 4)[0]) == {}


SLOPES = (1.0, 0.0)
"""By nearness, of the two heads."""


def averages(keys, tokens, slope):
    """Where a head that hears nothing rests: at the mean of each prefix, weighed by nearness; and how many that is."""
    for length in range(1, tokens + 1):
        weights = np.exp(-slope * np.arange(length)[::-1])
        weights /= weights.sum()
        yield weights @ keys[:length], np.exp(-(weights * np.log(weights)).sum())


def different(places, near):
    kept = []
    for place in places:
        if all(np.linalg.norm(place - other) > near for other in kept):
            kept.append(place)
    return len(kept)


def test_very_warm_heads_recall_an_average_of_what_they_may_see_and_very_cold_ones_single_tokens(make, world):
    batch = held_out_batches(world, 8)[0]
    one = make(attention=Hopfield())
    beta = one.weights["blocks.1.attn.log_beta"]
    beta[:] = -20.0
    warm = hopfield_scores(one, batch)
    keys = one.forward(batch.tokens, ["blocks.1.attn.hook_k"]).recorded["blocks.1.attn.hook_k"][0].double().numpy()
    shares, effective = [], []
    for story, tokens in enumerate(batch.mask.sum(1).tolist()):
        for head, slope in enumerate(SLOPES):
            own = keys[story, head, :tokens]
            places, numbers = zip(*averages(own, tokens, slope), strict=True)
            shares.append(different(places, 1e-3 * np.linalg.norm(own, axis=1).max()) / tokens)
            effective += numbers
    assert warm["recalled"].item() == pytest.approx(np.mean(effective), rel=1e-3)
    assert warm["attractors"].item() == pytest.approx(np.mean(shares))
    beta[:] = 20.0
    cold = hopfield_scores(one, batch)
    assert cold["recalled"].item() < 1.1
    assert 1 / batch.mask.sum(1).max() < cold["attractors"].item() <= 1
    torch.testing.assert_close(cold["store_separation"], warm["store_separation"])


def test_stories_are_told_in_words_with_their_patterns(make, world):
    one = make(layers=3)
    found = show_attention(one, world, 2)
    batch = world.batch(0, 2, split="evaluation")
    assert len(found.stories) == 2
    card = found.stories[1]
    assert card["words"] == [world.vocabulary[word] for word in batch.tokens[1].tolist() if word]
    assert [card["words"][place] for place in card["asked"]] == ["?"] * len(card["asked"])
    assert card["answers"] == [world.answers[answer] for answer in batch.answers[1].tolist()]
    assert card["said"] == [world.answers[a] for a in one.read(one.forward(batch.tokens), batch.asked)[0, 1].argmax(-1)]
    for places, answer in zip(card["support"], card["answers"], strict=True):
        assert answer in [card["words"][place] for place in places]
    pattern = one.forward(batch.tokens, ["blocks.2.attn.hook_pattern"]).recorded["blocks.2.attn.hook_pattern"]
    assert found.patterns.shape == (2, 3, 2, batch.tokens.shape[1], batch.tokens.shape[1])
    np.testing.assert_allclose(found.patterns[:, 2], pattern[0].numpy(), atol=1e-3)
