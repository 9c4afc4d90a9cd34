"""Records survive TOML; whatever is wrong with a configuration is answered with one sentence."""

import contextlib
import tomllib
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from unbraid.config import Config, check, merge, parse_override, read_toml, suggest, tagged, to_toml
from unbraid.config.sweep import at_path
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.mechanisms import Enabled, Sparsity, enabled
from unbraid.dictionaries.training.config import Training
from unbraid.errors import UserError
from unbraid.worlds import Superposition

sizes = st.integers(1, 5000)
positive = st.floats(1e-30, 1e30)


@st.composite
def superpositions(draw):
    features, decay = draw(st.integers(1, 300)), draw(st.floats(0.01, 1))
    room = sum(decay**i for i in range(features))
    return Superposition(
        dimensions=draw(sizes),
        n_features=features,
        decay=decay,
        active=room * draw(st.floats(1e-6, 0.999)),
        strength=draw(st.sampled_from(["uniform", "product"])),
        noise=draw(st.just(0.0) | positive),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@st.composite
def dictionaries(draw):
    features = draw(sizes)
    activation = draw(st.sampled_from([{"kind": "relu"}, {"kind": "topk", "k": draw(st.integers(1, features))}]))
    return Dictionary.model_validate({"d_sae": features, "activation": activation, "pre_bias": draw(st.booleans())})


@st.composite
def trainings(draw):
    steps = draw(sizes)
    warmup = draw(st.integers(0, steps))
    return Training(
        steps=steps,
        batch=draw(sizes),
        learning_rate=draw(positive),
        warmup_steps=warmup,
        decay_steps=draw(st.integers(0, steps - warmup)),
        clip=draw(st.none() | positive),
        reconstruction_loss=draw(st.sampled_from(["sum_square", "mean_square"])),
    )


sparsities = st.builds(Sparsity, weight=st.just(0.0) | positive, form=st.sampled_from(["per_sample", "published"]))
records = (
    superpositions() | dictionaries() | trainings() | sparsities | st.builds(Enabled, sparsity=st.none() | sparsities)
)


# Round trips


@given(records)
def test_a_record_written_as_toml_reads_back_equal(record):
    tree = tomllib.loads(to_toml(record.to_dict()))
    assert check(type(record), tree, "here") == record
    assert tree == record.to_dict()


@given(records)
def test_a_record_cannot_be_changed(record):
    name = next(iter(type(record).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(record, name, getattr(record, name))


def test_a_file_reads_as_it_was_written(tmp_path):
    (tmp_path / "c.toml").write_text(to_toml(Dictionary().to_dict()), encoding="utf-8")
    assert check(Dictionary, read_toml(tmp_path / "c.toml"), "c.toml") == Dictionary()


def test_presence_is_the_switch_of_a_mechanism():
    assert enabled(check(Enabled, {}, "here")) == {}
    assert enabled(check(Enabled, {"sparsity": {}}, "here")) == {"sparsity": Sparsity()}


# Refusals


def refusal(kind, data):
    with pytest.raises(UserError) as caught:
        check(kind, data, "here.toml")
    sentence = str(caught.value)
    assert sentence.startswith("here.toml: ")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("kind", "data", "name", "guess"),
    [
        (Dictionary, {"d_sa": 3}, "d_sa", "d_sae"),
        (Training, {"learning_rat": 0.1}, "learning_rat", "learning_rate"),
        (Superposition, {"dimension": 3}, "dimension", "dimensions"),
        (Enabled, {"sparsty": {}}, "sparsty", "sparsity"),
        (Enabled, {"sparsity": {"wieght": 1.0}}, "sparsity.wieght", "weight"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(kind, data, name, guess):
    sentence = refusal(kind, data)
    assert f"there is no setting '{name}'" in sentence
    assert f"did you mean '{guess}'?" in sentence


def test_a_name_like_no_other_is_answered_with_all_that_are_accepted():
    sentence = refusal(Dictionary, {"zzz": 1})
    assert "did you mean" not in sentence
    assert sentence.endswith(
        "accepted: d_sae, activation, pre_bias, pre_bias_init, init, skip, decoder_norm, firing_share"
    )


@pytest.mark.parametrize(
    ("kind", "data", "path"),
    [
        (Dictionary, {"d_sae": "8"}, "d_sae"),
        (Dictionary, {"d_sae": 8.0}, "d_sae"),
        (Dictionary, {"d_sae": True}, "d_sae"),
        (Dictionary, {"pre_bias": 1}, "pre_bias"),
        (Dictionary, {"activation": 3}, "activation"),
        (Dictionary, {"activation": [1]}, "activation"),
        (Dictionary, {"activation": {"kind": "topk", "k": "2"}}, "activation.k"),
        (Training, {"learning_rate": "fast"}, "learning_rate"),
        (Training, {"clip": []}, "clip"),
        (Superposition, {"strength": "other"}, "strength"),
        (Enabled, {"sparsity": True}, "sparsity"),
        (Enabled, {"sparsity": {"weight": "1"}}, "sparsity.weight"),
    ],
)
def test_a_wrong_type_is_refused_by_its_path(kind, data, path):
    assert refusal(kind, data).startswith(f"here.toml: {path} is ")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Superposition, "dimensions"),
        (Superposition, "n_features"),
        (Dictionary, "d_sae"),
        (Training, "batch"),
    ],
)
@pytest.mark.parametrize("size", [0, -1, -(10**30)])
def test_sizes_below_one_are_refused(kind, name, size):
    assert f"{name} is {size}" in refusal(kind, {name: size})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-9])
