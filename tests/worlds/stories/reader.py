"""A slow reader of stories: it sees words one after the other, keeps notes in plain dictionaries, and answers.

It knows the text and nothing of how stories are made; what it says at a word depends on the words up to there.
"""

from dataclasses import dataclass, field
from math import gcd

GIRLS, BOYS = ("mary", "sandra", "julie", "emily"), ("john", "daniel", "bill", "fred")
PEOPLE = GIRLS + BOYS
PLACES = ("kitchen", "garden", "office", "bathroom", "bedroom", "hallway")
THINGS = ("football", "milk", "apple", "book")
ACTS = {"took": "took", "got": "took", "dropped": "dropped", "put": "dropped"}
GOING = ("moved", "went", "travelled", "journeyed")
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")


def first(words, kinds, skip=0):
    """The first of these words that is of this kind, or the next after it."""
    found = [word for word in words if word in kinds]
    return found[skip] if len(found) > skip else None


@dataclass
class Reader:
    """Reads one sequence; `factors[t]` is what it knows with word t, `answers` what it says at each question mark."""

    factors: list = field(default_factory=list)
    answers: list = field(default_factory=list)
    support: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    statements: list = field(default_factory=list)
    """The words of every statement, and the positions of these."""

    def read(self, words):
        sentence, at, asks = [], [], False
        for position, word in enumerate(words):
            if word == "<pad>":
                break
            if word == "<ssep>":
                self.factors.append(self.factors[-1])
                continue
            if word == "<sep>" or (not sentence and word in ("where", "how", "what")):
                asks = True
            if word != "<sep>":
                sentence.append(word)
                at.append(position)
            now = {"line": "question" if asks else "statement"}
            now |= self.look_at_question(sentence) if asks else self.look_at_statement(sentence)
            self.factors.append(now)
            if word == ".":
                self.statements.append((sentence, at))
                self.note(sentence, len(self.statements) - 1)
                sentence, at = [], []
            if word == "?":
                self.asked.append(position)
                self.answers.append(now["answer"])
                follows = self.because(sentence)
                self.support.append({place for number in follows for place in self.statements[number][1]})
                sentence, at, asks = [], [], False
        return self

    def look_at_statement(self, words):
        """What is known in the middle of a statement: as if it were noted as soon as it says enough."""
        known = self.notes_after(words) if self.is_enough(words) else self.notes()
        return known | self.mentions(words)

    def notes_after(self, words):
        copy = type(self)(**{name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)})
        copy.note(words, len(self.statements))
        return copy.notes()


@dataclass
class OneFact(Reader):
    where: dict = field(default_factory=dict)
    why: dict = field(default_factory=dict)

    def notes(self):
        return {f"place of {person}": place for person, place in self.where.items()}

    def is_enough(self, words):
        return first(words, PLACES) is not None

    def note(self, words, number):
        self.where[first(words, PEOPLE)] = first(words, PLACES)
        self.why[first(words, PEOPLE)] = {number}

    def mentions(self, words):
        return {"person": first(words, PEOPLE), "place": first(words, PLACES)}

    def look_at_question(self, words):
        person = first(words, PEOPLE)
        return self.notes() | {"person": person, "answer": self.where.get(person)}

    def because(self, words):
        return self.why[first(words, PEOPLE)]


@dataclass
class Coreference(OneFact):
    said: dict = field(default_factory=dict)
    named: dict = field(default_factory=dict)

    def subject(self, words):
        return first(words, PEOPLE) or self.said.get(first(words, ("she", "he")))

    def notes(self):
        return super().notes() | self.said

    def look_at_statement(self, words):
        known = super().look_at_statement(words)
        person = self.subject(words)
        return known | ({"she" if person in GIRLS else "he": person} if person else {})

    def note(self, words, number):
        person = self.subject(words)
        self.said["she" if person in GIRLS else "he"] = person
        if first(words, PEOPLE):
            self.named[person] = number
        self.where[person], self.why[person] = first(words, PLACES), {number, self.named[person]}

    def mentions(self, words):
        spoken = "name" if first(words, PEOPLE) else first(words, ("she", "he"))
        return {"said": spoken, "person": self.subject(words), "place": first(words, PLACES)}

    def look_at_question(self, words):
        return super().look_at_question(words) | {"said": "name" if first(words, PEOPLE) else None}


