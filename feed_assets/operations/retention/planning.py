"""`retention plan`: what retention would remove, feed by feed, with what is kept and why; stored as sweeps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.entities.common import Kind, label_of
from feed_assets.lifecycle.retention.planning import Ask, Planned, PlannedFeed, plan_sweeps
from feed_assets.lifecycle.schedules import load_schedules
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.retention.auditing import note
from feed_assets.operations.retention.reading import require_clusters, sweep_to_json
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.sweep_records import Sweep
from feed_assets.timing.dates import render_datetime

VERSION = 1
REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What was planned on each cluster."""

    as_of: datetime
    planned: tuple[Planned, ...]
    is_dry_run: bool = False

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The sweeps, in the order of the clusters."""
        return tuple(sweep for each in self.planned for sweep in each.sweeps)

    @property
    def superseded(self) -> tuple[Sweep, ...]:
        """Older plans that these take the place of."""
        return tuple(sweep for each in self.planned for sweep in each.superseded)

    @property
    def feeds(self) -> tuple[PlannedFeed, ...]:
        """What is said of each feed."""
        return tuple(feed for each in self.planned for feed in each.feeds)

    def render_summary(self) -> str:
        """One line: how much would go."""
        paths, size = sum(sweep.paths for sweep in self.sweeps), sum(sweep.bytes for sweep in self.sweeps)
        if not paths:
            return f"nothing is to be removed as of {render_datetime(self.as_of)}"
        stored = "would be planned" if self.is_dry_run else "planned"
        return f"{stored}: {paths:,} paths, {size:,} bytes, as of {render_datetime(self.as_of)}"

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "as_of": render_datetime(self.as_of),
            "dry_run": self.is_dry_run,
            "sweeps": [sweep_to_json(sweep) for sweep in self.sweeps],
            "superseded": [sweep.sweep_id for sweep in self.superseded],
            "feeds": [feed_to_json(feed) for feed in self.feeds],
        }


def plan_retention(
    scene: Scene,
    *,
    author: str,
    feeds: Sequence[str] = (),
    clusters: Sequence[str] = (),
    as_of: datetime | None = None,
    origin: str = "command",
    dry_run: bool = False,
) -> RetentionPlan:
    """Plan the removal of what has expired, and store it; nothing in storage is touched.

    Args:
        scene: the definitions, the record and storage.
        author: who plans.
        feeds: only these, also those that are not scheduled; none for all scheduled ones.
        clusters: only on these; none for all.
        as_of: the moment that ages are counted to; now if None. What is planned for later cannot run before.
        origin: from where it is planned.
        dry_run: store nothing.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: there is no such cluster, or a feed is not on it.
        SweepRefusedError: a sweep of one of the feeds began meanwhile.
    """
    wanted = _wanted(scene, feeds, clusters)
    moment = as_of or scene.as_of
    ask = Ask(as_of=moment, now=scene.as_of, wall=scene.wall, author=author, origin=origin)
    with scene.read() as connection:
        view = load_schedules(connection, scene.without_row)
    planned = []
    for cluster, records in wanted.items():
        idle = [
            PlannedFeed(record=record, left_out=f"it is {state.value} there")
            for record in records
            if not feeds and (state := view.state(Kind.FEED, *record.key)) is not ScheduleState.SCHEDULED
        ]
        left_out = {each.record.key for each in idle}
        active = [record for record in records if record.key not in left_out]
        done = plan_sweeps(scene.database, scene.stores, scene.governance, cluster, active, ask, dry_run=dry_run)
        without = [PlannedFeed(record=each, left_out="it has no retention") for each in active if not each.retention]
        shown = (*done.feeds, *(each for each in (*idle, *without) if each.record.retention or feeds))
        planned.append(Planned(sweeps=done.sweeps, feeds=shown, superseded=done.superseded))
        if not dry_run:
            for sweep in done.sweeps:
                note(scene, author, "retention plan", sweep, paths=sweep.paths, state=sweep.state.value)
    return RetentionPlan(as_of=moment, planned=tuple(planned), is_dry_run=dry_run)


def feed_to_json(feed: PlannedFeed) -> dict[str, object]:
    """The JSON form of what is said of a feed."""
    survey, record = feed.survey, feed.record
    document: dict[str, object] = {
        "feed": record.feed,
        "cluster": record.cluster,
        "sweep": feed.sweep_id,
        "left_out": feed.left_out,
        "asks": [{"code": each.code, "sentence": each.sentence} for each in feed.obstacles],
    }
    if survey is not None:
        span = span_of(feed)
        document |= {
            "instances": survey.instances,
            "of": survey.present,
            "paths": {kind.value: len(items) for kind, items in survey.taken.items()},
            "bytes": survey.bytes,
            "oldest": render_datetime(span[0]) if span else None,
            "newest": render_datetime(span[1]) if span else None,
            "rules": rules_of(feed),
            "kept": survey.keepers,
            "kept_paths": [
                {"path": each.path, "reasons": [f"{kept.keeper.value}: {kept.reason}" for kept in each.kept]}
                for each in survey.spared
            ],
            "never_swept": [
                {"kind": location.kind.value, "path": location.template.text, "reason": location.obstacle}
                for location in survey.unswept
            ],
        }
    return document


def span_of(feed: PlannedFeed) -> tuple[datetime, datetime] | None:
    """The oldest and the newest nominal time that may go; None if nothing may."""
    taken = feed.survey.taken.values() if feed.survey else ()
    times = [item.nominal_time for items in taken for item in (items[0], items[-1])]
    return (min(times), max(times)) if times else None


def rules_of(feed: PlannedFeed) -> dict[str, int]:
    """By how many paths each rule makes go."""
    taken = feed.survey.taken.values() if feed.survey else ()
    return dict(Counter(item.rule for items in taken for item in items))


def reasons_of(feed: PlannedFeed) -> list[str]:
    """What keeps eligible paths of a feed, how many, and an example of each."""
    if feed.survey is None:
        return []
    examples = {each.kept[0].keeper.value: each.kept[0].reason for each in reversed(feed.survey.spared)}
    return [f"{keeper} {count}: {examples[keeper]}" for keeper, count in feed.survey.keepers.items()]


def _wanted(scene: Scene, feeds: Sequence[str], clusters: Sequence[str]) -> dict[str, list[FeedRecord]]:
    """The feeds in question, by cluster."""
    require_clusters(scene, clusters)
    for name in feeds:
        on = scene.clusters_of(Kind.FEED, name)
        missing = sorted(set(clusters) - set(on))
        if missing:
            raise InstanceQueryError(
                subject=label_of((Kind.FEED, name)),
                reason=f"it is not on cluster {missing[0]!r}",
                next_step=f"It is on {', '.join(on)}.",
            )
    found: dict[str, list[FeedRecord]] = {}
    for (name, cluster), record in sorted(scene.plan.feeds.items()):
        if (not feeds or name in feeds) and (not clusters or cluster in clusters):
            found.setdefault(cluster, []).append(record)
    return found
