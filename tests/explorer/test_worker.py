"""The client starts a worker when it is asked, restarts one that died, cuts off one that is slow, and ends it."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from unbraid.errors import UserError
from unbraid.explorer import worker as client
from unbraid.explorer.worker import Worker, Workers

STAND_IN = """
    import json, os, sys, time
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "slow":
            time.sleep(60)
        if request["op"] == "die" or (request["op"] == "die once" and not os.path.exists(sys.argv[1])):
            open(sys.argv[1], "w").close()
            os._exit(1)
        error = {"error": "no such word; accepted: another"} if request["op"] == "bad" else {}
        answer = {"id": request["id"], "process": os.getpid(), "text": request.get("text"), **error}
        print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A stand-in for the real worker, which takes seconds to start; its argument is a path that it may write."""
    (tmp_path / "stand_in.py").write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(client, "MODULE", "stand_in")
    return tmp_path / "run"


def using(run, steps, **seconds):
    async def use():
        worker = Worker(run, **seconds)
        try:
            return await steps(worker)
        finally:
            await worker.close()

    return asyncio.run(use())


def test_one_process_answers_one_request_after_the_other(run):
    async def steps(worker):
        return await asyncio.gather(*(worker.ask("read", text=f"é{number}\n") for number in range(5)))

    answers = using(run, steps)
    assert [answer["text"] for answer in answers] == [f"é{number}\n" for number in range(5)]
    assert len({answer["process"] for answer in answers}) == 1


def test_a_killed_worker_is_started_again(run):
    async def steps(worker):
        first = await worker.ask("read")
        worker.process.kill()
        return first, await worker.ask("read"), await worker.ask("die once"), await worker.ask("read")

    first, second, third, fourth = using(run, steps)
    assert len({answer["process"] for answer in (first, second, third)}) == 3
    assert third["process"] == fourth["process"]


def test_what_the_worker_refuses_is_a_user_error_and_it_lives_on(run):
    async def steps(worker):
        first = await worker.ask("read")
        with pytest.raises(UserError, match="no such word; accepted: another"):
            await worker.ask("bad")
        return first, await worker.ask("read")

    first, second = using(run, steps)
    assert first["process"] == second["process"]


def test_one_that_dies_again_and_one_that_is_slow_are_user_errors(run):
    async def steps(worker):
        with pytest.raises(UserError, match="died twice"):
            await worker.ask("die")
        await worker.ask("read")
        with pytest.raises(UserError, match=r"more than 0\.3 seconds"):
            await worker.ask("slow")
        return await worker.ask("read")

    assert using(run, steps, seconds=0.3)["process"]


def test_few_workers_are_kept_and_all_end(run):
    async def use():
        workers = Workers(most=2)
        for name in "abca":
            await workers.ask(run / name, "read")
        kept = list(workers._workers.values())
        processes = [worker.process for worker in kept if worker.process]
        await workers.close()
        return [worker.run.name for worker in kept], [process.returncode for process in processes]

    names, codes = asyncio.run(use())
    assert names == ["c", "a"]
    assert all(code is not None for code in codes)


def test_the_real_worker_refuses_a_run_that_is_not_there(tmp_path):
    async def steps(worker):
        with pytest.raises(UserError, match="there is no such run directory"):
            await worker.ask("describe")
        return worker.process.returncode

    assert using(tmp_path / "absent", steps) is None


def test_the_client_needs_no_torch():
    code = "import sys, unbraid.explorer.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
