"""docs/stories.md shows what the module prints and the tasks' own sizes, and marks what an answer follows from."""

import tomllib
from pathlib import Path

import pytest

from benchmarks.stories_page import main, section
from unbraid.pipeline.expand import expand
from unbraid.worlds.stories import TASKS, Stories

DOCS = (Path(__file__).parents[3] / "docs" / "stories.md").read_text()


@pytest.mark.parametrize("task", TASKS)
def test_the_docs_show_a_task_word_for_word_as_it_is_printed(task):
    assert f"\n{section(task)}\n" in DOCS


def test_every_task_is_printed_and_the_docs_show_no_other(capsys):
    main()
    printed = capsys.readouterr().out
    assert printed == "".join(f"{section(task)}\n\n" for task in TASKS)
    assert [line for line in DOCS.splitlines() if line.startswith("### ")] == [f"### `{task}`" for task in TASKS]


@pytest.mark.parametrize("task", TASKS)
def test_the_docs_have_the_tasks_own_sizes(task):
    row = next(line for line in DOCS.splitlines() if line.startswith(f"| `{task}` |"))
    sizes = [cell.strip() for cell in row.split("|")[2:7]]
    limits = TASKS[task].model_json_schema()["properties"]
    expected = [limits.get(name) for name in ("people", "places", "things", "rounds")]
    assert sizes[:4] == [f"{s['default']} ({s['minimum']}–{s['maximum']})" if s else "" for s in expected]
    assert int(sizes[4]) == len(Stories(task=task).answers)


def test_what_the_last_answer_follows_from_is_marked():
    """In the first task, the last statement about whom the last question is about."""
    lines = section("one_fact").split("```text\n")[1].split("\n```")[0].splitlines()
    person, answer = lines[-1].split()[2], lines[-1].split()[-1]
    about = [line for line in lines if line[2:].startswith(f"{person} ")]
    assert [line for line in lines if line.startswith(">")] == about[-1:]
    assert about[-1].endswith(f"the {answer} .")


def test_the_configuration_in_the_docs_gives_a_task_what_it_needs():
    members = expand(tomllib.loads(DOCS.split("```toml\n")[1].split("```")[0]), "docs").members
    experiments = [member.experiment for member in members]
    assert {(e.world.task, e.world.rounds, e.model.layers) for e in experiments} == {
        ("one_fact", 3, 2),
        ("two_facts", 3, 3),
    }
    assert len(members) == 10
