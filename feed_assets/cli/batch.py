"""`batch`: what batches have taken, and the calls of programs that do the work of batches elsewhere."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import MORE, open_context_for, page_options
from feed_assets.cli.options import (
    MomentType,
    author_of,
    author_option,
    change_options,
    cluster_option,
    dry_run_option,
    feeds_option,
    name_argument,
    output_option,
    text_output_option,
)
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import print_json, print_records, say, say_shown
from feed_assets.entities.common import Kind
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from feed_assets.external_work.called_batches import CalledBatch, InitBatch

_CLUSTER = "The cluster; not needed if the process is on one only."
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(cls=Verbs)
def batch() -> None:
    """Inspect batches of processes that take what comes, and do the work of those that runs elsewhere."""


def _call_options(command: _Command) -> _Command:
    """Add what all calls about the batch under way have."""
    named = click.option("--batch", "nominal_time", type=MomentType(), help="The batch, if several are under way.")
    process = name_argument("process", names_of(Kind.PROCESS))
    return process(named(cluster_option(_CLUSTER)(dry_run_option(text_output_option(command)))))


@batch.command("list", epilog="Example: feed-assets batch list load-orders --state FAILED")
@name_argument("process", names_of(Kind.PROCESS), required=False)
@feeds_option("Only batches that have taken events of this feed.")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only batches in this state, such as FAILED.")
@cluster_option("Only this cluster; by default all.")
@click.option("--start", type=MomentType(), help="Only batches that were cut at this time or later.")
@click.option("--end", type=MomentType(), help="Only batches that were cut before this time.")
@page_options
@output_option
def list_(
    process: str | None,
    feeds: tuple[str, ...],
    states: tuple[str, ...],
    cluster: str | None,
    start: datetime | None,
    end: datetime | None,
    offset: int,
    num_results: int,
    output: str,
) -> None:
    """List batches, newest first: of PROCESS, or of all processes that take what comes."""
    from feed_assets.triggers.batch_lists import BatchQuery, list_batches

    query = BatchQuery(
        process=process,
        cluster=cluster,
        feeds=frozenset(feeds),
        states=frozenset(state.upper() for state in states),
        start=start,
        end=end,
        offset=offset,
        results=num_results,
    )
    page = list_batches(open_context_for(), query)
    if output == "json":
        print_json(page)
        return
    print_records("process, cluster, batch, status, attempt, events, inputs=taken", page.batches, output)
    say_shown(len(page.batches), page.total, "batches", MORE)


@batch.command(epilog="Example: feed-assets batch init load-orders --max 100 --output json")
@name_argument("process", names_of(Kind.PROCESS))
@click.option("--max", "most", type=click.IntRange(min=1), help="A new batch takes so many of the oldest events.")
@cluster_option(_CLUSTER)
@change_options
def init(process: str, most: int | None, cluster: str | None, author: str | None, dry_run: bool, output: str) -> None:
    """Take a batch of PROCESS: the oldest that is to be done again, with the same events, else a new one."""
    from feed_assets.external_work.calls import init_batch

    done = init_batch(
        open_context_for(), process, cluster=cluster, author=author_of(author), most=most, dry_run=dry_run
    )
    if output == "json":
        print_json(done)
        return
    for line in _lines(done):
        say(line)


@batch.command("step-start", epilog="Example: feed-assets batch step-start load-orders extract")
@_call_options
@click.argument("step")
def step_start(
    process: str, step: str, nominal_time: datetime | None, cluster: str | None, dry_run: bool, output: str
) -> None:
    """Say that STEP of the batch of PROCESS under way begins."""
    from feed_assets.external_work.calls import start_step

    done = start_step(open_context_for(), process, step, cluster=cluster, nominal_time=nominal_time, dry_run=dry_run)
    _print_call(done, f"step {step} begins", output)


@batch.command("step-end", epilog="Example: feed-assets batch step-end load-orders extract")
@_call_options
@click.argument("step")
def step_end(
    process: str, step: str, nominal_time: datetime | None, cluster: str | None, dry_run: bool, output: str
) -> None:
    """Say that STEP of the batch of PROCESS under way has been done."""
    from feed_assets.external_work.calls import finish_step
    from feed_assets.instances.steps.records import StepStatus

    context, done = open_context_for(), StepStatus.SUCCEEDED
    called = finish_step(context, process, step, done, cluster=cluster, nominal_time=nominal_time, dry_run=dry_run)
    _print_call(called, f"step {step} has been done", output)


@batch.command("step-fail", epilog="Example: feed-assets batch step-fail load-orders extract --reason 'no space left'")
@_call_options
@click.argument("step")
@click.option("--reason", help="Why it has failed, for people.")
def step_fail(
    process: str,
    step: str,
    reason: str | None,
    nominal_time: datetime | None,
    cluster: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Say that STEP of the batch of PROCESS under way has failed: it may begin again, or the batch fails."""
    from feed_assets.external_work.calls import finish_step
    from feed_assets.instances.steps.records import StepStatus

    called = finish_step(
        open_context_for(),
        process,
        step,
        StepStatus.FAILED,
        cluster=cluster,
        nominal_time=nominal_time,
        reason=reason,
        dry_run=dry_run,
    )
    _print_call(called, f"step {step} has failed", output)


