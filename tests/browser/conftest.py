"""A server of small real runs, Debian's Chromium, and a page that fails its test on any error or foreign request."""

import socket
import threading
import time
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import sync_playwright

from tests.explorer.small import folder
from unbraid.explorer.app import create_app

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ledger = Path(__file__).parents[2] / "docs/claims.json"
    app = create_app(folder(), "token", ledger=ledger)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    app.state.site.stopping = True
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def browser():
    assert CHROMIUM.exists(), "needs Debian's Chromium: `make browser` installs it"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, address):
    """A page that has the token; errors on its console, and requests to other hosts, fail the test."""
    opened, problems = browser.new_page(viewport={"width": 1280, "height": 900}), []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda problem: problems.append(str(problem)))
    opened.on("request", lambda request: request.url.startswith((address, "data:")) or problems.append(request.url))
    opened.goto(f"{address}/static/pages.css?token=token")
    yield opened
    opened.close()
    assert not problems
