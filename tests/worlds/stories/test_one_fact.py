"""bAbI's task 1, rule by rule, against what its public generator prescribes and what was measured of it."""

import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from unbraid.worlds.stories import Stories

PEOPLE = {"mary", "john", "daniel", "sandra"}
PLACES = {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"}
VERBS = {"moved to", "went to", "went back to", "travelled to", "journeyed to"}
STORIES = 4000


def lines(tokens, world):
    words = " ".join(word for word in world.words(tokens) if word != "<pad>")
    return [line.strip() for line in re.findall(r"[^.?]*[.?]", words)]


@pytest.fixture(scope="module")
def stories():
    world = Stories()
    return [lines(tokens, world) for tokens in world.batch(0, STORIES).tokens]


@pytest.fixture(scope="module")
def moves(stories):
    """Of every statement who moves how to which place, and where those heard of are before it."""
    told = []
    for story in stories:
        where = {}
        for line in story:
            if line.endswith("."):
                person, verb, place = re.fullmatch(r"(\w+) (.*) the (\w+) \.", line).groups()
                told.append((person, verb, place, dict(where)))
                where[person] = place
    return told


def binomial(count, of, share):
    low, high = stats.binom.interval(1 - 1e-5, of, share)
    return low <= count <= high


def are_even(counts, kinds):
    assert set(counts) == set(kinds)
    return stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_a_story_is_two_statements_and_a_question_five_times(stories):
    assert all([line[-1] for line in story] == [".", ".", "?"] * 5 for story in stories)


def test_the_words_are_the_21_of_the_published_data_and_four_more():
    words = {*PEOPLE, *PLACES, *" ".join(VERBS).split(), "the", "where", "is", ".", "?"}
    assert len(words) == 21
    for layout in ("together", "single"):
        world = Stories(layout=layout)
        assert set(world.vocabulary) == words | {"<pad>", "<unk>", "<sep>", "<ssep>"}
        assert len(world.vocabulary) == 25
        assert set(world.answers) == PLACES


def test_a_move_leads_to_a_different_place_and_every_valid_pair_is_as_likely(moves):
    """Of n people heard of each has 5 places to go to, and each of the others 6."""
    for heard_of in range(5):
        now = [(person, place, where) for person, _, place, where in moves if len(where) == heard_of]
        assert all(where.get(person) != place for person, place, where in now)
        fresh = [place for person, place, where in now if person not in where]
        assert binomial(len(fresh), len(now), 6 * (4 - heard_of) / (24 - heard_of))
        assert not fresh or are_even(Counter(fresh), PLACES)
    again = [(person, place, where) for person, _, place, where in moves if person in where]
    assert are_even(Counter(person for person, _, _ in again), PEOPLE)
    pairs = Counter((where[person], place) for person, place, where in again)
    assert len(pairs) == 30
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-4


def test_each_verb_is_as_likely_whoever_moves(moves):
    assert are_even(Counter(verb for _, verb, _, _ in moves), VERBS)


def test_a_question_is_about_anybody_heard_of(stories):
    asked = Counter()
    for story in stories:
        heard_of = sorted({line.split()[0] for line in story[:5] if line.endswith(".")})
        asked[len(heard_of), heard_of.index(re.fullmatch(r"where is (\w+) \?", story[5])[1])] += 1
    for count in range(2, 5):
        assert are_even({who: times for (of, who), times in asked.items() if of == count}, range(count))


def test_one_question_an_example_looks_as_in_the_seed():
    """`john travelled to the hallway . <ssep> mary journeyed to the bathroom . <ssep> <sep> where is john ?`"""
    world = Stories(layout="single")
    batch = world.batch(0, 1000, "test")
    whole = Stories().batch(0, 200, "test")
    together = [lines(tokens, Stories()) for tokens in whole.tokens]
    for example, tokens in enumerate(batch.tokens):
        story, question = divmod(example, 5)
        told = [line for line in together[story][: 3 * question + 2] if line.endswith(".")]
        expected = [f"{line} <ssep>" for line in told] + [f"<sep> {together[story][3 * question + 2]}"]
        assert " ".join(word for word in world.words(tokens) if word != "<pad>") == " ".join(expected)
        assert batch.answers[example, 0] == whole.answers[story, question]
    assert re.fullmatch(
        r"\w+ [a-z ]+ to the \w+ \. <ssep> \w+ [a-z ]+ to the \w+ \. <ssep> <sep> where is \w+ \?",
        " ".join(world.words(batch.tokens[0][: int(batch.mask[0].sum())])),
    )


def test_shortcuts_are_as_right_as_was_measured_of_the_public_generator():
    scores = Stories().shortcuts()
    measured = {"last statement": 0.472, "most frequent": 0.378, "asked: any place of theirs": 0.694}
    for rule, share in measured.items():
        assert scores[rule] == pytest.approx(share, abs=0.01)
    assert scores["chance"] >= scores["last statement"]
    assert scores["majority answer"] == pytest.approx(1 / 6, abs=0.01)


def test_sequences_are_as_long_as_90_and_85_tokens():
    assert Stories().length == 10 * 7 + 5 * 4
    assert Stories(layout="single").length == 10 * 8 + 1 + 4
    assert np.isclose(Stories().batch(0, STORIES).mask.sum(1).double().mean(), 10 * 6.2 + 20, atol=0.1)
