"""Sentences and their numbers: every one can be found again."""

from itertools import product

import numpy as np
import pytest

from unbraid.worlds.stories.language import Form, Sentences

PLACES, WAYS = ("here", "there"), ("up", "down")
NAMES = {"person": ("ann", "bob", "cy"), "place": PLACES, "way": WAYS, "other place": PLACES}
FORMS = (
    "{person} *ran to the {place} .",
    "the {place} is {way} of the {other place} .",
    "what now ?",
    "where is {person} ?",
)


def sentences(separated=False):
    return Sentences(tuple(map(Form, FORMS)), NAMES, separated)


def number_of(said, form, **names):
    return int(said.number(np.array([form]), {name: np.array([value]) for name, value in names.items()})[0])


def text(said, number):
    begin = said.starts[number]
    return " ".join(said.vocabulary[word] for word in said.words[begin : begin + said.lengths[number]])


def read(said, number):
    begin = said.starts[number]
    return said.moments[begin : begin + said.lengths[number]].tolist()


def test_the_vocabulary_is_what_is_special_then_each_word_once():
    words = "<pad> <unk> <sep> <ssep> ann bob cy here there up down ran to the . is of what now ? where"
    assert " ".join(sentences().vocabulary) == words


def test_every_choice_of_names_has_its_own_number_and_text():
    said, seen = sentences(), set()
    for person, place in product(range(3), range(2)):
        number = number_of(said, 0, person=person, place=place)
        assert text(said, number) == f"{NAMES['person'][person]} ran to the {NAMES['place'][place]} ."
        seen.add(number)
    for there, way, here in product(range(2), repeat=3):
        number = number_of(said, 1, **{"place": there, "way": way, "other place": here})
        assert text(said, number) == f"the {PLACES[there]} is {WAYS[way]} of the {PLACES[here]} ."
        seen.add(number)
    seen |= {number_of(said, 2), *(number_of(said, 3, person=person) for person in range(3))}
    assert seen == set(range(6 + 8 + 1 + 3)) == set(range(len(said.lengths)))


def test_forms_may_differ_and_a_name_that_a_form_has_no_slot_for_is_ignored():
    said = sentences()
    names = {"person": np.array([2, 1, 0, 1]), "place": np.array([1, -1, -1, 0])}
    numbers = said.number(np.array([0, 3, 3, 0]), names)
    expected = ["cy ran to the there .", "where is bob ?", "where is ann ?", "bob ran to the here ."]
    assert [text(said, number) for number in numbers] == expected


@pytest.mark.parametrize(
    ("form", "names", "counts"),
    [
        (0, {"person": 0, "place": 0}, [1, 2, 2, 2, 3, 3]),
        (1, {"place": 0, "way": 0, "other place": 0}, [0, 1, 1, 2, 2, 2, 3, 3]),
        (2, {}, [0, 0, 0]),
        (3, {"person": 0}, [0, 0, 1, 1]),
    ],
)
def test_each_word_knows_how_much_has_been_told(form, names, counts):
    said = sentences()
    assert read(said, number_of(said, form, **names)) == counts
    assert said.depth == 4


def test_separators_stand_after_statements_and_before_questions():
    said = sentences(separated=True)
    assert text(said, number_of(said, 0, person=0, place=0)) == "ann ran to the here . <ssep>"
    assert text(said, number_of(said, 3, person=1)) == "<sep> where is bob ?"
    assert read(said, number_of(said, 0, person=0, place=0)) == [1, 2, 2, 2, 3, 3, 3]
    assert read(said, number_of(said, 3, person=1)) == [0, 0, 0, 1, 1]
    assert [said.length(form) for form in range(4)] == [7, 9, 4, 5]
