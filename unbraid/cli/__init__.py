"""The command line: `unbraid run`, `resume`, `plan`, `join`, `list`, `show`, `report`, `explore`, `claims`, `configs`;
`capture`, `diagnose`, `evaluate`; `import`, `export`; `plugins`, `check-plugin`; `profile`, `selfcheck`.

Heavy imports happen inside the commands, so that `--help` answers at once. Exit codes: 0 done; 1 the run could not
finish (a loss that is not finite, a process that was killed, an error of ours), or a device failed its check; 2 what
was asked cannot be done; 130 or 143 stopped by Ctrl-C or SIGTERM.
"""

import gc
import io
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unbraid.cli.group import Commands
from unbraid.errors import Lost, NotFinite, PluginFault, Stopped, UserError, one_line

if TYPE_CHECKING:
    from unbraid.config import JsonDict
    from unbraid.devices import Hardware
    from unbraid.evaluation.language_model.config import LanguageModelEvaluation
    from unbraid.pipeline.executors import Executor
    from unbraid.pipeline.expand import Plan
    from unbraid.storage.runs import Run
    from unbraid.worlds import World

app = typer.Typer(
    name="unbraid",
    cls=Commands,
    help="Plant factors in a world, train a dictionary on it, and score what it recovered against the planted truth.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunsOption = Annotated[Path, typer.Option("--runs", metavar="DIR", help="The folder that holds the runs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the run directory.")]
OnOption = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="CLUSTER", help="ray, ray://HOST:PORT, slurm or slurm://PARTITION; see docs/cluster.md."
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="Where a cluster without a shared disk keeps stages, as s3://bucket/x."
    ),
]
PluginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", metavar="FILE", help="A Python file to run first, with classes of yours; may be repeated."
    ),
]
ColumnOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of a dataset, the column of texts; by default text.")
]
SplitOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of a dataset, which split; by default the only one.")
]
SubsetOption = Annotated[str | None, typer.Option(metavar="NAME", help="Of a dataset, which of its configurations.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Processes that share the features of each dictionary; torchrun's, by default."
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or its name in the folder of runs.")]
DeviceOption = Annotated[
    str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1 or mps; see docs/devices.md.")
]
PrecisionOption = Annotated[str, typer.Option(metavar="TYPE", help="Of matrix products: float32, bfloat16 or float16.")]
RUNS = Path("runs")
DICTIONARIES = Path("dictionaries")
"""Where imported dictionaries are."""


@app.command()
def run(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A TOML file, or the name of one that ships, as superposition/grid.")
    ],
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
    on: OnOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    plugin: PluginOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run a configuration: train, evaluate, report.

    Activations of a language model that the configuration needs and that are not there are captured first. Prints the
    run directory last.
    """
    from unbraid.config import to_toml
    from unbraid.storage.runs import Run
    from unbraid.work import checked_name, executor_for, expand_and_capture, fresh_name, read_config, stem_of

    with _first() as first:
        if not first:
            return
        _run_plugins(plugin)
        executor = executor_for(on, store)
        data, source = read_config(config, overrides or [], scale)
        plan = expand_and_capture(_among(workers, data), source, "the same command", quiet)
        name = checked_name(name, "--name") or fresh_name(stem_of(config), runs)
        _work(Run.create(runs, name, to_toml(plan.config), plan.facts()), plan, quiet, executor)


@app.command()
def resume(
    name: RunArgument,
    runs: RunsOption = RUNS,
    on: OnOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    plugin: PluginOption = None,
    quiet: QuietOption = False,
) -> None:
    """Resume a run that was stopped or killed; it ends with the same bits as one never stopped.

    One that was begun with a plugin's file needs it named again: a run directory runs no code by itself.
    """
    from unbraid.pipeline.expand import expand, plan_of
    from unbraid.storage.runs import find_run
    from unbraid.work import executor_for

    with _first() as first:
        if not first:
            return
        _run_plugins(plugin)
        executor, run, plan = executor_for(on, store), find_run(name, runs, to_finish=True), None
        if count := _among(workers, {}):
            plan_of(run)  # which refuses plugins that are not loaded
            plan = expand({**run.config(), **count}, str(run.path / "config.toml"))
        _work(run, plan, quiet, executor)


@app.command()
def plan(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A TOML file, or the name of one that ships, as superposition/grid.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH=VALUE]...", help="Settings to change, as training.steps=100.")
    ] = None,
    on: Annotated[int, typer.Option("--on", metavar="N", help="Also the time on so many machines like this one.")] = 1,
    runs: RunsOption = RUNS,
    scale: Annotated[str | None, typer.Option(metavar="SCALE", help="One of the config's scales.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON with stable keys.")] = False,
) -> None:
    """Say what a configuration will take, before anything runs: stages, members, memory, disk, time."""
    from unbraid.cli.forecast import print_forecast
    from unbraid.pipeline.expand import expand
    from unbraid.pipeline.forecast import forecast
    from unbraid.storage.files import json_bytes
    from unbraid.storage.runs import CACHE
    from unbraid.work import read_config

    data, source = read_config(config, overrides or [], scale)
    found = forecast(expand(data, source), runs / CACHE, on)
    if as_json:
        typer.echo(json_bytes(found.to_dict()).decode().rstrip("\n"))
    else:
        print_forecast(found)


@app.command()
def join(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Finished runs, directories or names.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The joined run's name; by default the first's and time.")
    ] = None,
    runs: RunsOption = RUNS,
    quiet: QuietOption = False,
) -> None:
    """Join runs that were cut by seed or by setting into one, with intervals and differences over all.

    Refuses what does not fit together. Prints the run directory last.
    """
    from unbraid.cli.run_summary import print_summary
    from unbraid.pipeline.join import join as join_runs
    from unbraid.pipeline.join import left_out
    from unbraid.storage.runs import find_run
    from unbraid.work import checked_name, fresh_name, write_page

    found = [find_run(each, runs) for each in names]
    name = checked_name(name, "--as") or fresh_name(f"{found[0].name[:30]}-joined", found[0].path.parent)
    joined = join_runs(found, name, write_page)
    if sentence := left_out(found):
        print(f"note: {sentence}", file=sys.stderr)
    if not quiet:
        print_summary(joined)
    typer.echo(joined.path)


@app.command("list")
def list_(runs: RunsOption = RUNS) -> None:
    """List the runs, oldest first."""
    from unbraid.cli.tables import print_runs
    from unbraid.storage.runs import all_runs

    print_runs(all_runs(runs), runs)


@app.command()
def show(
    name: RunArgument,
    as_json: Annotated[
        bool, typer.Option("--json", help="Config, metrics and figures as JSON with stable keys.")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="DIR", help="Write every table as a CSV file into this folder.")
    ] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Show a run: its settings and their scores, with interval, chance and ceiling. Or a dictionary: what it is."""
    from unbraid.cli.tables import print_run, run_as_json, write_tables
    from unbraid.storage.runs import find_run

    if (folder := _dictionary(name, runs)) is not None:
        from unbraid.cli.dictionaries import dictionary_as_json, print_dictionary

        if csv is not None:
            raise UserError(f"{folder} is a dictionary and has no tables; accepted: a run, or --json")
        if as_json:
            typer.echo(dictionary_as_json(folder))
        else:
            print_dictionary(folder)
        return
    found = find_run(name, runs)
    with found.advice():
        if found.is_finished:
            found.scores()  # a damaged file is told before anything is printed
        if csv is not None:
            typer.echo("\n".join(map(str, write_tables(found, csv))))
        elif as_json:
            typer.echo(run_as_json(found))
        else:
            print_run(found)


@app.command()
def report(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run directories or names.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write the page.")
    ] = None,
    figures: Annotated[
        str | None, typer.Option(metavar="TYPE", help="png or svg: also write each figure into RUN/figures.")
    ] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Write one self-contained HTML page about one or more runs. Prints its path."""
    from unbraid.report.page import write_report
    from unbraid.storage.runs import find_run

    found = [find_run(name, runs) for name in names]
    beside = found[0].path if len(found) == 1 else found[0].path.parent
    path = output or beside / "report.html"
    if not path.name or path.is_dir():
        raise UserError(f"-o {str(output)!r} is not a file; accepted: where to write one, for example report.html")
    if figures not in (None, "png", "svg"):
        raise UserError(f"--figures {figures!r:.40} is no type of picture that is drawn here; accepted: png or svg")
    with ExitStack() as stack:
        for run in found:
            stack.enter_context(run.advice())
            inside = [path.name] if path.resolve().parent == run.path.resolve() else []
            if added := inside + (["figures"] if figures else []):
                stack.enter_context(run.adding(*added))
        written = write_report(found, path, figures)
    typer.echo(written)


@app.command()
def explore(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUNS]...", help="Runs, or folders of runs; by default all in the folder of runs."),
    ] = None,
    runs: RunsOption = RUNS,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger of claims to show.")
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; other machines reach only another one.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=65535, help="By default the first free one from 8642.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Whether to open the browser.")] = True,
    plugin: PluginOption = None,
) -> None:
    """Explore runs in the browser: concepts, features, heads, comparisons, claims. Prints its address."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait by spinning: dear where pages share a machine
    from unbraid.explorer.server import serve

    serve(runs, names or None, ledger, host, port, browser, plugin or [])


@app.command()
def evaluate(
    name: RunArgument,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face model: a folder, or its name.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text, or a dataset, to splice reconstructions into.")],
    column: ColumnOption = None,
    split: SplitOption = None,
    subset: SubsetOption = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", metavar="FILE", help="Labelled texts for probing: .jsonl or a dataset; may repeat."),
    ] = None,
    label_text: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of datasets of labels, the column of texts; by default text.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of labels; by default label.")
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="SITE", help="Where in the model; by default where the run was trained.")
    ] = None,
    tokens: Annotated[int, typer.Option(metavar="N", help="Tokens read from the text.")] = 8192,
    texts: Annotated[int, typer.Option(metavar="N", help="Labelled texts read from each file.")] = 1000,
    context: Annotated[int, typer.Option(metavar="N", help="The longest window, in tokens.")] = 128,
    letters: Annotated[bool, typer.Option(help="Whether to measure the absorption of first letters.")] = True,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    runs: RunsOption = RUNS,
    plugin: PluginOption = None,
    quiet: QuietOption = False,
) -> None:
    """Evaluate dictionaries on a language model: loss recovered, sparse probing, first-letter absorption.

    Those of a run, or one that was imported.
    """
    from unbraid.cli.language_model_scores import print_scores
    from unbraid.config import check
    from unbraid.devices import Hardware, checked_precision
    from unbraid.evaluation.language_model.config import LanguageModelEvaluation
    from unbraid.storage.files import json_bytes
    from unbraid.storage.runs import LANGUAGE_MODEL

    _run_plugins(plugin)
    on = {"model": model, "text": text, "column": column, "split": split, "subset": subset, "site": site}
    on |= {"labels": labels or [], "label_text": label_text, "label_column": label_column}
    asked = {**on, "tokens": tokens, "texts": texts, "context": context, "letters": letters}
    config, folder = check(LanguageModelEvaluation, asked, "unbraid evaluate"), _dictionary(name, runs)
    hardware = Hardware.of(device, checked_precision(precision))
    if folder is not None:
        scores = _evaluate_dictionary(folder, config, hardware, quiet)
    else:
        folder, scores = _evaluate_run(name, runs, config, hardware, quiet)
    if as_json:
        typer.echo(json_bytes(scores).decode().rstrip("\n"))
    elif not quiet:
        print_scores(scores)
    typer.echo(folder / LANGUAGE_MODEL, err=as_json)


