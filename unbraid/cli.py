"""The command line: `unbraid run`, `resume`, `list`, `show`, `report`, `claims`, `configs`; `capture`, `diagnose`,
`judge`.

Heavy imports happen inside the commands, so that `--help` answers at once. Exit codes: 0 done; 1 the run could not
finish (a loss that is not finite, a process that was killed, an error of ours); 2 what was asked cannot be done; 130 or
143 stopped by Ctrl-C or SIGTERM.
"""

import gc
import io
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unbraid.errors import Lost, NotFinite, Refusal, Stopped

if TYPE_CHECKING:
    from unbraid.runs import Run

app = typer.Typer(
    name="unbraid",
    help="Plant factors in a world, train a dictionary on it, and score what it recovered against the planted truth.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunsOption = Annotated[Path, typer.Option("--runs", metavar="DIR", help="The folder that holds the runs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the run directory.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or its name in the folder of runs.")]
RUNS = Path("runs")
LONGEST_NAME = 60


@app.command()
def run(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file, or the name of one that ships.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings to change, as training.steps=100.")
    ] = None,
    runs: RunsOption = RUNS,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The run's name; by default config and time.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(metavar="SCALE", help="One of the config's scales, as small or full.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Run a configuration: train, score, report; teach or capture first and judge after where it says so.

    Prints the run directory last.
    """
    from unbraid.config import read_toml, to_toml
    from unbraid.runs import Run
    from unbraid.studies import find_config
    from unbraid.sweeps.scales import at_scale
    from unbraid.working import prepared

    path = find_config(config)
    data = at_scale(read_toml(path), scale, str(path))
    resolved = prepared(data, overrides or [], str(path), "the same command", quiet)
    made = Run.create(runs, _checked_name(name) or _fresh_name(path.stem, runs), to_toml(resolved))
    _work(made, quiet)


@app.command()
def resume(name: RunArgument, runs: RunsOption = RUNS, quiet: QuietOption = False) -> None:
    """Go on with a run that was stopped or killed; it ends with the same bits as one never stopped."""
    from unbraid.runs import find_run

    _work(find_run(name, runs), quiet)


@app.command("list")
def list_(runs: RunsOption = RUNS) -> None:
    """List the runs, oldest first."""
    from unbraid.reports.tables import print_runs
    from unbraid.runs import all_runs

    print_runs(all_runs(runs), runs)


@app.command()
def show(
    name: RunArgument,
    as_json: Annotated[
        bool, typer.Option("--json", help="Config, metrics and figures as JSON with stable keys.")
    ] = False,
    runs: RunsOption = RUNS,
) -> None:
    """Show a run: its settings and their scores, with interval, chance and ceiling."""
    from unbraid.reports.tables import print_run, run_as_json
    from unbraid.runs import find_run

    found = find_run(name, runs)
    if as_json:
        typer.echo(run_as_json(found))
    else:
        print_run(found)


@app.command()
def report(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run directories or names.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write the page.")
    ] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Write one self-contained HTML page about one or more runs. Prints its path."""
    from unbraid.reports.page import write_report
    from unbraid.runs import find_run

    found = [find_run(name, runs) for name in names]
    beside = found[0].path if len(found) == 1 else found[0].path.parent
    path = output or beside / "report.html"
    if not path.name or path.is_dir():
        raise Refusal(f"-o {str(output)!r} is not a file; accepted: where to write one, for example report.html")
    typer.echo(write_report(found, path))


@app.command("judge")
def judge_(
    name: RunArgument,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face model: a folder, or its name.")],
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="A text to splice reconstructions into.")],
    labels: Annotated[
        list[Path] | None,
        typer.Option("--labels", metavar="FILE", help="Labelled texts to probe on, as .jsonl; may be repeated."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="SITE", help="Where in the model; by default where the run was trained.")
    ] = None,
    tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of the text that are read.")] = 8192,
    texts: Annotated[int, typer.Option(metavar="N", help="Labelled texts of each file.")] = 1000,
    context: Annotated[int, typer.Option(metavar="N", help="The longest window, in tokens.")] = 128,
    letters: Annotated[bool, typer.Option(help="Whether to look for absorbed first letters.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is written, as JSON.")] = False,
    runs: RunsOption = RUNS,
    quiet: QuietOption = False,
) -> None:
    """Judge a run's dictionaries on a model: fidelity, sparse probing, absorption. Prints what it wrote last."""
    from unbraid.config import check
    from unbraid.files import json_bytes, write_json
    from unbraid.judging.settings import Judging
    from unbraid.reports.judged import print_judged
    from unbraid.runs import find_run
    from unbraid.sweeps.judged import FILE, judge_run, refuse_unfinished
    from unbraid.working import watcher

    on = {"model": model, "text": str(text), "labels": [str(path) for path in labels or []], "site": site}
    asked = {**on, "tokens": tokens, "texts": texts, "context": context, "letters": letters}
    settings, found = check(Judging, asked, "unbraid judge"), find_run(name, runs)
    with found.locked(), watcher(quiet) as watching:
        refuse_unfinished(found)
        judged = judge_run(found, settings, watching)
        write_json(found.path / FILE, judged)
    if as_json:
        typer.echo(json_bytes(judged).decode().rstrip("\n"))
    elif not quiet:
        print_judged(judged)
    typer.echo(found.path / FILE, err=as_json)


