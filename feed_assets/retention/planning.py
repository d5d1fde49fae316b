"""`retention plan`: plans removals feed by feed, with the protected paths and their protections, and stores sweeps."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from feed_assets.context.operation import ChangeContext, OperationContext, note
from feed_assets.entities.common import Kind, LocationKind
from feed_assets.json_form import Hidden, NominalTime, shown, shows
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView, load_schedules
from feed_assets.log.removals.records import Sweep, SweepState
from feed_assets.plan.records import FeedRecord, RetainedLocation
from feed_assets.retention.sweeps.planning import PlannedFeed, PlannedSweeps, SweepRequest, plan_sweeps
from feed_assets.storage.errors import StorageAwayError
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPath:
    """An expired path that stays, and its protection."""

    path: str
    reasons: tuple[str, ...]


@shows("location", "kind, path=template.text, reason=obstacle")
@dataclass(frozen=True, slots=True)
class UnsweptPath:
    """A location that retention leaves alone, and the reason."""

    location: Hidden[RetainedLocation]


@shows("plan", "feed=record.feed, cluster=record.cluster, sweep_id, left_out, obstacles, grace")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFeed:
    """The planned removals of a feed, the paths that stay, and the reasons. `present` is the number of existing
    instances, None if storage was not read. `paths` counts by type of location, `rules` by rule, `kept` by kind of
    protection.
    """

    plan: Hidden[PlannedFeed]
    instances: int = 0
    present: int | None = None
    paths: Mapping[LocationKind, int] = field(default_factory=dict)
    bytes: int = 0
    oldest: NominalTime | None = None
    newest: NominalTime | None = None
    rules: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    kept_paths: tuple[KeptPath, ...] = ()
    never_swept: tuple[UnsweptPath, ...] = ()

    @property
    def read(self) -> "ShownFeed | None":
        """The feed itself; None if storage was not read, so its numbers are unknown."""
        return None if self.present is None else self

    @property
    def remark(self) -> str:
        """Why it is left out, or what it asks; what the schedule waits for; what stays, with examples."""
        plan = self.plan
        remarks = [plan.left_out] if plan.left_out else [f"asks: {each.sentence}" for each in plan.obstacles]
        if self.read and (grace := self.render_grace()):
            remarks.append(grace)
        examples = dict(each.reasons[0].split(": ", 1) for each in reversed(self.kept_paths))
        remarks += [f"{kind} {count}: {examples[kind]}" for kind, count in self.kept.items()]
        remarks += [f"{each.location.kind.value} never: {each.location.obstacle}" for each in self.never_swept]
        return "; ".join(remarks)

    def render_grace(self) -> str | None:
        """Return since what the schedule waits, and until when; None outside a grace period."""
        if (grace := self.plan.grace) is None:
            return None
        fields, until = ", ".join(grace.fields), render_datetime(grace.until)
        return f"its retention became stricter ({fields}): the schedule acts on it from {until}, commands at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The plans of all clusters."""

    as_of: datetime
    planned: Hidden[tuple[PlannedSweeps, ...]]
    dry_run: bool = False

    @shown
    def sweeps(self) -> tuple[Sweep, ...]:
        """The sweeps, in the order of the clusters."""
        return tuple(sweep for each in self.planned for sweep in each.sweeps)

    @shown
    def superseded(self) -> tuple[Sweep, ...]:
        """Older plans that these supersede."""
        return tuple(sweep for each in self.planned for sweep in each.superseded)

    @shown
    def feeds(self) -> tuple[ShownFeed, ...]:
        """The planned feeds."""
        return tuple(show_feed(feed) for each in self.planned for feed in each.feeds)

    @property
    def waiting(self) -> tuple[str, ...]:
        """What does not run at once, and why: feeds that are left out or in a grace period, and sweeps that ask."""
        texts = []
        for feed in self.feeds:
            name = f"feed '{feed.plan.record.feed}' on {feed.plan.record.cluster}"
            if feed.plan.left_out:
                texts.append(f"{name} is left out: {feed.plan.left_out}")
            elif grace := feed.render_grace():
                texts.append(f"{name}: {grace}")
        asking = [sweep for sweep in self.sweeps if sweep.state is SweepState.ASKING]
        for sweep in asking:
            sentences = " ".join(each.sentence for each in sweep.obstacles)
            texts.append(f"{sweep.sweep_id} asks: {sentences} Look at it, then `retention approve` or `cancel` it.")
        return tuple(texts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which older plans it supersedes."""
        return tuple(f"it supersedes {sweep.sweep_id}" for sweep in self.superseded)

    @property
    def summary(self) -> str:
        """How much would be removed."""
        paths, size = sum(sweep.paths for sweep in self.sweeps), sum(sweep.bytes for sweep in self.sweeps)
        if not paths:
            return f"nothing to remove as of {render_datetime(self.as_of)}"
        stored = "would be planned" if self.dry_run else "planned"
        return f"{stored}: {paths:,} paths, {size:,} bytes, as of {render_datetime(self.as_of)}"


def plan_retention(
    context: ChangeContext,
    *,
    feeds: Sequence[str] = (),
    clusters: Sequence[str] = (),
    as_of: datetime | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> RetentionPlan:
    """Plan the removal of expired instances, and store the plan; no data are changed. A sweep for a later time than now
    cannot run before it. `progress` is called with a cluster, and the numbers of planned and of all its feeds.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: there is no such cluster, or a feed is not on it.
        SweepRefusedError: a sweep of one of the feeds has begun meanwhile.
    """
    requested = _requested_feeds(context, feeds, clusters)
    moment = as_of or context.as_of
    request = SweepRequest(
        as_of=moment,
        now=context.as_of,
        author=context.author,
        origin="command",
        grace=context.retention_grace,
    )
    with context.read() as connection:
        view = load_schedules(connection)
    planned = []
    for cluster, records in requested.items():
        idle = [] if feeds else [each for each in _idle(view, records) if each.record.retention]
        left_out = {each.record.key for each in idle}
        active = [record for record in records if record.key not in left_out]
        done = plan_sweeps(
            context,
            cluster,
            active,
            request,
            dry_run=context.dry_run,
            progress=None if progress is None else partial(progress, cluster),
        )
        without = [PlannedFeed(record=each, left_out="it has no retention") for each in active if not each.retention]
        planned.append(replace(done, feeds=(*done.feeds, *idle, *(without if feeds else ()))))
        for sweep in () if context.dry_run else done.sweeps:
            note(context, "retention plan", sweep, paths=sweep.paths, state=sweep.state.value)
    errors = [feed.error for each in planned for feed in each.feeds if feed.error is not None or not feed.left_out]
    if errors and all(isinstance(error, StorageAwayError) for error in errors):
        raise next(filter(None, errors))
    return RetentionPlan(as_of=moment, planned=tuple(planned), dry_run=context.dry_run)


def _idle(view: ScheduleView, records: Iterable[FeedRecord]) -> Iterator[PlannedFeed]:
    """Yield the feeds that are not scheduled."""
    for record in records:
        state = view.state(Kind.FEED, *record.key)
        if state is not ScheduleState.SCHEDULED:
            yield PlannedFeed(record=record, left_out=f"it is {state.value} there")


def show_feed(feed: PlannedFeed) -> ShownFeed:
    """Return a planned feed in the form for users."""
    survey = feed.survey
    if survey is None:
        return ShownFeed(plan=feed)
    times = [item.nominal_time for items in survey.taken.values() for item in (items[0], items[-1])]
    return ShownFeed(
        plan=feed,
        instances=survey.instances,
        present=survey.present,
        paths=Counter(kind for (kind, _), items in survey.taken.items() for _ in items),
        bytes=survey.bytes,
        oldest=min(times, default=None),
        newest=max(times, default=None),
        rules=Counter(item.rule for items in survey.taken.values() for item in items),
        kept=survey.protected_by,
        kept_paths=tuple(
            KeptPath(path=each.path, reasons=tuple(f"{kept.kind.value}: {kept.reason}" for kept in each.kept))
            for each in survey.protected
        ),
        never_swept=tuple(map(UnsweptPath, survey.unswept)),
    )


def _requested_feeds(
    context: OperationContext, feeds: Sequence[str], clusters: Sequence[str]
) -> dict[str, list[FeedRecord]]:
    """Return the requested feeds, by cluster."""
    context.require_clusters(clusters)
    for name in feeds:
        for cluster in sorted(clusters) or (None,):
            context.feeds_of(name, cluster)
    found: dict[str, list[FeedRecord]] = {}
    for (name, cluster), record in sorted(context.plan.feeds.items()):
        if (not feeds or name in feeds) and (not clusters or cluster in clusters):
            found.setdefault(cluster, []).append(record)
    return found
