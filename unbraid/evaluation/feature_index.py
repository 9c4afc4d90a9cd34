"""Make the feature index of a dictionary: for every feature what it fires on, at the cost of what fired.

`storage/feature_index.py` says what it holds. Codes are lists of (row, feature, value); sorted by feature and value
once, every quantity is a cut or a sum over the stretch of its feature. With F values that fired, f features of d
dimensions and c concepts on at a row it takes about

    F log F  (sorting)  +  F c  (pairs of feature and concept)  +  f² d  (neighbours, a block at a time)

steps. On one core of two that were shared, in seconds (`index_seconds`), and in bytes

    4e-6 F + 4e-5 f + 8e-11 f² d,    and where a model answers 4 f forward passes of one story, a lens of f v d products
    1,322 f with tokens and concepts (850 without concepts, 306 of samples), 54 f more with effects; 8 n for the tokens
    of n rows and 4 n + 4 for each concept that is on

so that 16,384 features of 512 dimensions, 32 of them on at each of 8,192 rows, take 13 s and 22 MB: `make bench
ONLY=feature_index` measures it, beside the seconds of training.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.dictionaries.baselines import FittedBaseline
from unbraid.dictionaries.stack import Stack
from unbraid.evaluation.factors import codes_to_rows, encode_rows, members_of
from unbraid.evaluation.feature_effects import OutputEffects
from unbraid.storage.feature_index import (
    AROUND,
    BINS,
    EVEN,
    EXAMPLES,
    NEIGHBOURS,
    STRONGEST,
    TOKENS,
    pack_names,
)
from unbraid.storage.files import Arrays
from unbraid.worlds import Activations, World

ROWS = 8192
"""Rows that are indexed, at most."""
MOST_VALUES = 1 << 22
"""Values that are indexed, at most: where all features fire everywhere, fewer rows are looked at."""
BLOCK = 1024
CANDIDATES = 64
"""Rows of a concept that are tried first to find those on which the feature is silent."""


def index_seconds(events: int, features: int, dimensions: int) -> float:
    """About the seconds of one member's index, without effects, on one core.

    >>> round(index_seconds(events=8192 * 32, features=16_384, dimensions=512))
    13
    """
    return 4e-6 * events + 4e-5 * features + 8e-11 * features**2 * dimensions


@dataclass(frozen=True)
class Rows:
    """Held-out inputs and what is known of them."""

    x: Float[Tensor, "n d"]
    truth: sparse.csr_array
    """Rows × concepts: how strongly each is on; without columns where nothing is known."""
    concepts: list[str]
    tokens: Int[np.ndarray, "n"] | None = None
    documents: Int[np.ndarray, "n"] | None = None
    vocabulary: Sequence[str] = ()

    def first(self, amount: int) -> "Rows":
        """So many of them."""
        cut = [None if part is None else part[:amount] for part in (self.tokens, self.documents)]
        return Rows(self.x[:amount], self.truth[:amount], self.concepts, *cut, vocabulary=self.vocabulary)

    def arrays(self) -> Arrays:
        """As contexts.safetensors has them."""
        tables: Arrays = {}
        if self.tokens is not None and self.documents is not None:
            tables = {"tokens": self.tokens.astype(np.int32), "documents": self.documents.astype(np.int32)}
            tables |= pack_names("vocabulary", list(self.vocabulary))
        if self.concepts:
            truth = self.truth.sorted_indices()
            tables |= {"truth_start": truth.indptr.astype(np.int32), "truth": truth.indices.astype(np.uint16)}
            tables |= {"truth_strength": truth.data.astype(np.float16)}
            tables |= pack_names("concepts", self.concepts)
        return tables or {"rows": np.array([len(self.x)])}


def planted_rows(world: World, amount: int) -> Rows:
    """Held-out samples of a world whose directions were planted; or of one of which nothing is known."""
    batch = world.batch(0, amount, split="evaluation")
    truth = codes_to_rows(batch.truth)
    names = [f"concept {number}" for number in range(len(world.directions))]
    return Rows(batch.x, truth, names)


def token_rows(world: Activations, amount: int, vocabulary: Sequence[str]) -> Rows:
    """Held-out activations in the order of their text, with the factors behind them where these are known."""
    rows = world.labelled_rows(amount)
    pairs = [(name, index, value) for name, values in world.factors.items() for index, value in enumerate(values)]
    active = [rows.factors[name] == index for name, index, _ in pairs]
    truth = sparse.csr_array(np.stack(active, 1).astype(float)) if pairs else sparse.csr_array((len(rows.x), 0))
    names = [f"{name} = {value}" for name, _, value in pairs]
    known = list(vocabulary)
    known += [f"token {number}" for number in range(len(known), int(rows.tokens.max(initial=0)) + 1)]
    return Rows(rows.x, truth, names, rows.tokens, rows.documents, known)


def index_members(
    dictionaries: Stack | Sequence[FittedBaseline],
    rows: Rows,
    effects: OutputEffects | None = None,
) -> tuple[dict[int, Arrays], Arrays]:
    """The index of every member, with its effects on a model's output where these are known; the table of the rows."""
    members = members_of(dictionaries) if isinstance(dictionaries, Stack) else list(dictionaries)
    indexed = {}
    for number, member in enumerate(members):
        codes = _bounded_codes(member, rows)
        own = index_features(codes, rows.first(_size(codes)[0]))
        own |= neighbours(member.directions[0].cpu())
        indexed[number] = own | ({} if effects is None else effects.of(member, own["strongest"]))
    return indexed, rows.arrays() | ({} if effects is None else effects.arrays())