@app.command("import")
def import_(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder or file of a dictionary, or a hub id as owner/name/folder.")
    ],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="What it is called here.")],
    folder: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The folder that holds the imported dictionaries.")
    ] = DICTIONARIES,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the dictionary's folder.")] = False,
) -> None:
    """Import a dictionary of SAELens, dictionary_learning, sparsify, Gemma Scope and others, checked as it is read.

    `unbraid show`, `evaluate` and `export` take its name; `dictionary.init.from` its folder. Prints the folder last.
    """
    from unbraid.cli.dictionaries import print_dictionary
    from unbraid.dictionaries.formats.load import load
    from unbraid.work import checked_name

    place = folder / (checked_name(name, "--as", "a dictionary") or name)
    if place.exists():
        raise UserError(f"{place} exists already; accepted: another --as")
    load(path).save(place)
    if not quiet:
        print_dictionary(folder / name)
    typer.echo(folder / name)


@app.command()
def export(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, an imported dictionary, or whatever `unbraid import` takes.")
    ],
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="saelens, dictionary_learning, sparsify, gemma_scope, neuronpedia, circuit_tracer or unbraid.",
        ),
    ],
    members: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            metavar="[STACK/]N",
            help="Which of its dictionaries, as `show --json` numbers them; by default all.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Where to; by default exports/RUN-FORMAT.")
    ] = None,
    runs: RunsOption = RUNS,
    plugin: PluginOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the folder.")] = False,
) -> None:
    """Export dictionaries to another library's files, each read back and compared. Prints the folder last."""
    from unbraid.cli.dictionaries import export_dictionaries
    from unbraid.dictionaries.formats.convert import find_format

    _run_plugins(plugin)
    find_format(format)
    folder = output or Path("exports") / f"{Path(name).name}-{format}"
    export_dictionaries(_dictionary(name, runs) or name, members or [], format, folder, runs, quiet)
    typer.echo(folder)


