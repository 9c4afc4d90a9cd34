"""Give commands to one process of unbraid, each in a folder of its own, and note what each took.

Run by path, with PYTHONPATH saying which unbraid: `python driver.py COMMANDS.json`. A command is a list of words and
the folder to be in; what it prints goes to `printed.txt` there, and how it ended to `ended.json`.
"""

import json
import os
import resource
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path


def main() -> None:
    from unbraid.cli import main as unbraid

    for command in json.loads(Path(sys.argv[1]).read_text()):
        os.chdir(command["folder"])
        sys.argv = ["unbraid", *command["words"]]
        wall, cpu, code = time.monotonic(), _cpu_seconds(), 0
        with Path("printed.txt").open("w") as printed, redirect_stdout(printed):
            try:
                unbraid()
            except SystemExit as end:
                code = end.code
        ended = {"code": code, "seconds": time.monotonic() - wall, "cpu_seconds": _cpu_seconds() - cpu}
        Path("ended.json").write_text(json.dumps(ended))


def _cpu_seconds() -> float:
    """Of this process and of the workers that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
