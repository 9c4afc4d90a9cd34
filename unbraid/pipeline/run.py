"""One run, on one page: expand once → stages → execute what is missing → collect → summarise → report.

Resuming is running again: what is in the cache is verified and taken, the rest goes on from its checkpoints.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from unbraid.errors import Stopped, UserError
from unbraid.pipeline.executors import THIS_MACHINE, Executor, Needs, pooled_stages
from unbraid.pipeline.expand import Plan, plan_of
from unbraid.pipeline.experiment import MemberStack
from unbraid.pipeline.stage import Stage, in_order, to_make
from unbraid.pipeline.summary import summarize
from unbraid.progress import Progress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache
from unbraid.storage.files import CHECKSUMS, read_json, remove_leftovers, write_json, write_sealed
from unbraid.storage.runs import Run

WriteReport = Callable[[Run], Path]


def carry_out(
    run: Run,
    plan: Plan | None,
    progress: Progress,
    signals: StopSignals,
    write_report: WriteReport,
    missing: Sequence[Stage] | None = None,
    executor: Executor = THIS_MACHINE,
) -> None:
    """Do whatever of this run is not done yet.

    `plan` is its configuration, expanded, and `missing` its stages that are not in the cache, where they are known.
    """
    if run.is_finished:
        run.verify()
        return
    if joined := run.facts().get("joined"):
        again = f"unbraid join {' '.join(joined)}"
        raise UserError(f"{run.path} was joined of other runs; accepted: to remove it and join them again, `{again}`")
    status, began = run.status(), time.monotonic()
    before = status["seconds"]
    if status["state"] == "finished":
        progress.say(f"{run.path / CHECKSUMS} is missing; the run is made again from what is in the cache")

    def note(state: str, sentence: str = "") -> None:
        run.set_status(state, sentence, before + time.monotonic() - began)

    note("running")
    remove_leftovers(run.path)
    try:
        plan = plan or plan_of(run)
        run_stages(run, plan, progress, signals, missing, executor)
        note("finished")
        progress.status("writing the report")
        write_report(run)
        run.finish(before + time.monotonic() - began)
    except Stopped as stop:
        note("stopped", str(stop))
        raise
    except UserError as problem:
        note("failed", str(problem))
        raise
    except Exception as problem:
        note("failed", f"an error of ours: {problem!r:.200}")
        raise


def missing_stages(run: Run, plan: Plan, say: Callable[[str], None]) -> list[Stage]:
    """All stages of a run that are not in the cache, inputs first."""
    return to_make(wanted_stages(plan), Cache(run.cache), say)


def run_stages(
    run: Run,
    plan: Plan,
    progress: Progress,
    signals: StopSignals,
    missing: Sequence[Stage] | None = None,
    executor: Executor = THIS_MACHINE,
) -> None:
    """Make what is missing of all stages, put the results into the run directory, and summarise them."""
    cache = Cache(run.cache)
    plan.first.check_before(plan.stacks)
    wanted = wanted_stages(plan)
    missing = to_make(wanted, cache, progress.say) if missing is None else missing
    if not missing:
        progress.status("every stage is in the cache: nothing is trained")
    needs = stage_needs(plan)
    progress.plan([stage.task() for stage in missing], executor.workers(missing, needs))
    executor.execute(missing, needs, cache, progress, signals)
    executor.fetch(wanted, cache, progress)
    for stack in plan.stacks:
        _collect(run, stack, stack.first.stages(stack), cache)
    plan.first.after_stacks(run, plan.stacks)
    write_json(run.path / "scores.json", summarize(run, plan.members))
    for name, stage in plan.first.final_stages(plan.stacks, plan.members):
        write_sealed(run.path / name, read_json(cache.folder(stage.key) / name))


def wanted_stages(plan: Plan) -> list[Stage]:
    """The stages whose results the run directory gets; they know what they need."""
    stages = [stage for stack in plan.stacks for stage in stack.first.stages(stack)]
    return [*stages, *(stage for _, stage in plan.first.final_stages(plan.stacks, plan.members))]


def stage_needs(plan: Plan) -> dict[str, Needs]:
    """What each stage of a run takes, by its key: threads as on this machine, memory by its stack's members."""
    stages = in_order(wanted_stages(plan))
    pooled, memory, gpus = pooled_stages(stages), defaultdict[str, int](int), defaultdict[str, int](int)
    for stack in plan.stacks:
        taken = sum(member.experiment.memory() for member in stack.members)
        on_gpu = str(stack.first.to_dict().get("device", "cpu")).startswith("cuda")
        for stage in in_order(stack.first.stages(stack)):
            memory[stage.key] = max(memory[stage.key], taken)
            gpus[stage.key] |= on_gpu
    threads = torch.get_num_threads()
    return {
        stage.key: Needs(1 if stage.key in pooled else threads, stage.key in pooled, memory[stage.key], gpus[stage.key])
        for stage in stages
    }


def _collect(run: Run, stack: MemberStack, stages: tuple[Stage, ...], cache: Cache) -> None:
    """Copy what the stages of a stack left into the run, with the names its members have there."""
    folder = run.stack(stack.index)
    for stage in stack.first.copied(stages):
        cache.copy(stage.key, folder)
    write_json(folder / "members.json", [member.card() for member in stack.members])
    stack.first.collect(run, stack, cache)