@app.command()
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Claims to test; by default all.")] = None,
    scale: Annotated[str, typer.Option(metavar="SCALE", help="small or standard.")] = "small",
    runs: RunsOption = RUNS,
    listed: Annotated[bool, typer.Option("--list", help="List the claims and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON with stable keys.")] = False,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--kept",
            metavar="FILE",
            help="A ledger kept as JSON: what it has is not run again. Written anew, with .md.",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Test what the seeds claim: run what is missing, reuse what is there, and write the ledger."""
    from unbraid.files import json_bytes
    from unbraid.reports.ledger import print_claims, print_ledger, write_ledger
    from unbraid.reports.ledger_table import write_table
    from unbraid.studies.kept import read_kept, with_kept, write_kept
    from unbraid.studies.ledger import NOT_RUN, find_claims, ledger, plan_claims
    from unbraid.studies.plans import checked_scale, missing
    from unbraid.working import gather_for, work_through

    found = find_claims(ids or [])
    asked = {claim.id for claim in found}
    again = ["unbraid", "claims", *(ids or []), "--scale", scale, "--runs", str(runs)]
    again = shlex.join([*again, *(["--kept", str(kept)] if kept else [])])
    before = read_kept(kept, checked_scale(scale))
    if not listed:
        gather_for(found, scale, again, quiet)
    planned = plan_claims(scale, runs)
    if not listed:
        open_ = {entry["id"] for entry in with_kept(ledger(planned), before) if entry["verdict"] == NOT_RUN} & asked
        work_through(missing(study for claim, study in planned if claim.id in open_), again, quiet)
    entries = with_kept(ledger(planned), before)
    told = [entry for entry in entries if entry["id"] in asked]
    if as_json:
        typer.echo(json_bytes({"scale": scale, "claims": told}).decode().rstrip("\n"))
    elif listed:
        print_claims(told)
    elif not quiet:
        print_ledger(told)
    if not listed:
        if kept is not None:
            write_kept(kept, entries, scale)
            write_table(entries, scale, kept.with_suffix(".md"))
        write_table(entries, scale, runs / f"claims-{scale}.md")
        typer.echo(write_ledger(entries, scale, runs / f"claims-{scale}.html"), err=as_json)


@app.command()
def configs() -> None:
    """List the configurations that ship, each with the command that runs it and the scales it has."""
    from unbraid.config import read_toml
    from unbraid.studies import shipped
    from unbraid.sweeps.scales import scales_of

    for path in shipped():
        data = read_toml(path)
        typer.echo(f"{path.stem:24} {data.get('title', '')}")
        typer.echo(f"{'':24} {path.read_text().splitlines()[0].removeprefix('# ')}")
        if scales := scales_of(data, str(path)):
            typer.echo(f"{'':24} --scale {' | '.join(scales)}")


@app.command()
def capture(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face model: a folder, or its name.")],
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="A text file, a .jsonl file, or a folder of them.")],
    site: Annotated[
        str, typer.Option(metavar="SITE", help="As model.layers.3 or blocks.3.hook_resid_post; see docs/capture.md.")
    ],
    tokens: Annotated[int | None, typer.Option(metavar="N", help="Keep so many tokens; by default all.")] = None,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="float32 or bfloat16.")] = "float32",
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens in a window; by default what the model takes, up to 1024.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Tokens that run through the model at a time.")] = 4096,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to; by default activations/MODEL-SITE.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the folder of shards.")] = False,
) -> None:
    """Keep a model's activations on a text as shards; the same command goes on where it was stopped."""
    from unbraid.capture.capturing import Capturing
    from unbraid.capture.command import run_capture
    from unbraid.capture.tables import print_shards
    from unbraid.config import check
    from unbraid.working import watcher

    asked = {"tokens": tokens, "dtype": dtype, "context": context, "batch": batch}
    shards = run_capture(model, text, site, out, check(Capturing, asked, "unbraid capture"), watcher(quiet))
    if not quiet:
        print_shards(shards)
    typer.echo(shards.folder)


