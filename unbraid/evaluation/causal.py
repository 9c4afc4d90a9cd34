"""Causal scores: edit the feature of a planted factor inside the trained model, and see whether its answer follows.

The world gives pairs of stories that differ in one word, and the answers to both (`Stories.minimal_pairs`). For each
factor, at the tokens where it has the value a in the first story and b in the second, the model reads the first story
with its activations x at the captured site edited,

    feature          x + (off_a - z_a) d_a + (off_b + s (on_b - off_b) - z_b) d_b
    random           the same with other features of the dictionary that fire about as often
    probe            the same with one direction a value: the difference of class means, z = x·d
    reconstruction   x + x̂(x of the second story) - x̂(x)
    patch            x of the second story: the most that an edit of these tokens can do

z are codes, d decoder rows, on and off the usual codes (medians) where a feature says its value and where it does not.
The feature of a value is the one that tells it best (φ, `metrics.matching`). s = 0 ablates the factor, s = 1 swaps
its value, s = 2 swaps it with twice the strength. A value that a factor does not have (not yet known) has no feature.
Reconstruction errors stay in x: an edit changes what the feature contributes, and nothing else. One feature for both
values can swap nothing, and changes nothing.

Features, levels and class means are those of the half of the captured rows that thresholds are fitted on; the pairs are
of stories that neither the model nor a dictionary has seen. `metrics.causal` has the formulas of the scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy import sparse

from unbraid.activations.normalization import Normalization
from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.baselines.baseline import FittedBaseline
from unbraid.dictionaries.stack import Stack
from unbraid.evaluation.factors import Concepts, codes_to_rows, encode_rows, members_of, slug
from unbraid.metrics.causal import FEWEST_QUESTIONS, Answers, Effect, effect, judged_questions
from unbraid.metrics.matching.association import Association, associate, best
from unbraid.models import Models
from unbraid.models.models import Edit, edit_rows, token_rows
from unbraid.randomness import stream
from unbraid.worlds.stories import MinimalPairs, Stories, StoryBatch

SPLIT = "causal"
STORIES, MOST_STORIES = 128, 1024
"""So many stories are held against others first; twice as many while some factor has too few pairs."""
STRENGTHS = {"": 1.0, " ablated": 0.0, " doubled": 2.0}
"""How strongly the feature of the new value is set, by what that adds to the name of a method."""
NEAREST = 8
"""A random feature is one of so many that fire about as often."""
Effects = dict[str, dict[str, Effect]]
"""By method, as "feature ablated", and factor."""


class Score(NamedTuple):
    """What a score is made of: which number of which method's effects, and the methods that are chance and ceiling."""

    method: str
    number: Literal["control", "ablation", "side"] = "control"
    chance: str | None = None
    ceiling: str | None = "patch"


SCORES = {
    "causal": Score("feature", chance="random"),
    "causal_doubled": Score("feature doubled", chance="random doubled"),
    "causal_ablation": Score("feature ablated", "ablation", "random ablated", "probe ablated"),
    "causal_side": Score("feature", "side", "random", None),
    "causal_reconstruction": Score("reconstruction"),
    "causal_probe": Score("probe"),
}
"""Each is written for every factor, and as the mean over factors."""


@dataclass(frozen=True)
class EditableModel:
    """One trained model, read with its activations at a site edited."""

    model: Models
    site: str
    normalization: Normalization
    """From the model's units to those that dictionaries see."""

    @torch.no_grad()
    def read(self, batch: StoryBatch, edit: Edit | None = None) -> tuple[Answers, Float[Tensor, "b t d"]]:
        """Its answers and, in the dictionaries' units, its activations at the site; `edit` as for `logits`."""
        logits, rows = self.logits(batch, edit)
        right = logits.softmax(-1).gather(-1, batch.answers[..., None])[..., 0]
        return Answers(logits.argmax(-1).numpy(), right.double().numpy()), rows

    @torch.no_grad()
    def logits(
        self, batch: StoryBatch, edit: Edit | None = None
    ) -> tuple[Float[Tensor, "b q c"], Float[Tensor, "b t d"]]:
        """The logits of every question's answers and, in the dictionaries' units, the activations at the site.

        `edit` is given these activations in the model's units, and returns what the model goes on with.
        """
        edits = {} if edit is None else {self.site: edit_rows(lambda rows: edit(rows[0])[None])}
        output = self.model.forward(batch.tokens, [self.site], edit=edits)
        rows = self.normalization.apply(token_rows(output.recorded[self.site])[0].float())
        return self.model.read(output, batch.asked)[0], rows