@pytest.mark.parametrize(
    ("kind", "name"), [(Training, "learning_rate"), (Training, "clip"), (Sparsity, "weight"), (Superposition, "noise")]
)
def test_numbers_that_are_negative_or_not_finite_are_refused(kind, name, value):
    assert f"{name} is " in refusal(kind, {name: value})


def test_k_larger_than_the_features_is_refused_with_the_range():
    sentence = refusal(Dictionary, {"d_sae": 8, "activation": {"kind": "topk", "k": 9}})
    assert "activation.k is 9" in sentence
    assert "accepted: 1 to 8" in sentence


def test_k_equal_to_the_features_is_accepted():
    data = {"d_sae": 8, "activation": {"kind": "topk", "k": 8}}
    assert check(Dictionary, data, "here").to_dict()["activation"]["k"] == 8


@pytest.mark.parametrize(("kind", "guess"), [("topkk", "did you mean 'topk'?"), ("other", "accepted: relu, topk")])
def test_a_bad_kind_is_answered_with_the_kinds_there_are(kind, guess):
    sentence = refusal(Dictionary, {"activation": {"kind": kind}})
    assert f"activation.kind is '{kind}'" in sentence
    assert guess in sentence


def test_a_missing_kind_and_a_missing_setting_are_named():
    assert "'activation' needs a kind" in refusal(Dictionary, {"activation": {"k": 2}})
    assert "'activation.k' is required" in refusal(Dictionary, {"activation": {"kind": "topk"}})


def test_a_schedule_longer_than_the_training_is_refused():
    assert "at most 10" in refusal(Training, {"steps": 10, "warmup_steps": 6, "decay_steps": 5})
    assert check(Training, {"steps": 11, "warmup_steps": 6, "decay_steps": 5}, "here").steps == 11


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_whatever_the_data_the_answer_is_a_record_or_a_refusal(data):
    kind = data.draw(st.sampled_from([Superposition, Dictionary, Training, Enabled]))
    tree = data.draw(
        st.dictionaries(st.sampled_from(sorted(kind.model_fields)) | st.text(max_size=5), plain, max_size=4)
    )
    with contextlib.suppress(UserError):
        assert isinstance(check(kind, tree, "here"), kind)


# Files