@app.command()
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Claims to test; by default all.")] = None,
    scale: Annotated[str, typer.Option(metavar="SCALE", help="small or standard.")] = "small",
    runs: RunsOption = RUNS,
    listed: Annotated[bool, typer.Option("--list", help="List the claims and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON with stable keys.")] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help="A ledger as JSON: a study whose verdicts it has is not run again. Written anew, with .md.",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Test what the source studies claim: run what is missing, reuse what is there, and write the ledger."""
    from unbraid.cli.ledger import print_claims, print_ledger
    from unbraid.storage.files import json_bytes
    from unbraid.work import ClaimsAsked

    asked = ClaimsAsked(ids or [], scale, runs, ledger)
    again = ["unbraid", "claims", *(ids or []), "--scale", scale, "--runs", str(runs)]
    again = shlex.join([*again, *(["--ledger", str(ledger)] if ledger else [])])
    shown = asked.listed() if listed else asked.test(again, quiet)
    if as_json:
        typer.echo(json_bytes({"scale": scale, "claims": shown}).decode().rstrip("\n"))
    elif listed:
        print_claims(shown)
    elif not quiet:
        print_ledger(shown)
    if not listed:
        typer.echo(asked.page, err=as_json)


@app.command()
def configs() -> None:
    """List the configurations that ship: names for `unbraid run`, titles, and the scales they have."""
    from unbraid.config import read_toml
    from unbraid.config.sweep import scales_of
    from unbraid.studies.shipped import shipped

    configs = shipped()
    width = max(map(len, configs), default=0)
    for name, path in configs.items():
        data = read_toml(path)
        typer.echo(f"{name:{width}}  {data.get('title', '')}")
        if scales := scales_of(data, str(path)):
            typer.echo(f"{'':{width}}  --scale {' | '.join(scales)}")


@app.command()
def capture(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face model: a folder, or its name.")],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A text, a .jsonl file, a folder of them, or a Hugging Face dataset.")
    ],
    site: Annotated[
        str, typer.Option(metavar="SITE", help="As model.layers.3 or blocks.3.hook_resid_post; see docs/capture.md.")
    ],
    column: ColumnOption = None,
    split: SplitOption = None,
    subset: SubsetOption = None,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Read a dataset as rows are needed; with --tokens.")
    ] = False,
    target: Annotated[
        str | None, typer.Option(metavar="SITE", help="Another site, that transcoders predict; of the same pass.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(metavar="N", help="Capture so many tokens; by default all.")] = None,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="float32 or bfloat16.")] = "float32",
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens in a window; by default what the model takes, up to 1024.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Tokens that run through the model at a time.")] = 4096,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to; by default activations/MODEL-SITE.")
    ] = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "float32",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the folder of shards.")] = False,
) -> None:
    """Capture a model's activations on a text, as shards on disk; the same command resumes where it was stopped."""
    from unbraid.activations.capture import CaptureConfig, default_folder
    from unbraid.activations.capture import capture as capture_activations
    from unbraid.activations.tables import print_shards
    from unbraid.config import check
    from unbraid.devices import Hardware, checked_precision
    from unbraid.progress import for_terminal

    asked = {"model": model, "text": text, "site": site, "tokens": tokens, "dtype": dtype, "context": context}
    asked |= {"column": column, "split": split, "subset": subset, "streaming": streaming or None}
    config = check(CaptureConfig, {**asked, "target": target, "batch": batch}, "unbraid capture")
    folder = out or default_folder(model, "-to-".join(config.names))
    hardware = Hardware.of(device, checked_precision(precision))
    shards = capture_activations(config, folder, for_terminal(quiet), None, hardware.device, hardware.precision)
    if not quiet:
        print_shards(shards)
    typer.echo(shards.folder)


