"""Rules about the retention of feeds: its settings are complete, and instances are kept as long as others need them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter

from feed_assets.entities.common import Kind, LocationKind, Retention, RetentionAction
from feed_assets.entities.feed import ClusterRole, Feed, flow_delay, iter_pairs
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.sequence import Frequency
from feed_assets.timing.templates import PathTemplate, parse_path_template
from feed_assets.validation.scope import Complaint, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriod:
    """A period for which instances are kept, its text, the key that declares it, and the feed's frequency."""

    duration: timedelta
    text: str
    key: str
    frequency: Frequency

    def enough(self, least: Frequency) -> str:
        """Return the value that replaces `text` so that instances are kept for `least`."""
        if self.key == "limit":
            return least.render()
        return str(-(-least.as_duration() // self.frequency.as_duration()))


def find_retention_period(feed: Feed, cluster: str) -> RetentionPeriod | None:
    """Return how long instances are kept on a cluster; None if neither age nor number limits that.

    The period is the limit (a stage's, if there is one) or `max_instances`, whichever is shorter, but at least the
    `keep_newest` instances.
    """
    retention = feed.clusters[cluster].retention
    shortest = min(_iter_periods(feed, cluster), key=_duration_of, default=None)
    if shortest is None or retention is None or retention.keep_newest == 0:
        return shortest
    return max(shortest, _counted(feed.frequency, retention.keep_newest, "keep_newest"), key=_duration_of)


_duration_of = attrgetter("duration")


def _iter_periods(feed: Feed, cluster: str) -> Iterator[RetentionPeriod]:
    """Yield how long the limit, and the number of instances, keep instances on a cluster if all of them arrive."""
    limit, retention = feed.retention_limit_on(cluster), feed.clusters[cluster].retention
    if limit is not None:
        yield RetentionPeriod(duration=limit.as_duration(), text=limit.render(), key="limit", frequency=feed.frequency)
    if retention is not None and retention.max_instances is not None:
        yield _counted(feed.frequency, retention.max_instances, "max_instances")


def _counted(frequency: Frequency, count: int, key: str) -> RetentionPeriod:
    try:
        duration = frequency.as_duration() * count
    except OverflowError:
        duration = timedelta.max
    return RetentionPeriod(duration=duration, text=f"{count:,} instances", key=key, frequency=frequency)


_LIMITS = "limit, max_instances or max_bytes"


def check_limit(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Retention must limit age, number or size; so must a retention stage. Of a current instance it counts versions."""
    for name, retention in _retentions(feed):
        if feed.is_current:
            yield from _check_versions(name, retention)
            continue
        if retention.versions:
            yield Complaint(
                path=_at(name, "versions"),
                message="retention.versions has no meaning: only what is replaced in its place has versions",
                remedy=f"Write {_LIMITS}, or instances: current.",
            )
        has_limit = (retention.limit, retention.max_instances, retention.max_bytes) != (None, None, None)
        if not has_limit and feed.retention_stage_on(name) is None:
            yield Complaint(
                path=_at(name),
                message=f"the retention on {name} has no limit: nothing would ever be removed",
                remedy=f"Write {_LIMITS}, or remove retention.",
            )


_OF_VERSIONS = frozenset({"type", "versions", "trash"})


def _check_versions(cluster: str, retention: Retention) -> Iterator[Complaint]:
    """A current instance has no age, and there are no others."""
    for name, field in Retention.model_fields.items():
        if name not in _OF_VERSIONS and getattr(retention, name) != field.default:
            yield Complaint(
                path=_at(cluster, name),
                message=f"retention.{name} has no meaning: the feed has one instance, which stays",
                remedy="Write retention: {versions: 3}, so many former versions stay in the trash, or remove it.",
            )


def check_late_arrival(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F12: data must be kept at least as long as late data are processed."""
    cut_off = feed.late_arrival.cut_off if feed.late_arrival else None
    for name in feed.clusters if cut_off else ():
        kept = find_retention_period(feed, name)
        if cut_off is None or kept is None or (kept.key == "limit" and feed.retention_stage_on(name) is not None):
            continue
        if kept.duration < cut_off.as_duration():
            yield Complaint(
                path=_at(name, kept.key),
                message=f"retention {kept.text} is shorter than late arrival {cut_off}: "
                "late data would be deleted before it is processed",
                remedy=f"Raise retention.{kept.key} to at least {kept.enough(cut_off)}.",
            )


def check_newest(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """`keep_newest` must keep fewer instances than limit and max_instances allow, or these have no effect."""
    for name, retention in _retentions(feed):
        newest = _counted(feed.frequency, retention.keep_newest, "keep_newest")
        for period in _iter_periods(feed, name) if retention.keep_newest else ():
            if newest.duration >= period.duration:
                yield Complaint(
                    path=_at(name, newest.key),
                    message=f"the {retention.keep_newest:,} newest instances on {name} always stay, so {period.key} "
                    f"{period.text.removesuffix(' instances')} removes nothing if all instances arrive",
                    remedy=f"Lower keep_newest, or raise {period.key}.",
                    severity=Severity.WARNING,
                )


def check_frequency(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Retention must run at most as often as instances come."""
    for name, retention in _retentions(feed):
        frequency = retention.frequency
        if frequency is not None and frequency.as_duration() < feed.frequency.as_duration():
            yield Complaint(
                path=_at(name, "frequency"),
                message=f"retention.frequency {frequency} on {name} is more frequent than the feed, {feed.frequency}",
                remedy=f"Write at least {feed.frequency}.",
            )


def check_archive_is_declared(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The action `archive` needs a location."""
    for name, retention in _retentions(feed):
        if retention.action is RetentionAction.ARCHIVE and retention.archive_to is None:
            yield Complaint(
                path=_at(name, "action"),
                message=f"the action on {name} is archive, but archive_to is missing: nothing is removed",
                remedy="Write archive_to, or action: delete.",
                severity=Severity.WARNING,
            )


def check_archive_place(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """The archive must have its own location, with a path for each instance.

    It must not overlap the data, another feed or the trash.
    """
    for name, retention in _retentions(feed):
        template = _find_archive(scope, feed, name, retention)
        if template is None:
            continue
        problem = _find_archive_problem(scope, feed, name, template)
        if problem is not None:
            message, remedy = problem
            yield Complaint(path=_at(name, "archive_to"), message=message, remedy=remedy)


def check_places(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Locations without a year, and locations that overlap another, are never removed by retention."""
    for name, locations in ((name, feed.locations_on(name)) for name in feed.clusters):
        if locations is None or find_retention_period(feed, name) is None:
            continue
        own: FieldPath = ("clusters", name) if feed.clusters[name].locations else ()
        for kind in LocationKind:
            reason = _find_obstacle(scope, feed, name, kind, locations.find(kind))
            if reason is not None:
                yield Complaint(
                    path=(*own, "locations", kind.value),
                    message=f"on {name} retention removes nothing at locations.{kind.value}: {reason}",
                    remedy="Use a separate path with ${YEAR}, unless this is intended.",
                    severity=Severity.WARNING,
                )


def check_readers(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """The processes that instances are kept for must exist, and read the feed on that cluster."""
    for name, retention in _retentions(feed):
        for reader in retention.until_read_by:
            process = scope.bundle.find_process(reader)
            if process is None and scope.is_declared((Kind.PROCESS, reader)):
                continue
            if process is None:
                close = scope.bundle.suggest(Kind.PROCESS, reader)
                message = f"there is no process {reader!r}"
                remedy = (
                    f"Did you mean {' or '.join(map(repr, close))}?" if close else "Declare it, or remove the name."
                )
            elif name in process.clusters and feed.name in {item.feed for item in process.inputs.values()}:
                continue
            else:
                message = f"process {reader!r} does not read the feed on {name}: its instances would be kept for ever"
                remedy = "Name a process that reads it, or remove the name."
            yield Complaint(path=_at(name, "until_read_by"), message=message, remedy=remedy)


def check_replicas(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The clusters that instances are kept for must be other clusters of the feed, and targets of its replication."""
    for name, retention in _retentions(feed):
        for target in retention.until_replicated_to:
            entry = feed.clusters.get(target)
            if target != name and entry is not None and entry.type is ClusterRole.TARGET:
                continue
            reason = "not a cluster of the feed" if entry is None else "not a target of its replication"
            yield Complaint(
                path=_at(name, "until_replicated_to"),
                message=f"{target!r} is {'the same cluster' if target == name else reason}: "
                f"instances on {name} would be kept for ever",
                remedy="Name clusters with type: target.",
            )


def check_replication(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """A source must keep instances until their copy is due, and a target longer than until they arrive."""
    for source, target in iter_pairs(feed):
        origin, due = feed.clusters[source], feed.frequency.as_duration() + flow_delay(feed, source)
        after = f"{feed.frequency}" if origin.delay is None else f"{origin.delay} and {feed.frequency}"
        waits = origin.retention is not None and target in origin.retention.until_replicated_to
        for name in (target,) if waits else (source, target):
            kept = find_retention_period(feed, name)
            if kept is None or kept.duration >= due:
                continue
            what = f"their copy to {target} is due" if name == source else f"they arrive from {source}"
            yield Complaint(
                path=_limit_path(feed, name, kept.key),
                message=f"instances on {name} are kept {kept.text}, but {what} {after} after their time: "
                "they could be removed before",
                remedy=f"Keep them longer on {name}, or shorten the delay.",
            )


def _retentions(feed: Feed) -> Iterator[tuple[str, Retention]]:
    for name, entry in feed.clusters.items():
        if entry.retention is not None:
            yield name, entry.retention


def _at(cluster: str, *keys: str) -> FieldPath:
    return ("clusters", cluster, "retention", *keys)


def _limit_path(feed: Feed, cluster: str, key: str) -> FieldPath:
    """Return the path of a limit that is too short: a stage's limit is at the stage."""
    if key != "limit" or feed.retention_stage_on(cluster) is None:
        return _at(cluster, key)
    own = feed.clusters[cluster].lifecycle
    is_own = own is not None and own.retention_stage is not None
    return (*(("clusters", cluster) if is_own else ()), "lifecycle", "retention_stage", "properties")


def _find_archive(scope: Scope, feed: Feed, cluster: str, retention: Retention) -> PathTemplate | None:
    """Return the template of the archive; None if there is none, or if another rule refuses it."""
    found = scope.bundle.find_cluster(cluster)
    if retention.archive_to is None or found is None:
        return None
    try:
        return found.fill(parse_path_template(retention.archive_to)).in_zone(feed.path_zone)
    except TemplateError:
        return None


def _find_archive_problem(scope: Scope, feed: Feed, cluster: str, template: PathTemplate) -> tuple[str, str] | None:
    overlap = scope.overlaps.get((feed.name, cluster, None))
    if overlap is not None:
        return f"the archive on {cluster} overlaps other data: {overlap}", "Use another path in archive_to."
    if not template.variables:
        reason: str | None = "it has no time variable, so all instances would share a path"
    else:
        reason = template.find_collision(scope.sequence_on(feed, cluster))
    if reason is None:
        return None
    return (
        f"the archive on {cluster} does not keep instances apart: {reason}",
        "Add the missing variable to archive_to.",
    )


def _find_obstacle(scope: Scope, feed: Feed, cluster: str, kind: LocationKind, text: str | None) -> str | None:
    """Return why nothing is removed at a location that contains time; more basic rules about the data are left out."""
    found = scope.bundle.find_cluster(cluster)
    if text is None or found is None:
        return None
    try:
        template = found.fill(parse_path_template(text))
    except TemplateError:
        return None
    if template.is_static:
        return None
    if template.granularity is None:
        return None if kind is LocationKind.DATA else "it has no ${YEAR}, so it does not say how old it is"
    if kind is LocationKind.DATA and (feed.name, cluster) in scope.sharing:
        return None
    return scope.overlaps.get((feed.name, cluster, kind))
