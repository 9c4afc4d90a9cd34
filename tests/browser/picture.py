"""The picture that the README opens with: `python -m tests.browser.picture RUNS RUN OUT.png`, of such a run as demo.

It shows the fate map, and beside it the page of the first recovered concept.
"""

import io
import socket
import sys
import threading
import time
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

from unbraid.explorer.app import create_app

WIDTH, HEIGHT = 1180, 1000


def draw(runs: Path, run: str, path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(runs, "token"), port=port, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"http://127.0.0.1:{port}/runs/{run}/concepts?token=token")
        shots = [page.screenshot()]
        page.click("a.tile.fate-recovered")
        shots.append(page.screenshot())
        browser.close()
    server.should_exit = True
    pictures = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    whole = Image.new("RGB", (2 * WIDTH + 2, HEIGHT), "#c8cdd2")
    for place, picture in enumerate(pictures):
        whole.paste(picture, (place * (WIDTH + 2), 0))
    whole.quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
