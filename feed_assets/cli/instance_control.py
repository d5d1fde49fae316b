"""`instance kill`, `suspend`, `resume` and `rerun`: actions on instances of processes and on copies of feeds."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.cli.groups import Verbs
from feed_assets.cli.options import (
    MomentType,
    PairType,
    PropertyFileType,
    author_of,
    clusters_option,
    listed_change_options,
    name_argument,
)
from feed_assets.cli.proposals import ProposedType, find_times, names_of
from feed_assets.cli.render import print_json, print_table, say
from feed_assets.cli.state import open_context_for, say_silence, stop_runs
from feed_assets.context.consolidation import Lifecycle
from feed_assets.entities.common import Kind
from feed_assets.entities.copies.options import EXISTING, Existing
from feed_assets.operation_list import describe_group

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.instances.gates.actions import InstanceAction
    from feed_assets.instances.lists.control import Controlled

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _range_options(command: _Command) -> _Command:
    """Add the arguments of all four verbs: a process or feed, a range or one instance, clusters and lifecycle."""
    for option in (
        name_argument("name", names_of(Kind.PROCESS, Kind.FEED)),
        click.option("--start", type=MomentType(), help="From this nominal time on, 2015-02-28T06:30Z."),
        click.option("--end", type=MomentType(), help="Before this nominal time."),
        click.option(
            "--instance", type=ProposedType(find_times), help="This instance: a nominal time, a day or a partition key."
        ),
        clusters_option,
        click.option(
            "--lifecycle",
            "lifecycles",
            type=click.Choice([lifecycle.value for lifecycle in Lifecycle], case_sensitive=False),
            multiple=True,
            help="For a feed replication (the default if it is copied) or eviction; may be repeated.",
        ),
    ):
        command = option(command)
    return listed_change_options(command)


instance = Verbs("instance", help=describe_group("instance"))


@instance.command()
@_range_options
def kill(**options: Any) -> None:
    """Kill waiting, running, suspended and failed instances of NAME.

    They stay KILLED: only `rerun` runs them again. Their runs in Dagster are cancelled. SUCCEEDED instances stay so.
    """
    from feed_assets.instances.gates.actions import InstanceAction

    _control(InstanceAction.KILL, **options)


@instance.command()
@_range_options
def suspend(**options: Any) -> None:
    """Suspend instances of NAME until they are resumed.

    Dagster cannot pause a run: the run of a running instance is cancelled, and the instance starts anew when it is
    resumed. Its partial results never become visible.
    """
    from feed_assets.instances.gates.actions import InstanceAction

    _control(InstanceAction.SUSPEND, **options)


@instance.command()
@_range_options
def resume(**options: Any) -> None:
    """Resume suspended instances of NAME: they wait for their inputs, or run at once if those are available."""
    from feed_assets.instances.gates.actions import InstanceAction

    _control(InstanceAction.RESUME, **options)


@instance.command(epilog="Example: feed-assets instance rerun daily-delays --instance 2013-11-03")
@_range_options
@click.option("--file", type=PropertyFileType(), help="A file of properties, name=value.")
@click.option("--property", "properties", multiple=True, type=PairType(), help="A property; may be repeated.")
@click.option("--force", is_flag=True, help="Discard the properties of earlier re-runs.")
@click.option("--adopt", is_flag=True, help="Adopt foreign content that stands in the place of an output.")
@click.option("--from-start", is_flag=True, help="Repeat the steps that have finished, too.")
def rerun(file: Mapping[str, str] | None, properties: tuple[tuple[str, str], ...], adopt: bool, **options: Any) -> None:
    """Run ended instances of NAME again, whatever their outcome.

    An instance of which a step has failed goes on behind its finished steps, if inputs and definition are the same.
    The new outputs replace the old ones once they are complete. The given properties override those of the process, for
    this run and all later ones, until others are given or `--force` discards them. `--adopt` is such a property:
    content that no record and no manifest knows becomes the instance as it is.
    """
    from feed_assets.instances.gates.actions import InstanceAction

    adopting = {EXISTING: Existing.ADOPT.value} if adopt else {}
    given = {**(file or {}), **dict(properties), **adopting}
    overrides = given if given or file is not None else None
    _control(InstanceAction.RERUN, overrides=overrides, **options)


def _control(
    action: "InstanceAction",
    *,
    start: datetime | None,
    end: datetime | None,
    instance: str | None,
    author: str | None,
    dry_run: bool,
    output: str,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    from_start: bool = False,
    **named: Any,
) -> None:
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.gates.actions import InstanceAction
    from feed_assets.instances.lists.control import control_instances

    if (start is None, end is None, instance is None) not in ((False, False, True), (True, True, False)):
        raise click.UsageError("Give either --instance, or --start and --end.")
    context = open_context_for()
    done = control_instances(
        context,
        action,
        resolve_subject(context, preferred=Kind.PROCESS, instance=instance, **named),
        start,
        end,
        author=author_of(author),
        overrides=overrides,
        force=force,
        from_start=from_start,
        dry_run=dry_run,
    )
    stop_runs(done.stopped)
    if output == "json":
        print_json(done)
    else:
        print_table(("instance", "cluster", "was", "is", "copied from"), _iter_rows(context, done), output)
    say(done.render_summary(), err=True)
    if done.instances and action in (InstanceAction.RERUN, InstanceAction.RESUME):
        say_silence(context, {each.instance.cluster for each in done.instances})


def _iter_rows(context: "OperationContext", done: "Controlled") -> Iterator[tuple[str, ...]]:
    """Yield a row for each range of consecutive instances with the same effect."""
    from feed_assets.instances.lists.ranges import join_consecutive, render_range

    rows = []
    for each in done.instances:
        record = context.plan.processes.get((each.instance.process, each.instance.cluster))
        source = () if each.source_cluster is None else (each.source_cluster,)
        cells = (each.instance.cluster, each.instance.status.value, each.after.value, *source)
        rows.append((each.instance.nominal_time, record.sequence if record else None, cells))
    for first, last, cells in join_consecutive(rows):
        yield (render_range(first, last), *cells)
