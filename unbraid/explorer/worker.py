"""The client of the worker that loads models: a process of its own for each run, started when it is first asked.

One request at a time, as JSON lines (`unbraid.pipeline.serve` says which). A worker that died is started again; one
that takes too long is ended. Workers end with the server: their input is closed then.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbraid.config import JsonDict
from unbraid.errors import UserError

MODULE = "unbraid.pipeline.serve"
SECONDS = 20.0
"""A request may take so long."""
STARTING_SECONDS = 60.0
"""The first one of a process, which imports torch and loads a model."""
LONGEST_LINE = 1 << 26
"""Bytes of an answer: attention of long texts is large."""
MOST_WORKERS = 2
"""Of several runs, so that not all their models stay in memory."""


class Died(Exception):
    """The process ended before it answered."""


class Worker:
    """One process that answers for one run."""

    def __init__(
        self,
        run: Path,
        seconds: float = SECONDS,
        starting_seconds: float = STARTING_SECONDS,
        plugins: Sequence[Path] = (),
    ) -> None:
        """`plugins` are files that the process runs before anything else."""
        self.run, self.seconds, self.starting_seconds, self.plugins = run, seconds, starting_seconds, plugins
        self.process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._number = 0

    async def ask(self, op: str, **request: Any) -> JsonDict:
        """The answer; a UserError where the worker refuses, takes too long, or dies twice."""
        async with self._lock:
            try:
                answer = await self._ask(op, request)
            except Died:
                try:
                    answer = await self._ask(op, request)
                except Died:
                    raise UserError("the process that loads the model died twice; see whether memory is left") from None
        answer.pop("id", None)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer

    async def close(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.process = None

    async def _ask(self, op: str, request: JsonDict) -> JsonDict:
        is_new = self.process is None or self.process.returncode is not None
        process = await self._start() if is_new else self.process
        assert process is not None
        self._number += 1
        seconds = self.starting_seconds if is_new else self.seconds
        try:
            return await asyncio.wait_for(self._exchange(process, {**request, "op": op, "id": self._number}), seconds)
        except TimeoutError:
            await self.close()
            raise UserError(f"the answer took more than {seconds:g} seconds; accepted: a shorter text") from None
        except (Died, OSError, ValueError):
            await self.close()
            raise Died from None
        except asyncio.CancelledError:  # the answer would be taken for that to the next request
            await self.close()
            raise

    async def _exchange(self, process: asyncio.subprocess.Process, request: JsonDict) -> JsonDict:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        await process.stdin.drain()
        while line := await process.stdout.readline():
            answer = json.loads(line)
            if answer["id"] == request["id"]:
                return answer
        raise Died

    async def _start(self) -> asyncio.subprocess.Process:
        await self.close()
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        words = [sys.executable, "-m", MODULE, str(self.run), *map(str, self.plugins)]
        self.process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=nothing, limit=LONGEST_LINE
        )
        return self.process


class Workers:
    """A worker for each run that was asked about lately."""

    def __init__(self, most: int = MOST_WORKERS, plugins: Sequence[Path] = ()) -> None:
        self.most, self.plugins = most, plugins
        self._workers: dict[Path, Worker] = {}

    async def ask(self, run: Path, op: str, **request: Any) -> JsonDict:
        """The answer of the worker of this run."""
        worker = self._workers.pop(run, None) or Worker(run, plugins=self.plugins)
        self._workers[run] = worker  # the last is the one used last
        while len(self._workers) > self.most:
            await self._workers.pop(next(iter(self._workers))).close()
        return await worker.ask(op, **request)

    async def close(self) -> None:
        """End all of them."""
        while self._workers:
            await self._workers.popitem()[1].close()