@app.command()
def diagnose(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="A folder that `unbraid capture` has written.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON with stable keys.")] = False,
) -> None:
    """Say what activations are like, how to normalise them, and what that means for dead features."""
    from dataclasses import asdict

    from unbraid.capture import diagnosis
    from unbraid.capture.shards import Shards
    from unbraid.capture.tables import print_diagnosis, print_shards
    from unbraid.files import json_bytes

    opened = Shards.open(shards)
    found = diagnosis.diagnose(opened)
    if as_json:
        typer.echo(json_bytes(asdict(found)).decode().rstrip("\n"))
    else:
        print_shards(opened)
        print_diagnosis(found)


def main() -> None:
    """The console script: whatever goes wrong, the user reads one sentence."""
    gc.set_threshold(100_000)  # imports and pictures make many objects and few cycles: looking for these took a second
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")  # a terminal without our letters gets question marks
    sys.exit(guarded(app))


def guarded(command: Callable[[], object]) -> int:
    """Run a command and turn every way it can end into an exit code and at most one sentence."""
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except Stopped as stop:
        return _tell(str(stop), 128 + stop.signal)
    except Refusal as problem:
        return _tell(str(problem), 1 if isinstance(problem, NotFinite | Lost) else 2)
    except OSError as problem:
        return _tell(f"the system refused: {problem}", 2)
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, MemoryError) or "allocate memory" in str(problem):
            return _tell("this machine's memory is not enough; accepted: smaller sizes or batches", 2)
        return _confess()
    except Exception:
        return _confess()
    return 0


def _tell(sentence: str, code: int) -> int:
    print(f"unbraid: {sentence}", file=sys.stderr)
    return code


def _confess() -> int:
    """An error of ours: keep the traceback in a file, tell the user where."""
    if os.environ.get("UNBRAID_TRACEBACK"):
        traceback.print_exc()
        return 1
    try:
        with tempfile.NamedTemporaryFile("w", prefix="unbraid-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
        where = f"please report {file.name}"
    except OSError:
        where = "run it again with UNBRAID_TRACEBACK=1 and please report what it prints"
    return _tell(f"an error of ours, not yours: {sys.exc_info()[1]!r:.200}; {where}", 1)


def _work(run: "Run", quiet: bool) -> None:
    """Do what is left of a run, write its report, and print where it is."""
    from unbraid.reports.tables import print_run
    from unbraid.working import finish, watcher

    with watcher(quiet) as watching:
        written = finish(run, watching, run.how_to_go_on)
    if not quiet:
        print_run(run)
        typer.echo(f"report: {written}")
    typer.echo(run.path)


def _fresh_name(stem: str, runs: Path) -> str:
    """The config's name and the time, with a number where that is taken."""
    name = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    taken = 1
    while (runs / (candidate := name if taken == 1 else f"{name}-{taken}")).exists():
        taken += 1
    return candidate


def _checked_name(name: str | None) -> str | None:
    if name is not None and (
        name in ("", ".", "..") or "/" in name or not name.isprintable() or len(name) > LONGEST_NAME
    ):
        raise Refusal(f"--name {name!r:.60} is not a folder name; accepted: up to {LONGEST_NAME} letters, no slashes")
    return name
