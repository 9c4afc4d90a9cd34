"""Labelled texts of Hugging Face datasets, and SAEBench's sets by their names, from small datasets made on the fly."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from unbraid.errors import Missing, UserError
from unbraid.evaluation.language_model.config import LanguageModelEvaluation, check_texts_exist, labels_fingerprint
from unbraid.evaluation.language_model.labelled import SAEBENCH, LabelColumns, read_labelled


def rows(n: int, classes: int, **more: list) -> dict[str, list]:
    """Texts that tell their class and number."""
    labels = [index % classes for index in range(n)]
    return {"text": [f"text {label} {index}" for index, label in enumerate(labels)], "label": labels, **more}


def saved(folder: Path, train: dict[str, list], test: dict[str, list] | None = None) -> Path:
    splits = {"train": Dataset.from_dict(train)} | ({"test": Dataset.from_dict(test)} if test else {})
    DatasetDict(splits).save_to_disk(folder)
    return folder


def test_a_dataset_gives_what_the_same_lines_give(tmp_path: Path):
    train, test = rows(90, 3), rows(60, 3)
    folder = saved(tmp_path / "same", train, test)
    lines = [
        json.dumps({"text": text, "label": label, "split": split})
        for split, part in (("train", train), ("test", test))
        for text, label in zip(part["text"], part["label"], strict=True)
    ]
    (tmp_path / "lines").mkdir()
    file = tmp_path / "lines" / "same.jsonl"
    file.write_text("\n".join(lines))
    ours, theirs = read_labelled(folder, 150), read_labelled(file, 150)
    assert (ours.name, ours.names, ours.texts) == (theirs.name, theirs.names, theirs.texts)
    assert (ours.classes == theirs.classes).all()
    assert (ours.train == theirs.train).all()
    assert ours.train.sum() > (~ours.train).sum() > 0


def test_columns_class_names_and_a_split_of_our_own(tmp_path: Path):
    features = Features({"said": Value("string"), "mood": ClassLabel(names=["sad", "glad"])})
    table = rows(300, 2)
    dataset = Dataset.from_dict({"said": table["text"], "mood": table["label"]}, features=features)
    dataset.save_to_disk(tmp_path / "moods")
    found = read_labelled(tmp_path / "moods", 200, LabelColumns("said", "mood"))
    assert sorted(found.names) == ["glad", "sad"]
    assert all(
        text.split()[1] == str(["sad", "glad"].index(found.names[i]))
        for text, i in zip(found.texts, found.classes, strict=True)
    )
    assert len(set(found.texts)) == len(found.texts)
    again = read_labelled(tmp_path / "moods", 200, LabelColumns("said", "mood"))
    assert (again.texts, again.train.tolist()) == (found.texts, found.train.tolist())
    with pytest.raises(UserError, match=r"has no column 'text'; accepted: said, mood"):
        read_labelled(tmp_path / "moods", 200)
    with pytest.raises(UserError, match=r"has no column 'moods'; did you mean 'mood'\?"):
        read_labelled(tmp_path / "moods", 200, LabelColumns("said", "moods"))


def test_ag_news_and_the_biographies_by_their_names(tmp_path: Path):
    saved(tmp_path / "fancyzhx/ag_news", rows(200, 5), rows(200, 5))
    news = read_labelled(tmp_path / "fancyzhx/ag_news", 200)
    assert (news.name, news.names) == ("ag_news", ("0", "1", "2", "3"))  # the fifth is none of SAEBench's
    professions = [(0, 1, 2, 6, 9, 11, 13)[index % 7] for index in range(1400)]
    genders = [int(index % 10 == 0) for index in range(1400)]  # one in ten
    texts = [
        f"{profession} {gender} {i}" for i, (profession, gender) in enumerate(zip(professions, genders, strict=True))
    ]
    table = {"hard_text": texts, "profession": professions, "gender": genders}
    saved(tmp_path / "LabHC/bias_in_bios", table, table)
    first = read_labelled(tmp_path / "LabHC/bias_in_bios_class_set1", 500)
    assert first.names == ("0", "1", "2", "6", "9")
    counts = Counter(tuple(text.split()[:2]) for text, train in zip(first.texts, first.train, strict=True) if train)
    assert set(counts) == {(name, gender) for name in first.names for gender in "01"}
    assert set(counts.values()) == {20}  # as many of each gender: all that there are of the rarer
    assert read_labelled(tmp_path / "LabHC/bias_in_bios_class_set2", 100).names == ("11", "13")


def test_reviews_code_and_languages_by_their_names(tmp_path: Path):
    ratings = [1.0 if index % 3 else 5.0 for index in range(400)]
    reviews = {"text": [f"{rating}" for rating in ratings], "rating": ratings, "category": [1, 2] * 200}
    saved(tmp_path / "canrager/amazon_reviews_mcauley_1and5", reviews, reviews)
    feelings = read_labelled(tmp_path / "canrager/amazon_reviews_mcauley_1and5_sentiment", 100)
    assert feelings.names == ("1.0", "5.0")
    assert all(feelings.names[i] == text for text, i in zip(feelings.texts, feelings.classes, strict=True))
    assert read_labelled(tmp_path / "canrager/amazon_reviews_mcauley_1and5", 100).names == ("1", "2")
    code = ["L" * 150 + f"{index % 2}" * (500 if index % 5 else 10) for index in range(500)]
    saved(tmp_path / "codeparrot/github-code", {"code": code, "language": ["C", "PHP"] * 250})
    program = read_labelled(tmp_path / "codeparrot/github-code", 200)
    assert program.names == ("C", "PHP")
    assert set(program.texts) == {"0" * 500, "1" * 500}  # without the licence, and none that is short
    for language, subset in SAEBENCH["Helsinki-NLP/europarl"].subsets.items():
        pairs = [{language: f"{language} {index}", "xx": "no"} for index in range(80)]
        saved(tmp_path / "Helsinki-NLP/europarl" / subset, {"translation": pairs})
    languages = read_labelled(tmp_path / "Helsinki-NLP/europarl", 300)
    assert languages.names == ("en", "fr", "de", "es", "nl")
    assert all(
        text.split()[0] == languages.names[i] for text, i in zip(languages.texts, languages.classes, strict=True)
    )
    assert np.isclose(languages.train.mean(), 0.8, atol=0.05)


@pytest.mark.parametrize("name", SAEBENCH)
def test_a_set_that_is_not_here_is_one_clear_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    known = SAEBENCH[name].dataset
    with pytest.raises(Missing, match=f"there is no folder '{known}' here and the hub gave no such dataset") as refused:
        read_labelled(Path(name), 100)
    assert "\n" not in str(refused.value)


def test_an_evaluation_knows_its_data(tmp_path: Path):
    folder = saved(tmp_path / "labels", rows(300, 2), rows(100, 2))
    Dataset.from_dict({"story": ["a b", "c d"]}).save_to_disk(tmp_path / "text")
    asked = {"text": str(tmp_path / "text"), "column": "story", "labels": [str(folder)], "texts": 100}
    config = LanguageModelEvaluation(**asked)
    check_texts_exist(config)
    assert list(config.source.documents()) == ["a b", "c d"]
    before = config.source.fingerprint(), labels_fingerprint(folder, config)
    Dataset.from_dict({"story": ["a b", "c e"]}).save_to_disk(tmp_path / "text")
    saved(tmp_path / "others", {**rows(300, 2), "text": ["other"] * 300}, rows(100, 2))
    assert config.source.fingerprint() != before[0]
    assert labels_fingerprint(tmp_path / "others", config) != before[1]
    with pytest.raises(Missing, match="there is no such text to evaluate on"):
        check_texts_exist(LanguageModelEvaluation(text=str(tmp_path / "none")))
    with pytest.raises(Missing, match="there is no such text to evaluate on"):
        check_texts_exist(config.model_copy(update={"labels": (str(tmp_path / "none.jsonl"),)}))