@batch.command(epilog="Example: feed-assets batch end load-orders --marking 2026-03-01_DAILY_END")
@_call_options
@author_option
@click.option("--marking", help="A short word for the events of the outputs, by which others may end their batches.")
@click.option(
    "--facts", type=click.File("rb"), help="JSON: what the work has counted, and says of entities; - is standard input."
)
def end(
    process: str,
    marking: str | None,
    facts: BinaryIO | None,
    nominal_time: datetime | None,
    cluster: str | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Say that the batch of PROCESS under way has been done: its outputs are published."""
    from feed_assets.external_work.calls import end_batch

    done = end_batch(
        open_context_for(),
        process,
        cluster=cluster,
        nominal_time=nominal_time,
        author=author_of(author),
        marking=marking,
        facts=facts.read() if facts is not None else b"",
        dry_run=dry_run,
    )
    _print_call(done, "it has succeeded", output)
    for each in done.published if output != "json" else ():
        say(f"{each.done.output}: {each.done.url}")


@batch.command(epilog="Example: feed-assets batch fail load-orders --reason 'the warehouse is away'")
@_call_options
@author_option
@click.option("--reason", help="Why it has failed, for people.")
def fail(
    process: str,
    reason: str | None,
    nominal_time: datetime | None,
    cluster: str | None,
    author: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Say that the batch of PROCESS under way has failed: the next init takes the same events."""
    from feed_assets.external_work.calls import terminate_batch

    called = terminate_batch(
        open_context_for(),
        process,
        cluster=cluster,
        nominal_time=nominal_time,
        author=author_of(author),
        reason=reason,
        dry_run=dry_run,
    )
    _print_call(called, "it has failed; the next one takes the same events", output)


def _print_call(called: "CalledBatch", what: str, output: str) -> None:
    if output == "json":
        print_json(called)
        return
    say(f"{_name(called)}: {what}{' (dry run: nothing was changed)' if called.dry_run else ''}")


def _name(called: "CalledBatch") -> str:
    return f"batch {render_datetime(called.batch)} of {called.process}, attempt {called.attempt}"


def _lines(taken: "InitBatch") -> Iterator[str]:
    """Yield what a program that has taken a batch must know, for people."""
    from feed_assets.plan.rendering import counted

    yield f"{_name(taken)}{': would be taken' if taken.dry_run else ''}"
    for each in taken.inputs:
        marked = f", marked {each.min_marking} to {each.max_marking}" if each.min_marking is not None else ""
        events = f"{counted(each.events, 'event')}, {each.min_event} to {each.max_event}{marked}"
        yield f"input {each.input}: {events if each.events else 'no events'}"
        yield from (f"  {file}" for instance in each.instances for file in instance.files)
    for out in taken.outputs:
        yield f"output {out.staging.edge.name}: {out.staging.url}"
    if taken.steps:
        kept = ", ".join(f"{step.run.step} ({step.run.status.value})" for step in taken.steps)
        yield f"steps: {kept}; next: {taken.next_step or 'end'}"
