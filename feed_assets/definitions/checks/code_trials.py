"""Trials of the code that processes name: functions are imported, and Spark analyzes SQL over empty inputs."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from feed_assets.definitions.checks.code_checks import RULE_CODE, WORKFLOW_CODE, call_of, issue_of, iter_expressions
from feed_assets.engines.code_trial import Trial, try_elsewhere
from feed_assets.engines.data.frames import frame_input
from feed_assets.engines.data.quality import RuleTrial
from feed_assets.engines.port import StepPlace, Work
from feed_assets.engines.workflow.python_code import Call, PythonFiles
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process, iter_whole_workflows
from feed_assets.entities.workflow import Workflow, WorkflowEngine, last_steps
from feed_assets.instances.attempts.work_data import input_data, job_properties, output_target, text_context
from feed_assets.issues import EntityKey, FieldPath, Issue, SourceMap, order_of
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan, ProcessRecord

SECONDS = 120.0
"""The time limit of all trials together, with the start of Java."""
_TRIED = (WorkflowEngine.PYTHON, WorkflowEngine.SQL)


def try_code(
    bundle: Bundle, keys: Collection[EntityKey], *, sources: SourceMap, root: Path, seconds: float = SECONDS
) -> list[Issue]:
    """Try the functions and SQL files of processes, and the quality rules of feeds, in another process of the machine.
    Issues are ordered by file and line.

    Args:
        bundle: valid entities.
        keys: the processes to try, whose code can be read, and the feeds.
        sources: the files and lines of the entities.
        root: the project's folder.
        seconds: the time limit.
    """
    plan = compile_plan(bundle, sources)
    tried: list[tuple[Feed | Process, FieldPath, Trial | RuleTrial]] = [
        *_iter_rules([feed for feed in bundle.feeds if feed.key in keys]),
        *_iter_trials([process for process in bundle.processes if process.key in keys], plan, root),
    ]
    found = try_elsewhere([trial for _, _, trial in tried], seconds) if tried else []
    issues = [
        issue_of(fault, entity, path, sources, RULE_CODE if isinstance(trial, RuleTrial) else WORKFLOW_CODE)
        for (entity, path, trial), faults in zip(tried, found, strict=True)
        for fault in faults
    ]
    return sorted(dict.fromkeys(issues), key=order_of)


def _iter_rules(feeds: Sequence[Feed]) -> Iterator[tuple[Feed, FieldPath, RuleTrial]]:
    for feed in feeds:
        for field, text in iter_expressions(feed):
            yield feed, ("quality", *field), RuleTrial(columns=feed.columns, text=text, field=field[0])


def _iter_trials(processes: Sequence[Process], plan: Plan, root: Path) -> Iterator[tuple[Process, FieldPath, Trial]]:
    files = PythonFiles(root)
    for process in processes:
        record = next((found for name in process.clusters if (found := plan.processes.get((process.name, name)))), None)
        if record is None:
            continue
        conf = dict(plan.clusters[record.cluster].spark_conf)
        for where, workflow in iter_whole_workflows(process):
            for below, part in workflow.parts():
                is_here = ".sql" not in part.path or (root / part.path).is_file()
                if part.engine not in _TRIED or not is_here or "://" in part.path:
                    continue
                work, is_certain = _work_without_data(record, part, plan, root), True
                if below:
                    call = call_of(process, workflow, below, files)
                    work, is_certain = _as_step(work, workflow, below[-1], call), call.is_certain
                yield process, (*where, *below, "path"), Trial(work=work, conf=conf, is_certain=is_certain)


def _as_step(work: Work, workflow: Workflow, name: str, call: Call) -> Work:
    """Return a work as a step, with frames of unknown columns as further inputs."""
    is_last = name in last_steps(workflow.steps)
    frames = (frame_input(work, "", each, "") for each in call.inputs[len(work.inputs) :])
    return replace(
        work,
        inputs=(*work.inputs, *frames),
        outputs=work.outputs if is_last else (),
        step=StepPlace(name=name, frames_url=None if is_last else ""),
    )


def _work_without_data(record: ProcessRecord, workflow: Workflow, plan: Plan, root: Path) -> Work:
    nominal_time: datetime = record.sequence.start
    context = text_context(plan, record, nominal_time)
    inputs = tuple(
        replace(input_data(edge, plan.feeds[edge.feed_key], (), context), optional=True) for edge in record.inputs
    )
    outputs = tuple(
        output_target(edge.name, feed, plan.output_time(edge, nominal_time) or nominal_time, url="")
        for edge in record.own_outputs
        if (feed := plan.feeds.get(edge.feed_key)) is not None
    )
    return Work(
        process=record.process,
        cluster=record.cluster,
        nominal_time=nominal_time,
        timezone=record.sequence.timezone,
        run_id="trial",
        attempt=1,
        inputs=inputs,
        outputs=outputs,
        engine=workflow.engine.value,
        path=workflow.path,
        root=root,
        properties=job_properties(record, context, inputs, outputs),
        libs=tuple(workflow.lib),
        catalog=plan.clusters[record.cluster].catalog,
    )