def _bounded_codes(member: Stack | FittedBaseline, rows: Rows) -> sparse.csr_array:
    """The codes of the rows, of fewer where more than `MOST_VALUES` fired."""
    codes = codes_to_rows(encode_rows(member, rows.x))
    if codes.nnz <= MOST_VALUES:
        return codes
    return codes[: max(1, int(np.searchsorted(codes.indptr, MOST_VALUES, side="right")) - 1)]


def index_features(codes: sparse.csr_array, rows: Rows) -> Arrays:
    """What every feature fires on; see `storage/feature_index.py` for the arrays."""
    fired = Fired.of(codes)
    concept, numbers = _associate(fired, rows.truth)
    own = {"rate": (fired.count / fired.n).astype(np.float32), **fired.levels(), **numbers}
    lists = {"strongest": fired.strongest(), "even": fired.even()}
    values = {f"{name}_value": fired.value_at(rows_of).astype(np.float32) for name, rows_of in lists.items()}
    if rows.concepts:
        lists |= _examples(fired, rows.truth, concept)
        own["concept"] = concept.astype(np.int32)
    if rows.tokens is not None and rows.documents is not None:
        own |= _top_tokens(fired, rows.tokens, len(rows.vocabulary))
        own |= {f"{name}_around": fired.around(rows_of, rows.documents) for name, rows_of in lists.items()}
    return own | {name: rows_of.astype(np.int32) for name, rows_of in lists.items()} | values