@dataclass(frozen=True)
class FactorTest:
    """Pairs of stories that differ in a factor, and what the model does with them as it is."""

    model: EditableModel
    factor: str
    pairs: MinimalPairs
    where: Bool[Tensor, "b t"]
    """The tokens that are edited: those at which the factor differs."""
    values: Int[np.ndarray, "n 2"]
    """Its value in either story, at each of them."""
    x: Float[Tensor, "n d"]
    x_other: Float[Tensor, "n d"]
    before: Answers
    targeted: Bool[np.ndarray, "b q"]
    others: Bool[np.ndarray, "b q"]

    @classmethod
    def of(cls, model: EditableModel, factor: str, pairs: MinimalPairs) -> "FactorTest":
        base, other, where = pairs.base, pairs.other, pairs.differs(factor)
        (before, x), (other_before, x_other) = model.read(base), model.read(other)
        answers, other_answers = base.answers.numpy(), other.answers.numpy()
        judged = judged_questions(before, other_before, answers, other_answers)
        after_edit = base.asked.numpy() >= where.int().argmax(1).numpy()[:, None]
        values = torch.stack([batch.factors[factor][where] for batch in (base, other)], 1).numpy()
        targeted, others = judged & (answers != other_answers), judged & (answers == other_answers) & after_edit
        return cls(model, factor, pairs, where, values, x[where], x_other[where], before, targeted, others)

    def effect(self, change: Float[Tensor, "n d"]) -> Effect:
        """What adding this to the edited tokens does."""

        def edit(rows: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
            rows = rows.clone()
            rows[self.where] += (change * self.model.normalization.scale).to(rows.dtype)
            return rows

        after, _ = self.model.read(self.pairs.base, edit)
        return effect(self.before, after, self.pairs.other.answers.numpy(), self.targeted, self.others)

    def accuracy(self, edit: Edit | None = None) -> float:
        """Of the answers to the first stories."""
        answers = self.before if edit is None else self.model.read(self.pairs.base, edit)[0]
        return float((answers.chosen == self.pairs.base.answers.numpy()).mean())


def factor_tests(model: EditableModel, world: Stories, pairs: int) -> list[FactorTest]:
    """A test for every factor that some pairs differ in, and some answers with it.

    Parameters
    ----------
    model : EditableModel
        What is edited.
    world : Stories
        The task that it was trained on.
    pairs : int
        Pairs of stories a factor whose answers differ, at most; a quarter as many beside them whose answers do not.
    """
    stories, drawn = STORIES, _drawn(world, STORIES)
    while stories < MOST_STORIES and any(0 < len(rows) < pairs for rows in _telling(drawn, world).values()):
        stories *= 2
        drawn = _drawn(world, stories)
    tests: list[FactorTest] = []
    for factor, telling in _telling(drawn, world).items():
        if len(telling) >= FEWEST_QUESTIONS:
            silent = (drawn.differs(factor).any(1) & ~_answers_differ(drawn)).nonzero()[:, 0]
            rows = torch.cat([telling[:pairs], silent[: pairs // 4]])
            tests.append(FactorTest.of(model, factor, drawn.select(rows)))
    return tests


def _drawn(world: Stories, stories: int) -> MinimalPairs:
    """Pairs in any order, so that the first are not all of one story."""
    drawn = world.minimal_pairs(stories, SPLIT)
    return drawn.select(torch.from_numpy(stream(0, "order of pairs").permutation(len(drawn.base.tokens))))


def _telling(drawn: MinimalPairs, world: Stories) -> dict[str, Int[Tensor, "n"]]:
    """By factor, the pairs that differ in it and in an answer."""
    differ = _answers_differ(drawn)
    return {factor: (drawn.differs(factor).any(1) & differ).nonzero()[:, 0] for factor in world.factors}


def _answers_differ(drawn: MinimalPairs) -> Bool[Tensor, "b"]:
    return (drawn.base.answers != drawn.other.answers).any(1)


@dataclass(frozen=True)
class Handles:
    """One feature for every value of a factor, by which it can be set."""

    features: Int[np.ndarray, "v"]
    directions: Float[np.ndarray, "v d"]
    off: Float[np.ndarray, "v"]
    """Its usual code where it does not say the value."""
    on: Float[np.ndarray, "v"]
    """Its usual code where it does."""

    @classmethod
    def of(
        cls,
        codes: Float[np.ndarray, "n f"],
        matches: Association,
        concepts: Int[np.ndarray, "v"],
        features: Int[np.ndarray, "v"],
        directions: Float[np.ndarray, "f d"],
    ) -> "Handles":
        """One of these features for each of these concepts, cut where it tells it best; from codes in rows."""
        codes, side = codes[:, features], matches.sides[concepts, features].astype(np.float64)
        says = (codes != 0) & (side * codes >= side * matches.thresholds[concepts, features])
        return cls(features, directions[features], *usual_levels(codes, says))

    def change(
        self, codes: Float[np.ndarray, "n v"], values: Int[np.ndarray, "n 2"], strength: float
    ) -> Float[Tensor, "n d"]:
        """What to add to rows with these codes to set the second value in place of the first; none is -1."""
        rows, (old, new) = np.arange(len(codes)), values.T
        one_feature = (old >= 0) & (new >= 0) & (self.features[old] == self.features[new])
        removed = np.where((old >= 0) & ~one_feature, self.off[old] - codes[rows, old], 0)
        level = self.off + strength * (self.on - self.off)
        added = np.where((new >= 0) & ~one_feature, level[new] - codes[rows, new], 0)
        total = removed[:, None] * self.directions[old] + added[:, None] * self.directions[new]
        return torch.from_numpy(total.astype(np.float32))


def usual_levels(
    codes: Float[np.ndarray, "n v"], says: Bool[np.ndarray, "n v"]
) -> tuple[Float[np.ndarray, "v"], Float[np.ndarray, "v"]]:
    """The median codes where a feature does not say its value and where it does; 0 where there is no such row."""

    def levels(part: Bool[np.ndarray, "n v"]) -> Float[np.ndarray, "v"]:
        columns = (column[rows] for column, rows in zip(codes.T, part.T, strict=True))
        return np.array([np.median(column) if len(column) else 0.0 for column in columns])

    return levels(~says), levels(says)


def probe_effects(tests: Sequence[FactorTest], concepts: Concepts) -> Effects:
    """What needs no dictionary: the directions of class means at every strength, and activations of the other story."""
    effects: Effects = {"patch": {}, **{f"probe{suffix}": {} for suffix in STRENGTHS}}
    x, fitted = concepts.rows.x.double().numpy()[concepts.fit], concepts.active[concepts.fit]
    for test in tests:
        active = fitted[:, concepts.of_factor(test.factor)]
        directions, values = class_mean_directions(x, active), np.arange(active.shape[1])
        codes, before = x @ directions.T, test.x.double().numpy() @ directions.T
        handles = Handles.of(codes, _fitted(sparse.csr_array(codes), active), values, values, directions)
        for suffix, strength in STRENGTHS.items():
            effects[f"probe{suffix}"][test.factor] = test.effect(handles.change(before, test.values, strength))
        effects["patch"][test.factor] = test.effect(test.x_other - test.x)
    return effects


def _fitted(codes: sparse.csr_array, active: Bool[np.ndarray, "n c"]) -> Association:
    """Features with concepts, from rows that are all to fit on: here φ is not measured on others."""
    return associate(codes, active, np.ones(len(active), bool))


def class_mean_directions(x: Float[np.ndarray, "n d"], active: Bool[np.ndarray, "n v"]) -> Float[np.ndarray, "v d"]:
    """For each value, the unit vector from the mean of the rows without it to the mean of those with it; 0 if none."""
    counts = active.sum(0)[:, None]
    inside, total = active.T.astype(np.float64) @ x, x.sum(0)
    apart = inside / np.maximum(counts, 1) - (total - inside) / np.maximum(len(x) - counts, 1)
    apart *= (counts > 0) & (counts < len(x))
    lengths = np.linalg.norm(apart, axis=1, keepdims=True)
    return apart / np.where(lengths > 0, lengths, 1)


@dataclass(frozen=True)
class MatchedDictionary:
    """A single dictionary, and which of its features tell which concepts, from where on."""

    dictionary: Stack | FittedBaseline
    matches: Association
    codes: Float[np.ndarray, "n f"]
    """Of the rows that thresholds were fitted on."""

    @classmethod
    def of(cls, dictionary: Stack | FittedBaseline, concepts: Concepts) -> "MatchedDictionary":
        codes = codes_to_rows(encode_rows(dictionary, concepts.rows.x[torch.from_numpy(concepts.fit)]))
        return cls(dictionary, _fitted(codes, concepts.active[concepts.fit]), codes.toarray())

    def reconstruct(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return self.dictionary.decode(encode_rows(self.dictionary, x))[0].detach()

    def effects(self, tests: Sequence[FactorTest], concepts: Concepts, seed: int) -> Effects:
        """What editing its features does; `seed` draws the random ones."""
        kinds = [f"{kind}{suffix}" for kind in ("feature", "random") for suffix in STRENGTHS]
        effects: Effects = {kind: {} for kind in (*kinds, "reconstruction")}
        matched, rates = best(self.matches).features, (self.codes != 0).mean(0)
        directions, rng = self.dictionary.directions[0].cpu().double().numpy(), stream(seed, "random features")
        for test in tests:
            numbers = concepts.of_factor(test.factor)
            codes = codes_to_rows(encode_rows(self.dictionary, test.x)).toarray()
            chosen = {"feature": matched[numbers], "random": random_features(matched[numbers], rates, rng)}
            for kind, features in chosen.items():
                handles = Handles.of(self.codes, self.matches, numbers, features, directions)
                for suffix, strength in STRENGTHS.items():
                    change = handles.change(codes[:, features], test.values, strength)
                    effects[f"{kind}{suffix}"][test.factor] = test.effect(change)
            change = self.reconstruct(test.x_other) - self.reconstruct(test.x)
            effects["reconstruction"][test.factor] = test.effect(change)
        return effects

    def spliced_accuracy(self, tests: Sequence[FactorTest]) -> float:
        """With reconstructions in place of all activations at the site."""
        return _accuracy(tests, self.reconstruct)


def random_features(
    matched: Int[np.ndarray, "v"], rates: Float[np.ndarray, "f"], rng: np.random.Generator
) -> Int[np.ndarray, "v"]:
    """For each matched feature another that is matched to no value of the factor and fires about as often."""
    free = np.setdiff1d(np.flatnonzero(rates > 0), matched)
    if not len(free):
        free = np.arange(len(rates))
    nearest = np.argsort(np.abs(rates[free] - rates[matched][:, None]), axis=1, kind="stable")[:, :NEAREST]
    return free[[rng.choice(row) for row in nearest]]


def _accuracy(tests: Sequence[FactorTest], change: Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]) -> float:
    """Of the answers to first stories with all activations at the site changed so, in the dictionaries' units."""

    def spliced(test: FactorTest) -> float:
        normalization, real = test.model.normalization, test.pairs.base.mask

        def edit(rows: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
            rows = rows.clone()
            rows[real] = normalization.undo(change(normalization.apply(rows[real].float()))).to(rows.dtype)
            return rows

        return test.accuracy(edit)

    return _mean([spliced(test) for test in tests])


@dataclass(frozen=True)
class CausalBounds:
    """What the scores of every dictionary of one model's activations are held against."""

    effects: Effects
    accuracy: float
    """Of the model as it is, mean over tests; NaN without any."""
    mean_accuracy: float
    """With the site's mean in place of its activations."""

    @classmethod
    def of(cls, tests: Sequence[FactorTest], concepts: Concepts) -> "CausalBounds":
        without = _accuracy(tests, lambda x: x.mean(0).expand_as(x))
        return cls(probe_effects(tests, concepts), _mean([test.accuracy() for test in tests]), without)

    @classmethod
    def from_dict(cls, card: JsonDict) -> "CausalBounds":
        """What `to_dict` gave; JSON has null for NaN."""
        numbers = [_nan(card[name]) for name in ("accuracy", "mean_accuracy")]
        effects = {
            method: {factor: Effect(**{name: _nan(v) for name, v in one.items()}) for factor, one in some.items()}
            for method, some in card["effects"].items()
        }
        return cls(effects, *numbers)

    def to_dict(self) -> JsonDict:
        effects = effects_to_dict(self.effects)
        return {"effects": effects, "accuracy": self.accuracy, "mean_accuracy": self.mean_accuracy}


@dataclass(frozen=True)
class CausalScores:
    """Scores by name, one value a member, with chance and ceiling; and every effect of every member."""

    values: dict[str, list[float]]
    chance: dict[str, list[float]]
    ceiling: dict[str, float]
    effects: list[Effects]


def score_causal(
    dictionaries: Stack | Sequence[FittedBaseline],
    tests: Sequence[FactorTest],
    concepts: Concepts,
    bounds: CausalBounds,
) -> CausalScores:
    """Score every member of a stack, or several baselines: what editing their features does inside the model.

    Parameters
    ----------
    dictionaries : Stack or sequence of FittedBaseline
        What was learned from the model's activations.
    tests : sequence of FactorTest
        What `factor_tests` gives, for the model whose activations these are.
    concepts : Concepts
        Held-out activations and their factors, on which features are matched.
    bounds : CausalBounds
        What `CausalBounds.of` gives.

    Returns
    -------
    CausalScores
        The scores of `SCORES`, over all factors and of each (`causal_place`), and `spliced_accuracy`.
    """
    stacks = [dictionaries] if isinstance(dictionaries, Stack) else dictionaries
    members = [MatchedDictionary.of(member, concepts) for stack in stacks for member in members_of(stack)]
    effects = [member.effects(tests, concepts, seed) for seed, member in enumerate(members)]
    rows: list[dict[str, dict[str, float]]] = [_scores(bounds.effects | of_member) for of_member in effects]
    for row, member in zip(rows, members, strict=True):
        row["values"]["spliced_accuracy"] = member.spliced_accuracy(tests)
        row["chance"]["spliced_accuracy"] = bounds.mean_accuracy
    values, chance = (
        {name: [row[part][name] for row in rows] for name in rows[0][part]} for part in ("values", "chance")
    )
    return CausalScores(values, chance, rows[0]["ceiling"] | {"spliced_accuracy": bounds.accuracy}, effects)


def _scores(effects: Effects) -> dict[str, dict[str, float]]:
    """Values, chance and ceiling of all scores of one member."""
    scores: dict[str, dict[str, float]] = {"values": {}, "chance": {}, "ceiling": {}}
    for name, score in SCORES.items():
        methods = {"values": score.method, "chance": score.chance, "ceiling": score.ceiling}
        for part, method in methods.items():
            if method is not None:
                by_factor = {f"{name}_{slug(f)}": getattr(one, score.number) for f, one in effects[method].items()}
                scores[part] |= {name: _mean(list(by_factor.values())), **by_factor}
    return scores


def effects_to_dict(effects: Effects) -> JsonDict:
    """As a file holds them."""
    return {method: {factor: asdict(one) for factor, one in some.items()} for method, some in effects.items()}


def _mean(values: Sequence[float]) -> float:
    """Of those that are known; NaN of none."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value