@app.command()
def diagnose(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="A folder that `unbraid capture` has written.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON with stable keys.")] = False,
) -> None:
    """Describe activations: how to normalize them, and how many features of a dictionary would die."""
    from dataclasses import asdict

    from unbraid.activations import diagnosis
    from unbraid.activations.shards import Shards
    from unbraid.activations.tables import print_diagnosis, print_shards
    from unbraid.storage.files import json_bytes

    opened = Shards.open(shards)
    facts = diagnosis.diagnose(opened)
    if as_json:
        typer.echo(json_bytes(asdict(facts)).decode().rstrip("\n"))
    else:
        print_shards(opened)
        print_diagnosis(facts)


@app.command("plugins")
def plugins_(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to run and list, too.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List what is built in, too.")] = False,
) -> None:
    """List plugins: of installed packages, and of the files that are named. Their name, what they are, where from."""
    from unbraid.cli.plugins import print_plugins

    _run_plugins(files)
    print_plugins(everything)


@app.command("check-plugin")
def check_plugin(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plugin's file, or the name of an installed plugin.")],
) -> None:
    """Check which promises a plugin keeps, by the same checks as what is built in. Exit code 1 where it breaks one."""
    from unbraid.cli.plugins import check_and_print

    if not check_and_print(file):
        raise typer.Exit(1)


