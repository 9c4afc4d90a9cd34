"""Each rule of thumb, worked out again from the text of the same stories."""

from collections import Counter
from math import gcd

import pytest

from tests.worlds.stories.reader import BOYS, GIRLS, NUMBERS, OPPOSITE, PEOPLE, PLACES, THINGS, first
from unbraid.worlds.stories import TASKS, Stories

COUNT = 300


def told(world):
    """Every question with the statements before it and the right answer."""
    batch = world.batch(0, COUNT, "shortcuts")
    for tokens, answers in zip(batch.tokens, batch.answers, strict=True):
        statements, sentence, left = [], [], iter(answers.tolist())
        for word in world.words(tokens):
            sentence.append(word)
            if word == ".":
                statements.append(sentence)
            if word == "?":
                yield list(statements), sentence, world.answers[next(left)]
            if word in ".?":
                sentence = []


def places(statements):
    return [place for words in statements if (place := first(words, PLACES))]


def last_statement(statements, question):
    return [places(statements)[-1]]


def most_frequent(statements, question):
    return [Counter(places(statements)).most_common(1)[0][0]]


def most_frequent_latest(statements, question):
    return [Counter(reversed(places(statements))).most_common(1)[0][0]]


def any_place_of_theirs(statements, question):
    said, been, person = {}, set(), None
    for words in statements:
        person = first(words, PEOPLE) or said[first(words, ("she", "he"))]
        said["she" if person in GIRLS else "he"] = person
        if person == first(question, PEOPLE):
            been.add(first(words, PLACES))
    return been


def pronouns_overlooked(statements, question):
    return [first(words, PLACES) for words in statements if words[0] == first(question, PEOPLE)][-1:]


def carrying_overlooked(statements, question):
    where, handled = {}, {}
    for words in statements:
        if thing := first(words, THINGS):
            handled[thing] = where[words[0]]
        else:
            where[words[0]] = first(words, PLACES)
    return [handled[first(question, THINGS)]]


def everybody_inside(statements, question):
    return [NUMBERS[sum(1 if "entered" in words else -1 for words in statements)]]


def leaving_overlooked_by_counting(statements, question):
    place = first(question, PLACES)
    return [NUMBERS[min(sum("entered" in words and place in words for words in statements), 6)]]


def leaving_overlooked_by_ratio(statements, question):
    boys, girls = (len({words[0] for words in statements} & set(some)) for some in (BOYS, GIRLS))
    common = max(gcd(boys, girls), 1)
    return [f"{boys // common}:{girls // common}"]


def as_way(directions):
    return [] if directions[0] == OPPOSITE[directions[1]] else [" ".join(directions)]


def last_statements(statements, question):
    return as_way([first(words, OPPOSITE) for words in statements[-2:]])


def directions_as_told(statements, question):
    ends = set(question) & set(PLACES)
    return as_way([first(words, OPPOSITE) for words in statements if ends & set(words)])


OF_PLACES = {
    "last statement": last_statement,
    "most frequent": most_frequent,
    "most frequent, latest": most_frequent_latest,
}
RULES = {
    "one_fact": {**OF_PLACES, "asked: any place of theirs": any_place_of_theirs},
    "two_facts": {**OF_PLACES, "asked: carrying overlooked": carrying_overlooked},
    "counting": {
        "everybody inside": everybody_inside,
        "asked: leaving overlooked": leaving_overlooked_by_counting,
    },
    "ratio": {"leaving overlooked": leaving_overlooked_by_ratio},
    "coreference": {
        **OF_PLACES,
        "asked: any place of theirs": any_place_of_theirs,
        "asked: pronouns overlooked": pronouns_overlooked,
    },
    "path": {"last statements": last_statements, "asked: directions as told": directions_as_told},
}


def right(possible, answer):
    return (answer in possible) / len(possible) if possible else 0


@pytest.mark.parametrize("task", TASKS)
def test_every_rule_is_as_right_as_the_text_says(task):
    world = Stories(task=task)
    scores, asked = world.shortcuts(COUNT), list(told(world))
    for name, rule in RULES[task].items():
        by_hand = [right(rule(statements, question), answer) for statements, question, answer in asked]
        assert scores.pop(name) == pytest.approx(sum(by_hand) / len(by_hand)), name
    overall = Counter(answer for _, _, answer in asked).most_common(1)[0][1]
    assert scores.pop("majority answer") == pytest.approx(overall / len(asked))
    questions = len(asked) // COUNT
    each = [Counter(a for _, _, a in asked[n::questions]).most_common(1)[0][1] for n in range(questions)]
    assert scores.pop("majority by question") == pytest.approx(sum(each) / len(asked))
    assert set(scores) <= {"chance", "without the question"}


def test_nothing_blind_to_the_question_is_better_than_the_fullest_place():
    """Anybody heard of may be asked for, so the best answer is where most of them are."""
    world, shares = Stories(), []
    for statements, _, _ in told(world):
        where = {words[0]: first(words, PLACES) for words in statements}
        shares.append(Counter(where.values()).most_common(1)[0][1] / len(where))
    assert world.shortcuts(COUNT)["without the question"] == pytest.approx(sum(shares) / len(shares))


def ways_of(statements):
    """Every way of two steps that can be gone, by walking from each place: no step leads back."""
    steps = {}
    for words in statements:
        (there, here), direction = [word for word in words if word in PLACES], first(words, OPPOSITE)
        steps.setdefault(here, {})[there] = direction
        steps.setdefault(there, {})[here] = OPPOSITE[direction]
    return [f"{steps[a][b]} {steps[b][c]}" for a in steps for b in steps[a] for c in steps[b] if c != a]


@pytest.mark.parametrize(("places", "expected"), [(3, 1 / 2), (6, 7 / 24)])
def test_blind_to_the_question_of_a_path_one_tells_the_commonest_of_all_ways(places, expected):
    """In closed form: the ways of one chain, there and back, are never the same; of two chains they are both the same
    in 2 of 12 cases (1/2), else all four differ (1/4)."""
    world = Stories(task="path", places=places)
    asked = list(told(world))
    assert all(answer in ways_of(statements) for statements, _, answer in asked)
    shares = [Counter(ways).most_common(1)[0][1] / len(ways) for ways in (ways_of(said) for said, _, _ in asked)]
    assert world.shortcuts(COUNT)["without the question"] == pytest.approx(sum(shares) / len(shares))
    assert world.shortcuts()["without the question"] == pytest.approx(expected, abs=0.003)


def test_where_there_is_one_question_nothing_is_said_of_leaving_it_out():
    assert "without the question" not in Stories(task="ratio").shortcuts(COUNT)
