"""How large the package is: lines and modules by room, the longest files and functions, what a run passes through.

`make sizes` prints it. To count the files touched it runs the quickstart and the demo at a reduced size.
"""

import ast
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "unbraid"
FLAGS = re.compile(r"\bis_(line|taught|trained|text|planted)\b")
SHORT_RUNS = {
    "quickstart": ["quickstart", "training.steps=20", "evaluation.samples=512"],
    "demo": ["pipeline/demo", "model.training.steps=20", "training.steps=20", "activations.stories=100"],
}


def code_lines(source: str) -> int:
    """Lines with code on them: no docstrings, comments or blank lines."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                continue
    no_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in no_code:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "(top)"


def print_rooms() -> None:
    lines, counts = Counter[str](), Counter[str]()
    for path in modules(PACKAGE):
        lines[room(path)] += code_lines(path.read_text())
        counts[room(path)] += 1
    print(f"{'room':16}{'modules':>8}{'lines of code':>15}")
    for name in sorted(lines):
        print(f"{name:16}{counts[name]:8}{lines[name]:15,}")
    print(f"{'all':16}{sum(counts.values()):8}{sum(lines.values()):15,}")
    without = sum(counts.values()) - counts["reports"], sum(lines.values()) - lines["reports"]
    print(f"{'without reports':16}{without[0]:8}{without[1]:15,}")
    tests = sum(len(path.read_text().splitlines()) for path in modules(ROOT / "tests"))
    print(f"tests: {tests:,} lines\n")


def print_longest() -> None:
    files = sorted(((len(path.read_text().splitlines()), path) for path in modules(PACKAGE)), reverse=True)
    functions = sorted(
        (
            ((node.end_lineno or 0) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
            for path in modules(PACKAGE)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)
        ),
        reverse=True,
    )
    print("longest files:")
    for length, path in files[:5]:
        print(f"  {length:5} {path.relative_to(ROOT)}")
    print("longest functions:")
    for length, name in functions[:5]:
        print(f"  {length:5} {name}")


def importers() -> dict[str, set[str]]:
    """Of every module, those that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules(PACKAGE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    found[f"{node.module}.{alias.name}"].add(str(path))
                found[node.module].add(str(path))
    return found


def print_lonely() -> None:
    found = importers()
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules(PACKAGE)}
    lonely = [name for name, path in names.items() if len(found[name] - {str(path)}) == 1 and path.stem != "__init__"]
    short = [name for name in lonely if len(names[name].read_text().splitlines()) < 40]
    print(f"modules with one importer: {len(lonely)}, of them shorter than 40 lines: {len(short)}")
    for name in short:
        print(f"  {name}")


def print_flags() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in modules(PACKAGE)
        if "kinds" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FLAGS.search(line)
    ]
    print(f"tests of what kind something is, outside the kinds: {len(hits)}")
    for hit in hits:
        print(f"  {hit}")


TRACER = """
import inspect, sys, threading
from pathlib import Path
package = Path({package!r})
seen = set()
def trace(frame, event, arg):
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function: importing a module is not passing through it
        seen.add(frame.f_code.co_filename)
threading.setprofile(trace)
sys.setprofile(trace)
from unbraid.cli import guarded, app
sys.argv = ["unbraid", *{arguments!r}]
code = guarded(app)
sys.setprofile(None)
touched = [name for name in seen if name.startswith(str(package))]
print(len(touched) if code == 0 else f"the run ended with exit code {{code}}", file=sys.stderr)
"""


def print_touched() -> None:
    for name, arguments in SHORT_RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            script = TRACER.format(package=str(PACKAGE), arguments=["run", *arguments, "--quiet"])
            done = subprocess.run(
                [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
            )
        print(f"files touched by {name}: {done.stderr.strip().splitlines()[-1]}")


def main() -> None:
    print_rooms()
    print_longest()
    print_lonely()
    print_flags()
    print_touched()


if __name__ == "__main__":
    main()
