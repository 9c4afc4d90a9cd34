"""2,000 random addresses: each is answered, none with an error of ours, and no file outside the runs is opened."""

import asyncio
import random
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from starlette.routing import Route

import unbraid.explorer
from tests.explorer.small import folder
from unbraid.explorer.app import create_app

ADDRESSES = 2000
CANARY = "canary-4c1d7e-must-never-be-read"
HOSTILE = (
    *("..", "../..", "../../canary.txt", "%2e%2e", "%2e%2e%2fcanary.txt", "..%2f..%2fcanary.txt", "....//canary.txt"),
    *(
        "%00",
        "a%00b",
        "..\\..\\canary.txt",
        "%5c..%5ccanary.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "file:///etc/passwd",
    ),
    *("9" * 40, "-1", "1e309", "nan", "-inf", "0x10", "²", "٣", "1_0", " 1", "+1", "18446744073709551616", "0.5"),
    *("<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "{{7*7}}", "${7*7}", "%s%n", "a" * 3000),
    *(
        "ünïcödé",
        "漢字",
        "\u202e",
        "%ff%fe",
        "%",
        "%zz",
        "",
        " ",
        ".",
        "~",
        "CON",
        "*",
        "?",
        "#",
        "null",
        "true",
        "[]",
        "{}",
    ),
)
OPENED: list[str] = []
WATCHING = False


def _watch(event: str, arguments: tuple) -> None:
    if WATCHING and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes | Path):
        name = arguments[0]
        OPENED.append(name.decode(errors="replace") if isinstance(name, bytes) else str(name))


sys.addaudithook(_watch)  # there is no way to take it off again: it is silent unless this file's test runs


def parameter_names() -> list[str]:
    """Every name that a page reads out of an address."""
    source = "".join(path.read_text() for path in Path(unbraid.explorer.__file__).parent.glob("*.py"))
    named = re.findall(r'(?:integer|number|choice|texts?|given)\(\s*request,\s*"(\w+)"', source)
    return sorted({*named, "run", "token"})


def real_values(runs: Path) -> list[str]:
    names = [path.name for path in runs.iterdir() if path.is_dir()]
    return [
        *names,
        "0",
        "1",
        "2",
        "7",
        "100",
        "planted/0/0",
        "planted/0/1",
        "phi",
        "mmcs",
        "l0",
        "training_curves",
        "name",
    ]


def address(draw: random.Random, routes: list[str], names: list[str], real: list[str]) -> str:
    """A real route with real or hostile parts, or no route at all; and a query of both."""

    def value() -> str:
        if draw.random() < 0.55:
            return quote(draw.choice(real), safe="")
        hostile = draw.choice(HOSTILE)
        return hostile if draw.random() < 0.5 else quote(hostile, safe="")

    path = re.sub(r"\{[^}]*\}", lambda _: value(), draw.choice(routes))
    if draw.random() < 0.15:
        path = "/" + "/".join(value() for _ in range(draw.randint(1, 5)))
    pairs = [f"{draw.choice(names)}={value()}" for _ in range(draw.choice((0, 0, 1, 1, 2, 3, 6)))]
    if pairs and draw.random() < 0.2:
        pairs += [f"{pairs[0].split('=')[0]}={value()}" for _ in range(draw.choice((1, 2, 80)))]
    return path + ("?" + "&".join(pairs) if pairs else "")


async def ask(app, url: str) -> tuple[int, bytes]:
    """As a server would hand it on: the path decoded once, the rest as it came."""
    raw, _, query = url.partition("?")
    raw = raw.encode(errors="replace")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(raw.decode("ascii", "replace")),
        "raw_path": raw,
        "root_path": "",
        "query_string": query.encode(errors="replace"),
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer token")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[dict] = []
    bodies = iter([b""])

    async def receive() -> dict:
        if next(bodies, None) is None:  # a client that stays: a stream that listens for its leaving must not spin
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The runs with a canary beside them, in a working folder that has nothing else."""
    home = tmp_path / "home"
    shutil.copytree(folder(), home / "runs")
    (home / "canary.txt").write_text(CANARY)
    (tmp_path / "canary.txt").write_text(CANARY)
    monkeypatch.chdir(home)
    return home / "runs"


def test_random_addresses_are_answered_and_read_nothing_outside_the_runs(runs, capsys):
    global WATCHING
    app = create_app(runs, "token")
    app.state.site.stopping = True  # streams of events end at once
    routes = [route.path for route in app.routes if isinstance(route, Route)]
    draw, names, real = random.Random(19), parameter_names(), real_values(runs)

    async def ask_all() -> list[tuple[str, int, bytes]]:
        found = []
        for _ in range(ADDRESSES):
            url = address(draw, routes, names, real)
            found.append((url, *await ask(app, url)))
        return found

    OPENED.clear()
    WATCHING = True
    try:
        answers = asyncio.run(ask_all())
    finally:
        WATCHING = False
    failed = [(url[:200], status) for url, status, _ in answers if not (status in (200, 303) or 400 <= status < 500)]
    assert not failed, (failed[:5], capsys.readouterr().err[:2000])
    assert not [url for url, _, body in answers if CANARY.encode() in body]
    assert sum(status == 200 for _, status, _ in answers) > ADDRESSES / 10  # not all were refused at the door
    assert not [url for url, _, body in answers if b"<script>alert" in body or b"<img src=x" in body]
    ours = (runs, Path(sys.prefix), Path(sys.base_prefix), Path(unbraid.__file__).parent)
    outside = {
        path
        for path in OPENED
        if path
        and not any(Path(path).absolute().is_relative_to(each) for each in ours)
        and not path.startswith("/dev/")
    }
    assert not outside
    assert any(path.startswith(str(runs)) for path in OPENED)  # the hook sees what is read
