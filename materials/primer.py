"""`python -m materials.primer FILE`: write the primer, a text of our own making that a small grammar tells.

Each paragraph is a tale of somebody, a place and a thing that it keeps to: names come back as pronouns, verbs agree
with how many do it, and what was lost is found in the end. Choices are plain draws in [0, 1), which no version of numpy
changes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from unbraid.randomness import stream
from unbraid.storage.files import write_bytes

CHARACTERS = 100_000
PEOPLE = (
    *(("Anna", "she", "her"), ("Bertram", "he", "his"), ("Clara", "she", "her"), ("David", "he", "his")),
    *(("Edith", "she", "her"), ("Felix", "he", "his"), ("Greta", "she", "her"), ("Hugo", "he", "his")),
    *(("The weavers", "they", "their"), ("The twins", "they", "their"), ("The old sailors", "they", "their")),
)
PLACES = ("the mill", "the harbour", "the orchard", "the market", "the long bridge", "the quarry", "the chapel")
THINGS = ("lantern", "silver key", "basket", "wooden flute", "red scarf", "letter", "brass compass", "little boat")
TIMES = ("One morning", "Late in autumn", "On the third day of the fair", "Before the snow came", "Once, at dusk")
WEATHER = (
    "rain fell on the roofs",
    "the wind was still",
    "fog lay over the river",
    "the sun stood low",
    "frost had come",
)
QUALITIES = ("quiet", "patient", "proud", "cheerful", "tired", "careful", "curious")
ROADS = ("along the wall", "past the old well", "down the narrow lane", "through the wet grass", "over the hill")
KEEPERS = ("the baker", "the ferryman", "a stranger", "the schoolmaster", "a child with muddy boots")
SAYINGS = (
    "What is lost by day is found by night",
    "Nothing travels as slowly as good news",
    "A door that is never locked needs no key",
    "Who asks the river gets a wet answer",
    "Two who look see more than one who knows",
)


class Teller:
    """Draws one choice after the other."""

    def __init__(self, seed: int) -> None:
        self._rng = stream(seed, "primer")

    def pick(self, several: Sequence[str]) -> str:
        return several[int(self._rng.random() * len(several))]

    def maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    def number(self, below: int) -> int:
        return int(self._rng.random() * below)


def tale(teller: Teller) -> str:
    """One paragraph."""
    name, pronoun, own = PEOPLE[teller.number(len(PEOPLE))]
    several, place, thing = pronoun == "they", teller.pick(PLACES), teller.pick(THINGS)
    was, has, goes = ("were", "have", "go") if several else ("was", "has", "goes")
    they = pronoun.capitalize()
    mood = f"{teller.pick(QUALITIES)} and {teller.pick(QUALITIES)}"
    lines = [
        f"{teller.pick(TIMES)}, when {teller.pick(WEATHER)}, {_inside(name)} went to {place} with {own} {thing}.",
        f"{they} {was} {mood}, and {pronoun} walked {teller.pick(ROADS)}.",
    ]
    if teller.maybe(0.6):
        lines.append(f"Everybody knows that {_inside(name)} {has} only one {thing}, and {goes} nowhere without it.")
    if teller.maybe(0.7):
        keeper = teller.pick(KEEPERS)
        lines.append(f"At {place} {pronoun} met {keeper}. “{teller.pick(SAYINGS)},” said {keeper}.")
    if teller.maybe(0.5):
        lines.append(f"But when {teller.pick(WEATHER)}, the {thing} was gone, and nobody at {place} had seen it.")
        if teller.maybe(0.5):
            lines.append(f"{they} looked {teller.pick(ROADS)} and {teller.pick(ROADS)}, and found nothing.")
        lines.append(f"In the end {teller.pick(KEEPERS)} brought {own} {thing} back, {_counted(teller)} later.")
    else:
        lines.append(f"So {_inside(name)} sat down at {place}, put the {thing} on the ground, and {was} content.")
    if teller.maybe(0.4):
        lines.append(f"“{teller.pick(SAYINGS)},” {pronoun} said, and went home {teller.pick(ROADS)}.")
    return " ".join(lines)


def _inside(name: str) -> str:
    """As it stands within a sentence."""
    return name.replace("The ", "the ")


def _counted(teller: Teller) -> str:
    many = 1 + teller.number(9)
    return f"{many} {teller.pick(('day', 'hour', 'week'))}{'' if many == 1 else 's'}"


def told(characters: int = CHARACTERS, seed: int = 0) -> str:
    """So many characters or a little more, in whole paragraphs."""
    teller, text = Teller(seed), ""
    while len(text) < characters:
        text += tale(teller) + "\n\n"
    return text


if __name__ == "__main__":
    write_bytes(Path(sys.argv[1]), told().encode())