@dataclass
class TwoFacts(Reader):
    where: dict = field(default_factory=dict)
    moved: dict = field(default_factory=dict)
    holder: dict = field(default_factory=dict)
    left: dict = field(default_factory=dict)
    handled: dict = field(default_factory=dict)

    def place(self, thing):
        return self.where[self.holder[thing]] if thing in self.holder else self.left.get(thing, (None,))[0]

    def notes(self):
        places = {f"place of {thing}": self.place(thing) for thing in self.handled}
        holders = {f"holder of {thing}": person for thing, person in self.holder.items()}
        return {**{f"place of {person}": place for person, place in self.where.items()}, **places, **holders}

    def is_enough(self, words):
        return first(words, (*PLACES, *THINGS)) is not None

    def note(self, words, number):
        person, thing = first(words, PEOPLE), first(words, THINGS)
        act = self.act(words)
        if act == "moved":
            self.where[person], self.moved[person] = first(words, PLACES), number
            return
        self.handled[thing] = number
        if act == "took":
            self.holder[thing] = person
        else:
            assert self.holder.pop(thing) == person
            self.left[thing] = (self.where[person], {number, self.moved[person]})

    def act(self, words):
        verb = first(words, (*ACTS, *GOING))
        return ACTS.get(verb, "moved" if verb else None)

    def mentions(self, words):
        kinds = {"person": PEOPLE, "place": PLACES, "thing": THINGS}
        return {"act": self.act(words), **{name: first(words, kind) for name, kind in kinds.items()}}

    def look_at_question(self, words):
        thing = first(words, THINGS)
        return self.notes() | {"thing": thing, "answer": self.place(thing) if thing else None}

    def because(self, words):
        thing = first(words, THINGS)
        if thing in self.holder:
            return {self.handled[thing], self.moved[self.holder[thing]]}
        return self.left[thing][1]


@dataclass
class Counting(Reader):
    where: dict = field(default_factory=dict)
    latest: dict = field(default_factory=dict)

    def count(self, place):
        return NUMBERS[sum(there == place for there in self.where.values())]

    def heard_of(self):
        return {place for _, place in self.latest}

    def notes(self):
        counts = {f"count in {place}": self.count(place) for place in self.heard_of()}
        return {**{f"place of {person}": place for person, place in self.where.items()}, **counts}

    def is_enough(self, words):
        return first(words, PLACES) is not None

    def note(self, words, number):
        person, place = first(words, PEOPLE), first(words, PLACES)
        assert (self.where.get(person, "outside") == "outside") == ("entered" in words)
        assert "entered" in words or self.where[person] == place
        self.where[person] = place if "entered" in words else "outside"
        self.latest[person, place] = number

    def mentions(self, words):
        return {
            "person": first(words, PEOPLE),
            "act": first(words, ("entered", "left")),
            "place": first(words, PLACES),
        }

    def look_at_question(self, words):
        place = first(words, PLACES)
        return self.notes() | {"place": place, "answer": self.count(place) if place else None}

    def because(self, words):
        return {number for (_, place), number in self.latest.items() if place == first(words, PLACES)}


@dataclass
class Ratio(Reader):
    where: dict = field(default_factory=dict)
    latest: dict = field(default_factory=dict)

    def notes(self):
        boys, girls = (sum(self.where.get(person) == "inside" for person in some) for some in (BOYS, GIRLS))
        common = max(gcd(boys, girls), 1)
        tracked = {"boys": str(boys), "girls": str(girls), "ratio": f"{boys // common}:{girls // common}"}
        return {**{f"place of {person}": there for person, there in self.where.items()}, **tracked}

    def is_enough(self, words):
        return first(words, ("entered", "left")) is not None

    def note(self, words, number):
        person = first(words, PEOPLE)
        assert (self.where.get(person, "outside") == "outside") == ("entered" in words)
        self.where[person] = "inside" if "entered" in words else "outside"
        self.latest[person] = number

    def mentions(self, words):
        return {"person": first(words, PEOPLE), "act": first(words, ("entered", "left"))}

    def look_at_question(self, words):
        return self.notes() | {"answer": self.notes()["ratio"] if words else None}

    def because(self, words):
        return set(self.latest.values())


@dataclass
class Path(Reader):
    ways: dict = field(default_factory=dict)
    """From one place to another: the direction, and the statement that says so."""

    def notes(self):
        return {}

    def is_enough(self, words):
        return False

    def note(self, words, number):
        there, here, direction = first(words, PLACES), first(words, PLACES, 1), first(words, OPPOSITE)
        self.ways[here, there] = direction, number
        self.ways[there, here] = OPPOSITE[direction], number

    def mentions(self, words):
        return {
            "first place": first(words, PLACES),
            "direction": first(words, OPPOSITE),
            "second place": first(words, PLACES, 1),
        }

    def look_at_question(self, words):
        here, there = first(words, PLACES), first(words, PLACES, 1)
        known = {"first place": here, "second place": there}
        if there:
            between = next(place for place in PLACES if (here, place) in self.ways and (place, there) in self.ways)
            steps = self.ways[here, between][0], self.ways[between, there][0]
            known |= {"place between": between, "first step": steps[0], "second step": steps[1]}
            known |= {"answer": " ".join(steps)}
        return known

    def because(self, words):
        here, there = first(words, PLACES), first(words, PLACES, 1)
        between = next(place for place in PLACES if (here, place) in self.ways and (place, there) in self.ways)
        return {self.ways[here, between][1], self.ways[between, there][1]}


READERS = {
    "one_fact": OneFact,
    "two_facts": TwoFacts,
    "counting": Counting,
    "ratio": Ratio,
    "coreference": Coreference,
    "path": Path,
}