@app.command()
def profile(
    subject: Annotated[str, typer.Argument(metavar="WHAT", help="What is profiled: gauge.")],
    tokens: Annotated[int, typer.Option(metavar="N", min=2, max=1 << 14, help="Tokens in a window.")] = 256,
    batch: Annotated[int, typer.Option(metavar="N", min=1, max=1 << 14, help="Windows in a step.")] = 8,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, max=10**6, help="Steps that are timed.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON with stable keys.")] = False,
) -> None:
    """Profile gauge transformers of width 20, 64 and 128: time and memory of a step, beside plain ones as wide."""
    if subject != "gauge":
        raise UserError(f"there is no profile of '{subject}'; accepted: gauge")
    from unbraid.cli.profile import print_profiles, profiles_as_json
    from unbraid.models.profile import profile_gauge
    from unbraid.storage.files import json_bytes

    profiles = profile_gauge(tokens, batch, repeats)
    if as_json:
        typer.echo(json_bytes(profiles_as_json(profiles, tokens, batch)).decode().rstrip("\n"))
    else:
        print_profiles(profiles, tokens, batch)


@app.command()
def selfcheck(
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    timed: Annotated[bool, typer.Option(help="Whether steps are also timed, against the bare product.")] = True,
) -> None:
    """Check a device: steps held against the CPU's and each other's, then timed. A report to paste; 1 if it fails."""
    from unbraid.devices import Hardware, checked_precision
    from unbraid.pipeline.selfcheck import check_device, header, time_steps

    hardware = Hardware.of(device, checked_precision(precision))
    typer.echo(header(hardware))
    failed = 0
    for finding in check_device(hardware):
        failed += not finding.passes
        typer.echo(str(finding))
    for line in time_steps(hardware) if timed else ():
        typer.echo(line)
    typer.echo(f"{failed} comparisons failed" if failed else "all comparisons passed")
    if failed:
        raise typer.Exit(1)


def main() -> None:
    """The console script: whatever goes wrong, the user reads one sentence."""
    gc.set_threshold(100_000)  # imports and figures make many objects and few cycles: looking for these took a second
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
        return _print_error(str(stop), 128 + stop.signal)
    except UserError as problem:
        if isinstance(problem, PluginFault) and os.environ.get("UNBRAID_TRACEBACK"):
            traceback.print_exc()
        return _print_error(str(problem), 1 if isinstance(problem, NotFinite | Lost | PluginFault) else 2)
    except OSError as problem:
        return _print_error(f"the system refused: {problem}", 2)
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, MemoryError) or "allocate memory" in str(problem):
            return _print_error("this machine's memory is not enough; accepted: smaller sizes or batches", 2)
        return _report_bug()
    except Exception:
        return _report_bug()
    return 0


def _print_error(sentence: str, code: int) -> int:
    print(f"unbraid: {one_line(sentence)}", file=sys.stderr)
    return code