@dataclass(frozen=True)
class Fired:
    """What fired, sorted by feature and, within a feature, from the largest value to the smallest."""

    n: int
    count: Int[np.ndarray, "f"]
    start: Int[np.ndarray, "f+1"]
    feature: Int[np.ndarray, "k"]
    row: Int[np.ndarray, "k"]
    value: Float[np.ndarray, "k"]
    keys: Int[np.ndarray, "k"]
    """feature · n + row, ascending: to look values up."""
    by_key: Float[np.ndarray, "k"]

    @classmethod
    def of(cls, codes: sparse.csr_array) -> "Fired":
        n, f = _size(codes)
        flat = codes.tocoo()
        kept = flat.data != 0
        row, feature, value = (
            flat.row[kept].astype(np.int64),
            flat.col[kept].astype(np.int64),
            flat.data[kept].astype(np.float64),
        )
        order = np.lexsort((row, -value, feature))
        count = np.bincount(feature, minlength=f)
        keys = feature * n + row
        by_key = np.argsort(keys)
        start = np.concatenate([[0], np.cumsum(count)])
        return cls(n, count, start, feature[order], row[order], value[order], keys[by_key], value[by_key])

    @property
    def features(self) -> int:
        return len(self.count)

    def levels(self) -> Arrays:
        """Mean, largest, and the histogram of the values."""
        mean = np.bincount(self.feature, self.value, self.features) / np.maximum(self.count, 1)
        some = self.count > 0
        high, low = np.zeros(self.features), np.zeros(self.features)
        high[some], low[some] = self.value[self.start[:-1][some]], self.value[self.start[1:][some] - 1]
        width = np.where(high > low, high - low, 1.0)
        bins = np.minimum((self.value - low[self.feature]) / width[self.feature] * BINS, BINS - 1).astype(np.int64)
        histogram = np.bincount(self.feature * BINS + bins, minlength=self.features * BINS).reshape(-1, BINS)
        floats = {"mean": mean, "largest": high, "low": low, "high": high}
        return {name: part.astype(np.float32) for name, part in floats.items()} | {
            "histogram": histogram.astype(np.int32)
        }

    def _at(self, offsets: Int[np.ndarray, "f k"], valid: Bool[np.ndarray, "f k"]) -> Int[np.ndarray, "f k"]:
        """The rows at these places of each feature's stretch; -1 where not valid."""
        places = np.where(valid, self.start[:-1, None] + offsets, 0)
        return np.where(valid, self.row[places] if len(self.row) else 0, -1)

    def strongest(self) -> Int[np.ndarray, "f k"]:
        offsets = np.broadcast_to(np.arange(STRONGEST), (self.features, STRONGEST))
        return self._at(offsets, offsets < self.count[:, None])

    def even(self) -> Int[np.ndarray, "f k"]:
        """From the smallest value to the largest, each row once."""
        drawn = np.minimum(self.count, EVEN)[:, None]
        offsets = np.broadcast_to(np.arange(EVEN), (self.features, EVEN))
        places = ((2 * offsets + 1) * self.count[:, None]) // np.maximum(2 * drawn, 1)
        return self._at(np.maximum(self.count[:, None] - 1 - places, 0), offsets < drawn)

    def value_at(self, rows: Int[np.ndarray, "f *k"]) -> Float[np.ndarray, "f *k"]:
        """The value of each feature at these rows; 0 where it does not fire, or where the row is none."""
        asked = np.arange(self.features).reshape(-1, *[1] * (rows.ndim - 1)) * self.n + rows
        if not len(self.keys):
            return np.zeros(rows.shape)
        places = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        return np.where((rows >= 0) & (self.keys[places] == asked), self.by_key[places], 0.0)

    def around(self, rows: Int[np.ndarray, "f k"], documents: Int[np.ndarray, "n"]) -> Float[np.ndarray, "f k w"]:
        """The values at the tokens around these rows; 0 outside of their documents."""
        near = rows[..., None] + np.arange(-AROUND, AROUND + 1)
        inside = (rows[..., None] >= 0) & (near >= 0) & (near < self.n)
        clipped = np.clip(near, 0, self.n - 1)
        inside &= documents[clipped] == documents[np.maximum(rows, 0)][..., None]
        return np.where(inside, self.value_at(clipped), 0.0).astype(np.float16)

    def first_of_each(self, flagged: Bool[np.ndarray, "k"], most: int) -> Int[np.ndarray, "f m"]:
        """The rows of the strongest values that are flagged, at most so many a feature."""
        feature, row = self.feature[flagged], self.row[flagged]
        place = np.arange(len(feature)) - np.searchsorted(feature, feature)
        chosen = np.full((self.features, most), -1, dtype=np.int64)
        chosen[feature[place < most], place[place < most]] = row[place < most]
        return chosen


def _size(matrix: sparse.csr_array) -> tuple[int, int]:
    return matrix.shape  # pyright: ignore[reportReturnType]


def _associate(fired: Fired, truth: sparse.csr_array) -> tuple[Int[np.ndarray, "f"], Arrays]:
    """The concept with the largest φ for each feature (-1 where none is above 0), with φ, precision and recall."""
    if not _size(truth)[1]:
        return np.full(fired.features, -1), {}
    on = truth.astype(bool).astype(np.float64)
    binary = sparse.csr_array((np.ones(len(fired.row)), (fired.feature, fired.row)), shape=(fired.features, fired.n))
    n, on_count = fired.n, np.asarray(on.sum(0)).ravel()
    concept = np.full(fired.features, -1)
    phi, precision, recall = (np.zeros(fired.features) for _ in range(3))
    for begin in range(0, fired.features, BLOCK):
        both = (binary[begin : begin + BLOCK] @ on).toarray()
        count = fired.count[begin : begin + BLOCK, None].astype(float)
        spread = np.sqrt(count * (n - count) * on_count * (n - on_count))
        table = np.divide(n * both - count * on_count, spread, out=np.zeros_like(both), where=spread > 0)
        best, lines = table.argmax(1), np.arange(len(table))
        block = slice(begin, begin + len(table))
        phi[block], shared = table[lines, best], both[lines, best]
        precision[block] = shared / np.maximum(count[:, 0], 1)
        recall[block] = shared / np.maximum(on_count[best], 1)
        concept[block] = np.where(phi[block] > 0, best, -1)
    numbers = {"phi": phi, "precision": precision, "recall": recall}
    return concept, {name: part.astype(np.float32) for name, part in numbers.items()}


