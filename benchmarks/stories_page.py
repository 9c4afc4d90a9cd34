"""Print what docs/stories.md shows: of every task a story with what its last answer follows from, and the shortcuts."""

from unbraid.worlds.stories import TASKS, Stories


def example(world: Stories) -> str:
    """A story, a line a sentence; what the last answer follows from is marked."""
    batch = world.batch(0, 1, "docs")
    words, marks = world.words(batch.tokens[0]), batch.support[0, -1].tolist()
    answers = iter(batch.answers[0].tolist())
    lines, begin = list[str](), 0
    for index, word in enumerate(words):
        if word in (".", "?"):
            text = " ".join(words[begin : index + 1])
            tail = f" → {world.answers[next(answers)]}" if word == "?" else ""
            lines.append(f"{'>' if marks[index] else ' '} {text}{tail}")
            begin = index + 1
    return "\n".join(lines)


def table(scores: dict[str, float]) -> str:
    rows = [f"| {name} | {score:.3f} |" for name, score in scores.items()]
    return "\n".join(["| rule | right |", "|---|---|", *rows])


def section(task: str) -> str:
    """What the docs show of a task."""
    world = Stories.model_validate({"task": task})
    return f"### `{task}`\n\n```text\n{example(world)}\n```\n\n{table(world.shortcuts())}"


def main() -> None:
    for task in TASKS:
        print(f"{section(task)}\n")


if __name__ == "__main__":
    main()
