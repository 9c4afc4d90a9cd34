"""What is kept for figures is what the model did."""

import numpy as np

from unbraid.examining import show


def test_stories_are_told_in_words_with_their_patterns(make, world):
    one = make(layers=3)
    found = show(one, world, 2)
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