def _examples(fired: Fired, truth: sparse.csr_array, concept: Int[np.ndarray, "f"]) -> Arrays:
    """Rows on which feature and concept agree, and on which one of them is alone."""
    columns = truth.tocsc()
    columns.sort_indices()
    on_keys = np.repeat(np.arange(_size(truth)[1]), np.diff(columns.indptr)) * fired.n + columns.indices
    own = concept[fired.feature]
    with_concept = np.isin(own * fired.n + fired.row, on_keys) & (own >= 0)
    shared = np.bincount(fired.feature[with_concept], minlength=fired.features)
    return {
        "agree": fired.first_of_each(with_concept, EXAMPLES),
        "without_concept": fired.first_of_each(~with_concept, EXAMPLES),
        "without_feature": _silent(fired, columns, concept, shared),
    }


def _silent(
    fired: Fired, columns: sparse.csc_array, concept: Int[np.ndarray, "f"], shared: Int[np.ndarray, "f"]
) -> Int[np.ndarray, "f e"]:
    """Rows on which the concept is on and the feature silent: among some drawn evenly, or else among all."""
    silent = np.full((fired.features, EXAMPLES), -1, dtype=np.int64)
    amount = np.diff(columns.indptr)[concept] * (concept >= 0)
    drawn = np.minimum(amount, CANDIDATES)[:, None]
    offsets = np.broadcast_to(np.arange(CANDIDATES), (fired.features, CANDIDATES))
    places = columns.indptr[concept][:, None] + (offsets * amount[:, None]) // np.maximum(drawn, 1)
    valid = offsets < drawn
    if len(columns.indices):
        tried = np.where(valid, columns.indices[np.where(valid, places, 0)], -1)
        missing = valid & (fired.value_at(tried) == 0)
        rank = np.cumsum(missing, 1) - 1
        feature, column = np.nonzero(missing & (rank < EXAMPLES))
        silent[feature, rank[feature, column]] = tried[feature, column]
    wanted = np.minimum(amount - shared, EXAMPLES)
    for each in np.flatnonzero((silent >= 0).sum(1) < wanted).tolist():
        rows = columns.indices[columns.indptr[concept[each]] : columns.indptr[concept[each] + 1]]
        alone = np.setdiff1d(rows, fired.row[fired.start[each] : fired.start[each + 1]])[:EXAMPLES]
        silent[each, : len(alone)] = alone
    return silent


def _top_tokens(fired: Fired, tokens: Int[np.ndarray, "n"], vocabulary: int) -> Arrays:
    """The tokens each feature fires on most often, and how often."""
    pairs, counts = np.unique(fired.feature * vocabulary + tokens[fired.row], return_counts=True)
    feature, token = pairs // vocabulary, pairs % vocabulary
    order = np.lexsort((token, -counts, feature))
    feature, token, counts = feature[order], token[order], counts[order]
    place = np.arange(len(feature)) - np.searchsorted(feature, feature)
    kept = place < TOKENS
    table, amounts = (np.full((fired.features, TOKENS), fill, dtype=np.int32) for fill in (-1, 0))
    table[feature[kept], place[kept]], amounts[feature[kept], place[kept]] = token[kept], counts[kept]
    return {"token": table, "token_count": amounts}


def neighbours(directions: Float[Tensor, "f d"]) -> Arrays:
    """The features with the most similar directions, a block of features at a time."""
    unit = torch.nn.functional.normalize(directions.float(), dim=-1)
    amount = min(NEIGHBOURS, max(len(unit) - 1, 0))
    found = np.full((len(unit), NEIGHBOURS), -1, dtype=np.int32)
    cosine = np.zeros((len(unit), NEIGHBOURS), dtype=np.float16)
    for begin in range(0, len(unit), BLOCK):
        table = unit[begin : begin + BLOCK] @ unit.T
        table[torch.arange(len(table)), torch.arange(begin, begin + len(table))] = -torch.inf
        best = table.topk(amount, -1)
        found[begin : begin + len(table), :amount] = best.indices.numpy()
        cosine[begin : begin + len(table), :amount] = best.values.numpy()
    return {"neighbour": found, "neighbour_cosine": cosine}
