"""Rules about the lifecycle of feeds: the retention stage exists, its frequency is not too high, its limit is valid."""

from collections.abc import Iterator

from feed_assets.entities.feed import AGE_BASED_DELETE, LIMIT_PROPERTY, Feed, RetentionStage
from feed_assets.issues import FieldPath
from feed_assets.timing.sequence import Frequency, Unit
from feed_assets.validation.scope import Complaint, Scope

_MOST_FREQUENT = Frequency(unit=Unit.HOURS, count=1)
_STAGE = ("lifecycle", "retention_stage")


def check_stage(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F3: with a lifecycle, every cluster must have a retention stage, its own or the feed's."""
    for name, entry in feed.clusters.items():
        if (entry.lifecycle or feed.lifecycle) is not None and feed.retention_stage_on(name) is None:
            yield Complaint(
                path=("clusters", name, "lifecycle") if entry.lifecycle else ("lifecycle",),
                message=f"{name} lacks a retention stage, which is mandatory",
                remedy=f'Write lifecycle: {{retention_stage: {{properties: {{{LIMIT_PROPERTY}: "days(30)"}}}}}}.',
            )


def check_stage_frequency(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F4: retention must run at most as often as instances come, and at most every hour."""
    for name, stage_path, stage in _stages(feed):
        if stage.frequency is None:
            continue
        for least, reason in (
            (feed.frequency, f"data availability, {feed.frequency}"),
            (_MOST_FREQUENT, _MOST_FREQUENT.render()),
        ):
            if stage.frequency.as_duration() < least.as_duration():
                yield Complaint(
                    path=(*stage_path, "frequency"),
                    message=f"retention {stage.frequency} on {name} cannot be more frequent than {reason}",
                    remedy=f"Write at least {max(feed.frequency, _MOST_FREQUENT, key=Frequency.as_duration)}.",
                )
                break


def check_stage_limit(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F5: the policy must be AgeBasedDelete, and its limit a frequency at least as long as SLA and late arrival."""
    for name, stage_path, stage in _stages(feed):
        if stage.policy not in (None, AGE_BASED_DELETE):
            yield Complaint(
                path=(*stage_path, "policy"),
                message=f"there is no retention policy {stage.policy!r}",
                remedy=f"Write {AGE_BASED_DELETE}, or leave it out.",
            )
            continue
        limit = stage.find_limit()
        if limit is None:
            written = stage.properties.get(LIMIT_PROPERTY)
            yield Complaint(
                path=(*stage_path, "properties"),
                message=f"the retention stage of {name} has no limit: the property {LIMIT_PROPERTY} "
                + ("is missing" if written is None else f"is {written!r}, which is not a frequency"),
                remedy=f'Write properties: {{{LIMIT_PROPERTY}: "days(30)"}}.',
            )
            continue
        yield from _too_long(feed, name, limit)


def _too_long(feed: Feed, cluster: str, limit: Frequency) -> Iterator[Complaint]:
    own: FieldPath = ("clusters", cluster) if feed.clusters[cluster].sla else ()
    sla = feed.sla_on(cluster)
    longest = (
        ((*own, "sla", "high"), "sla.high", sla.high if sla else None),
        (("late_arrival", "cut_off"), "late arrival", feed.late_arrival.cut_off if feed.late_arrival else None),
    )
    for path, what, length in longest:
        if length is not None and length.as_duration() > limit.as_duration():
            yield Complaint(
                path=path,
                message=f"{what} {length} is longer than the limit {limit} of the retention stage of {cluster}",
                remedy=f"Raise {LIMIT_PROPERTY} to at least {length}.",
            )


def _stages(feed: Feed) -> Iterator[tuple[str, tuple[str, ...], RetentionStage]]:
    """Yield each cluster, and the path and the stage in force there; the feed's own stage once."""
    paths: dict[tuple[str, ...], str] = {}
    for name, entry in feed.clusters.items():
        is_own = entry.lifecycle is not None and entry.lifecycle.retention_stage is not None
        paths.setdefault(("clusters", name, *_STAGE) if is_own else _STAGE, name)
    for path, name in paths.items():
        if (stage := feed.retention_stage_on(name)) is not None:
            yield name, path, stage