@pytest.mark.parametrize(
    "content", [b"a = ", b"[a", b"a = 1\na = 2", b"\xff\xfe", b"\x00", b"a = 1 = 2", b'a = "open', b"[a]\n[a]"]
)
def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path, content):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.toml"):
        read_toml(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        read_toml(tmp_path / "absent.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_toml(tmp_path)


# Overrides


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("training.steps=100", {"training": {"steps": 100}}),
        ("seed=[0, 1]", {"seed": [0, 1]}),
        ("a.b.c=1e-3", {"a": {"b": {"c": 0.001}}}),
        ("pre_bias=true", {"pre_bias": True}),
        ("activation.kind=topk", {"activation": {"kind": "topk"}}),
        ('activation.kind="topk"', {"activation": {"kind": "topk"}}),
        ("name=a=b", {"name": "a=b"}),
        ("name=", {"name": ""}),
        ("name=it's", {"name": "it's"}),
        ("steps = 3", {"steps": 3}),
    ],
)
def test_an_override_is_a_path_and_a_toml_value_or_else_a_string(text, tree):
    assert parse_override(text) == tree


@pytest.mark.parametrize("text", ["", "=", "=3", " = 3", "steps", "a..b=1", ".a=1", "a b=1", "a.=1"])
def test_what_is_no_override_is_refused_with_an_example(text):
    with pytest.raises(UserError, match=r"training\.steps"):
        parse_override(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_a_plain_word_as_value_arrives_as_it_was_typed(word):
    assert parse_override(f"name=x{word}") == {"name": f"x{word}"}


def test_at_path_puts_the_value_at_the_end_of_the_path():
    assert at_path("a", 1) == {"a": 1}
    assert at_path("a.b.c", [2]) == {"a": {"b": {"c": [2]}}}


# Merging

tables = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
    max_leaves=8,
)
trees = st.dictionaries(st.sampled_from("abc"), tables, max_size=3)


def leaves(tree, path=()):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def follow(tree, path):
    for key in path:
        tree = tree[key]
    return tree


@given(trees)
def test_merging_nothing_changes_nothing(tree):
    assert merge(tree, {}) == tree
    assert merge({}, tree) == tree
    assert merge(tree, tree) == tree


@given(trees, trees)
def test_every_leaf_of_the_second_wins(base, over):
    merged = merge(base, over)
    assert all(follow(merged, path) == value for path, value in leaves(over))


@given(trees, trees)
def test_leaves_of_the_first_stay_where_the_second_says_nothing(base, over):
    merged = merge(base, over)
    for path, value in leaves(base):
        said = any(path[: len(other)] == other[: len(path)] for other, _ in leaves(over))
        if not said:
            assert follow(merged, path) == value


@given(trees, trees)
def test_merging_leaves_its_arguments_alone(base, over):
    kept = to_toml(base), to_toml(over)
    merge(base, over)
    assert (to_toml(base), to_toml(over)) == kept


@given(trees, trees, trees)
def test_merging_tables_is_associative_where_shapes_agree(a, b, c):
    shaped = [{"t": {key: value for key, value in tree.items() if isinstance(value, int)}} for tree in (a, b, c)]
    assert merge(merge(shaped[0], shaped[1]), shaped[2]) == merge(shaped[0], merge(shaped[1], shaped[2]))


# Naming what is near, and choosing between records


def test_nearest_says_so_when_nothing_is_accepted():
    assert suggest("a", []) == "accepted: nothing"


def test_a_tagged_setting_takes_the_record_its_kind_names():
    class Square(Config):
        kind: Literal["square"] = "square"
        side: int = Field(1, ge=1)

    class Circle(Config):
        kind: Literal["circle"] = "circle"
        radius: int = Field(1, ge=1)

    class Page(Config):
        shape: tagged({"square": Square, "circle": Circle}) = Square()

    assert check(Page, {"shape": {"kind": "circle", "radius": 2}}, "here").shape == Circle(radius=2)
    assert "shape.radius is 0" in refusal(Page, {"shape": {"kind": "circle", "radius": 0}})


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_toml_that_breaks_the_parser_is_refused(text, tmp_path):
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(UserError, match="is not valid TOML"):
        read_toml(tmp_path / "deep.toml")


def test_an_unknown_name_inside_a_kind_is_named_as_it_was_written():
    with pytest.raises(UserError, match=r"there is no setting 'activation\.kk'"):
        check(Dictionary, {"activation": {"kind": "topk", "kk": 3}}, "here")
