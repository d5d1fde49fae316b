"""What people do to instances, what producers report of feeds, and what runs have reported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from feed_assets.entities.common import Kind
from feed_assets.entities.copies.options import EXISTING, Existing
from feed_assets.errors import WrongUsageError
from feed_assets.instances.lists.commands import Named
from feed_assets.operation import RUNS_CODE, WORKS_LONG, Confirm, Does, Param, later, operation
from feed_assets.parameters import End, Feed, Limit, MaybeInstance, OnlyCluster, Process, ProcessCluster, Start

if TYPE_CHECKING:
    from feed_assets.catalog import run_metadata
    from feed_assets.context import consolidation
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.instances.arrival import arrival_notices
    from feed_assets.instances.attempts import trying
    from feed_assets.instances.gates import actions
    from feed_assets.instances.inbox import asking
    from feed_assets.instances.lists import control, feed_events, feed_listings, polled_ranges, ranges, reruns

later(globals())

GROUPS = {
    "facts": "Show what runs have reported.",
    "feed": "Report arrivals of feed instances, show their events, take files from inboxes, and list files.",
}

FeedCluster = Annotated[str | None, Param("The cluster; not needed if the feed is on one only.", of=(Kind.CLUSTER,))]

FactName = Annotated[str | None, Param("Only facts of this name.")]


@operation(
    "facts history",
    none="no run has reported such a fact there",
    table="instance=nominal_time, cluster, attempt, name, value, at=recorded_at:seconds",
    rows="facts",
    example="daily-delays --start 2013-11 --name flights",
)
def facts_history(
    context: "OperationContext", *, process: Process, start: Start = None, end: End = None, name: FactName = None
) -> "tuple[run_metadata.Fact, ...]":
    """Show the facts that runs of PROCESS have reported, newest instance first."""
    sequences = [record.sequence for record in context.processes_of(process)]
    first, stop = ranges.decide_range(sequences, start=start, end=end, results=consolidation.PAGE, now=context.as_of)
    with context.read() as connection:
        return tuple(run_metadata.Facts(connection).between(process, run_metadata.PROGRAM, first, stop, name))


@operation("feed notify", does=Does.NOTIFIES, text="told", long=True, example="flights 2013-11-03 --key delivery-4711")
def notify(
    context: "ChangeContext",
    *,
    feed: Feed,
    instance: MaybeInstance = None,
    start: Annotated[
        datetime | None, Param("Poll all instances from this nominal time on, instead of INSTANCE.")
    ] = None,
    end: Annotated[datetime | None, Param("Before this nominal time; by default now.")] = None,
    cluster: FeedCluster = None,
    key: Annotated[str | None, Param("A key of the notice; given again, it does nothing more.")] = None,
    path: Annotated[str | None, Param("The location of the data; refused if the instance belongs elsewhere.")] = None,
    size: Annotated[int | None, Param("The size of the data; refused if it differs.", option="bytes", least=0)] = None,
    trust: Annotated[bool, Param("Do not check storage.")] = False,
    payload: Annotated[dict[str, object] | None, Param("A JSON object for those who read the instance.")] = None,
    marking: Annotated[str | None, Param("A word that ends or names a batch of those who read it.")] = None,
    again: Annotated[bool, Param("An instance that has arrived has other content now.")] = False,
    accept: Annotated[
        str | None, Param("Take an instance that its rows hold back as it is, and why.", metavar="WHY")
    ] = None,
    server: Annotated[  # noqa: ARG001 - who is told is found before this is called
        str | None, Param("Tell this feed-assets server, of another location.", option="to", metavar="URL", local=True)
    ] = None,
    progress: Callable[..., None],
) -> "arrival_notices.NoticeResult | polled_ranges.PolledRanges":
    """Report that INSTANCE of FEED has arrived, so that it need not be polled.

    INSTANCE is a nominal time, 2013-11-03T05:00Z, or a day or a partition key in the feed's time zone. The command
    checks in storage that the data are available and complete. A notice of an instance that has already arrived does
    nothing. The next tick runs the processes that wait for it.

    A signal has no data: without INSTANCE, each notice is one at the present second. With --path, INSTANCE may be left
    out if the path of its data tells it.

    What comes for a feed with quality is available once a run has judged its rows. If they are not good enough,
    --accept takes them as they are; what was found, who took them and why are kept.

    With --start, all instances up to --end are looked for in storage at once, such as those of a history that has
    landed. Those that are not there remain missing, and are polled as before.

    The server of --to is told instead of that of --server, with the same token, and looks for the data there.
    """
    if start is not None:
        if instance is not None:
            raise WrongUsageError("Give either INSTANCE or --start.")
        if key or path or trust or size is not None or payload or marking or again or accept:
            of_one = "--key, --path, --bytes, --trust, --payload, --marking, --again and --accept"
            raise WrongUsageError(f"{of_one} are of one INSTANCE.")
        end = end or context.as_of
        return polled_ranges.poll_range(context, feed, start, end, cluster=cluster, progress=progress)
    notice = arrival_notices.Notice(
        feed=feed,
        nominal_time=instance,
        cluster=cluster,
        key=key,
        path=path,
        bytes=size,
        is_trusted=trust,
        payload=payload or {},
        marking=marking,
        is_again=again,
        accept=accept,
    )
    return arrival_notices.record_notice(context, notice)


@operation(
    "feed events",
    none="nothing of it is recorded there",
    table="event=seq, at=recorded_at:seconds, cluster, instance=nominal_time, kind, by, marking, payload=said",
    rows="events",
    example="flights --start 2013-11-03 --payload source=airport",
)
def events(
    context: "OperationContext",
    *,
    feed: Feed,
    start: Annotated[datetime | None, Param("From this nominal time on.")] = None,
    end: Annotated[datetime | None, Param("Before this nominal time.")] = None,
    cluster: OnlyCluster = None,
    payload: Annotated[dict[str, str] | None, Param("With this value in the payload.", metavar="NAME=VALUE")] = None,
    limit: Limit = 20,
) -> "feed_events.FeedEvents":
    """Show what happened to instances of FEED: when, by whom, with which marking and payload; newest first."""
    return feed_events.find_events(
        context, feed, cluster=cluster, start=start, end=end, payload=payload or {}, limit=limit
    )


@operation(
    "feed take",
    does=Does.ACTS,
    safe=True,
    rows="inboxes",
    example="orders --dry-run",
    long=True,
    no_route=WORKS_LONG,
)
def take(
    context: "ChangeContext",
    *,
    feed: Feed,
    cluster: Annotated[
        str | None, Param("Only this cluster; by default all on which the feed has an inbox.", of=(Kind.CLUSTER,))
    ] = None,
    progress: Callable[..., None],
) -> "tuple[asking.InboxResult, ...]":
    """Take the files that have settled in the inbox of FEED now, of any size.

    Sensors look into inboxes by themselves. The command also takes files that they have left there, such as large ones,
    and tries again what was refused before. With --dry-run it shows the files in the inbox and what is known of them;
    one that is READY would be taken, if no file with its content was taken before.
    """
    return asking.take_from_inboxes(context, feed, cluster=cluster, progress=progress)


@operation(
    "feed files",
    none="no event has brought files",
    table="path=url, size=bytes, checksum, event",
    rows="files",
    example="orders --from-event 17 --to-event 25 --output csv",
)
def files(
    context: "OperationContext",
    *,
    feed: Feed,
    from_event: Annotated[int | None, Param("The number of the first event.", least=1)] = None,
    to_event: Annotated[int | None, Param("The number of the last event, which is included.", least=1)] = None,
    start: Annotated[datetime | None, Param("The nominal time of the first instance, instead of events.")] = None,
    end: Annotated[datetime | None, Param("The nominal time of the last instance, which is included.")] = None,
    cluster: FeedCluster = None,
) -> "feed_listings.FileList":
    """List the files that events of FEED have brought, with their sizes and checksums.

    By the numbers of the events, such as the smallest and the largest that a batch has taken, or by the nominal times
    of the instances; both ends are included. Without them, all events count. A file that nobody has read has no
    checksum.
    """
    if (from_event or to_event) and (start or end):
        raise WrongUsageError("Give either events or times.")
    return feed_listings.list_files(
        context, feed, cluster=cluster, first_event=from_event, last_event=to_event, start=start, end=end
    )


_CHANGES = "instance, cluster, was, is, copied from"
_WITH = "A property; may be repeated."

PropertyFile = Annotated[dict[str, str] | None, Param("A file of properties, name=value.", file=True)]
Properties = Annotated[dict[str, str] | None, Param(_WITH, option="property")]
Force = Annotated[bool, Param("Discard the properties of earlier re-runs.")]
Adopt = Annotated[bool, Param("Adopt foreign content that stands in the place of an output.")]
FromStart = Annotated[bool, Param("Repeat the steps that have finished, too.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Named):
    """The instances on which somebody acts: those of a range, or one."""

    start: Annotated[datetime | None, Param("From this nominal time on.")] = None
    end: Annotated[datetime | None, Param("Before this nominal time.")] = None
    instance: Annotated[datetime | None, Param("This instance, instead of a range.")] = None

    def __post_init__(self) -> None:
        missing = (self.start is None, self.end is None, self.instance is None)
        if missing not in ((False, False, True), (True, True, False)):
            raise WrongUsageError("Give either --instance, or --start and --end.")

    def act(self, context: "ChangeContext", action: str, **how: Any) -> "control.Controlled":
        """Apply an action."""
        subject = self.resolve(context, self.instance, preferred=Kind.PROCESS)
        return control.control_instances(context, actions.InstanceAction(action), subject, self.start, self.end, **how)


@operation("instance kill", does=Does.ACTS, safe=True, table=_CHANGES, rows="ranges")
def kill(context: "ChangeContext", *, query: Chosen) -> "control.Controlled":
    """Kill waiting, running, suspended and failed instances of NAME.

    They stay KILLED: only `rerun` runs them again. Their runs in Dagster are cancelled. SUCCEEDED instances stay so.
    """
    return query.act(context, "kill")


@operation("instance suspend", does=Does.ACTS, safe=True, table=_CHANGES, rows="ranges")
def suspend(context: "ChangeContext", *, query: Chosen) -> "control.Controlled":
    """Suspend instances of NAME until they are resumed.

    Dagster cannot pause a run: the run of a running instance is cancelled, and the instance starts anew when it is
    resumed. Its partial results never become visible.
    """
    return query.act(context, "suspend")


@operation("instance resume", does=Does.ACTS, table=_CHANGES, rows="ranges")
def resume(context: "ChangeContext", *, query: Chosen) -> "control.Controlled":
    """Resume suspended instances of NAME: they wait for their inputs, or run at once if those are available."""
    return query.act(context, "resume")


@operation(
    "instance rerun",
    does=Does.ACTS,
    table=_CHANGES,
    rows="ranges",
    answers=202,
    example="daily-delays --instance 2013-11-03",
)
def rerun(
    context: "ChangeContext",
    *,
    query: Chosen,
    file: PropertyFile = None,
    properties: Properties = None,
    force: Force = False,
    adopt: Adopt = False,
    from_start: FromStart = False,
    downstream: Annotated[
        bool, Param("Run again what hangs on them, too, as far as content comes out changed.")
    ] = False,
    levels: Annotated[int | None, Param("Only so many steps downstream; by default all.", least=1)] = None,
    even_unchanged: Annotated[bool, Param("Go on downstream behind what comes out unchanged.")] = False,
    digest: Annotated[
        str | None, Param("Run only the plan with this digest, or with one that begins so (8 characters).")
    ] = None,
    yes: Annotated[bool, Param("Do not ask for confirmation.")] = False,
    confirm: Confirm,
) -> "control.Controlled | reruns.RerunPlan":
    """Run ended instances of NAME again, whatever their outcome.

    An instance of which a step has failed goes on behind its finished steps, if inputs and definition are the same.
    The new outputs replace the old ones once they are complete. The given properties override those of the process, for
    this run and all later ones, until others are given or `--force` discards them. `--adopt` is such a property:
    content that no record and no manifest knows becomes the instance as it is.

    With --downstream, what hangs on them runs again after them: instances that have read what they write, or whose
    windows have it, and so on. --dry-run shows which, with hours of work and bytes, and a digest. Without --digest it
    asks for confirmation if anything hangs on them. An instance runs when all that it waits for has run, and has come
    out with other content; `why` tells, and `kill` calls it off.
    """
    adopting = {EXISTING: Existing.ADOPT.value} if adopt else {}
    given: Mapping[str, str] = {**(file or {}), **(properties or {}), **adopting}
    overrides = given if given or file is not None else None
    if not downstream:
        if levels or even_unchanged or digest or yes:
            raise WrongUsageError("--levels, --even-unchanged, --digest and --yes are of what is --downstream.")
        return query.act(context, "rerun", overrides=overrides, force=force, from_start=from_start)
    return reruns.rerun_downstream(
        context,
        query.resolve(context, query.instance, preferred=Kind.PROCESS),
        query.start,
        query.end,
        reruns.Downstream(levels=levels, even_unchanged=even_unchanged),
        digest=digest,
        confirm=confirm,
        is_confirmed=yes,
        overrides={} if force and overrides is None else overrides,
        from_start=from_start,
    )


@operation("try", long=True, example="daily-delays 2013-11-03 --entities ../changed/entities", no_route=RUNS_CODE)
def try_instance(
    context: "OperationContext",
    *,
    process: Process,
    instance: Annotated[str, Param("The nominal time.", argument=True, proposes="times")],
    cluster: ProcessCluster = None,
    entities: Annotated[
        str | None, Param("Definitions and code of this folder, instead of the project's.", metavar="FOLDER")
    ] = None,
    rows: Annotated[int, Param("How many rows of each kind of difference are shown.", least=0)] = 5,
    keep: Annotated[bool, Param("Leave what was made in its scratch place, until stagings are swept.")] = False,
    progress: Callable[..., None],
) -> "trying.Tried":
    """Run the work of INSTANCE of PROCESS on its real inputs, and compare what it makes with what is published.

    Definitions and code are those that stand in the files now, whatever release the instance follows. The outputs go
    to a scratch place on their storage, which is removed in the end. For each it tells rows, columns, whether the rows
    are good enough, and the difference to what is published: columns, numbers, and some of the rows. Rows are told
    apart by `quality.unique` of the feed, else as wholes.

    Nothing is published or recorded. What code does elsewhere by itself is done: it is not undone.
    """
    return trying.try_instance(
        context, process, instance, cluster=cluster, entities=entities, rows=rows, keep=keep, progress=progress
    )
