"""Serve the explorer until Ctrl-C: bind the port, print the address, open the browser."""

import contextlib
import errno
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from unbraid.errors import UserError
from unbraid.explorer.app import LATER, create_app
from unbraid.explorer.security import EVERYWHERE, LOOPBACK, new_token

PORT = 8642
"""Where the explorer listens unless it is told; the next free one where that is taken."""
TRIES = 20


class _Server(uvicorn.Server):
    """Tells the streams that it ends, so that it need not wait for them."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002
        self._stop()
        self.should_exit = True  # and never force: a second Ctrl-C would print a traceback


class _Warming:
    """The application; after its first page it loads what the others need, so that neither waits for it."""

    def __init__(self, app: Starlette) -> None:
        self.app, self.is_cold = app, True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)
        if self.is_cold and scope["type"] == "http" and scope["path"] != "/":
            self.is_cold = False
            threading.Thread(target=warm, daemon=True).start()


def serve(
    runs: Path,
    names: Sequence[str] | None,
    ledger: Path | None,
    host: str,
    port: int | None,
    browser: bool,
    plugins: Sequence[Path] = (),
) -> None:
    """Serve until a signal ends it. Plugins are for the processes that load models, and are not run in this one."""
    bound = bind(host, port)
    token, number = new_token(), bound.getsockname()[1]
    hosts = {*LOOPBACK, host.lower(), *((socket.gethostname().lower(),) if host in EVERYWHERE else ())}
    app = create_app(runs, token, names, ledger, hosts)
    app.state.plugins = plugins
    app.state.site.listed()  # what is wrong with the names of runs is said before anything opens
    shown = "localhost" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{number}/?token={token}"
    config = uvicorn.Config(
        _Warming(app), log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=3
    )
    print(f"Exploring {runs if not names else ', '.join(names)} at {address}\nCtrl-C ends it.", flush=True)
    if browser:
        threading.Timer(0.3, _open, [address]).start()

    def stop() -> None:
        app.state.site.stopping = True

    with contextlib.suppress(KeyboardInterrupt):
        _Server(config, stop).run(sockets=[bound])


def bind(host: str, port: int | None) -> socket.socket:
    """A socket that listens; a port that was asked for must be free, else the first free one from `PORT` on."""
    numbers = [port] if port is not None else [*range(PORT, PORT + TRIES), 0]
    for number in numbers:
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            # The protocol is named because asyncio sets TCP_NODELAY only then; else every answer waits 40 ms.
            bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        except OSError:
            raise UserError(f"--host {host!r:.60} is no address of this machine; accepted: as 127.0.0.1") from None
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, number))
            bound.listen(64)
        except OSError as problem:
            bound.close()
            if problem.errno == errno.EADDRINUSE and port is None:
                continue
            raise UserError(
                f"cannot listen on {host} port {number}: {problem.strerror}; accepted: another --port, or none"
            ) from None
        bound.set_inheritable(True)
        return bound
    raise UserError(f"no port is free on {host}; accepted: --port with a free one")


def _open(address: str) -> None:
    try:
        webbrowser.open(address)
    except webbrowser.Error as problem:
        print(f"unbraid explore: no browser could be opened ({problem}); open the address above", file=sys.stderr)


def warm() -> None:
    """Load the other pages while the first is read; Altair need not check each part of ours as it is made."""
    for name in LATER:
        import_module(f"unbraid.explorer.{name}")
    import_module("unbraid.report.ledger")
    import_module("unbraid.figures.figure").converter()
    schemapi = import_module("altair.utils.schemapi")
    vars(schemapi)["DEBUG_MODE"] = False