def _report_bug() -> int:
    """An error of ours: keep the traceback in a file, tell the user where. Or a plugin's, which is told as such."""
    if os.environ.get("UNBRAID_TRACEBACK"):
        traceback.print_exc()
        return 1
    from unbraid.config.plugins import fault

    problem = sys.exc_info()[1]
    if problem is not None and (told := fault(problem)) is not None:
        return _print_error(str(told), 1)
    try:
        with tempfile.NamedTemporaryFile("w", prefix="unbraid-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
        where = f"please report {file.name}"
    except OSError:
        where = "run it again with UNBRAID_TRACEBACK=1 and please report what it prints"
    return _print_error(f"an error of ours, not yours: {sys.exc_info()[1]!r:.200}; {where}", 1)


def _among(workers: int | None, data: "JsonDict") -> "JsonDict":
    """A configuration for so many processes; for as many as torchrun has started, if it has."""
    started = int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else None
    if workers is not None and started not in (None, workers):
        raise UserError(f"--workers is {workers} and torchrun has started {started}; accepted: one of them")
    count = started or workers
    return data if count is None else {**data, "workers": count}


@contextmanager
def _first() -> Iterator[bool]:
    """Whether this process does what is asked; where torchrun has started several, the first does, and others help."""
    if "RANK" not in os.environ:
        yield True
        return
    from unbraid.pipeline.sharded_training import first_of_torchruns

    with first_of_torchruns() as first:
        yield first


def _work(run: "Run", plan: "Plan | None", quiet: bool, executor: "Executor") -> None:
    """Do what is left of a run, write its report, and print what came of it and where it is."""
    from unbraid.cli.run_summary import print_summary
    from unbraid.progress import for_terminal
    from unbraid.work import finish

    with run.advice(), for_terminal(quiet) as progress:
        finish(run, plan, progress, run.resume_command, executor=executor)
    if not quiet:
        with run.advice():
            print_summary(run)
    typer.echo(run.path)


def _dictionary(text: str, runs: Path) -> Path | None:
    """The folder of an imported dictionary, by its path or its name, where there is no run of that name."""
    from unbraid.dictionaries.formats.folder import METADATA

    places = [path for path in (Path(text), runs / text) if (path / "run.json").is_file()]
    found = [path for path in (Path(text), DICTIONARIES / text) if (path / METADATA).is_file()]
    return found[0] if found and not places else None


def _evaluate_run(
    name: str, runs: Path, config: "LanguageModelEvaluation", hardware: "Hardware", quiet: bool
) -> "tuple[Path, JsonDict]":
    """Evaluate a run's dictionaries, and keep the scores in it."""
    from unbraid.pipeline.language_model_stage import evaluate_run
    from unbraid.progress import Task, TaskProgress, for_terminal
    from unbraid.storage.runs import LANGUAGE_MODEL, find_run

    run = find_run(name, runs)
    with run.locked(), run.advice(), for_terminal(quiet) as progress:
        run.check_finished()
        progress.plan([Task("evaluation", "language-model", config.steps, 1.0)])
        scores = evaluate_run(run, config, _worlds(run), hardware, TaskProgress(progress, 0))
        with run.adding(LANGUAGE_MODEL):
            run.set_on_language_model(scores)
    return run.path, scores


def _evaluate_dictionary(
    folder: Path, config: "LanguageModelEvaluation", hardware: "Hardware", quiet: bool
) -> "JsonDict":
    """Evaluate an imported dictionary, and keep the scores in its folder."""
    from unbraid.dictionaries.formats.folder import add_file
    from unbraid.dictionaries.formats.load import load
    from unbraid.pipeline.language_model_stage import evaluate_stack
    from unbraid.progress import Task, TaskProgress, for_terminal
    from unbraid.storage.runs import LANGUAGE_MODEL

    with for_terminal(quiet) as progress:
        progress.plan([Task("evaluation", "language-model", config.steps, 1.0)])
        scores = evaluate_stack(
            load(folder).to(hardware.device, hardware.precision), folder.name, config, TaskProgress(progress, 0)
        )
    add_file(folder, LANGUAGE_MODEL, scores)
    return scores


def _worlds(run: "Run") -> "list[World]":
    """The worlds that the trained dictionaries of a run learned from."""
    from unbraid.pipeline.expand import plan_of

    plan = plan_of(run, f"`unbraid evaluate {run.path} ... --plugin FILE`")
    return [world for member in plan.members if (world := member.experiment.dictionary_world()) is not None]


def _run_plugins(files: list[Path] | None) -> None:
    """Run the files that the command line names."""
    if files:
        from unbraid.config.plugins import read_file

        for file in files:
            read_file(file)
