"""Which changes of a definition make a new release of a process, and from when such a release governs.

Releases act on this, and plans show it; so both say the same.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence

SETTLING = timedelta(minutes=3)
"""How far ahead a new release begins, so that what is being started now is not pulled from under anybody."""

_VERSION = 1
_ORDERED = ("inputs", "outputs")
_SOFT_OF_PROCESS = frozenset(
    {"acl", "tags", "description", "pipelines", "notification", "sla", "retry", "late_process", "version"}
)
_IN_PLACE = frozenset({"parallel", "catch_up"})
_LATE_POLICY = ("late_process", "policy")
_HARD: Mapping[Kind, frozenset[str]] = MappingProxyType(
    {
        Kind.CLUSTER: frozenset({"colo", "storage", "spark", "catalog", "properties"}),
        Kind.DATASOURCE: frozenset(),
        Kind.FEED: frozenset({"frequency", "timezone", "availability_flag", "locations", "table", "format", "options"}),
    }
)
"""What processes see of the things they use."""


class Weight(StrEnum):
    """What the change of a field means for processes: nothing they notice, something that holds for the release there
    is, or a new release.
    """

    SOFT = "soft"
    IN_PLACE = "in place"
    RELEASE = "new release"


def effective_time(sequence: InstanceSequence, now: datetime) -> datetime | None:
    """The first instance of the new definition that is `SETTLING` or more ahead; None if it ends before."""
    return sequence.ceil(now + SETTLING)


class Step(StrEnum):
    """How the releases of a process on a cluster go on when definitions change."""

    BEGINS = "begins"
    IN_PLACE = "in place"
    EXTENDED = "begins earlier"
    CORRECTED = "corrected"
    SUCCEEDED = "new release"
    OVER = "over"
    ENDS = "ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """How the releases go on, and the first nominal time that the new definition governs; None where it governs none.

    `BEGINS`: the first release. `IN_PLACE`: what governed goes on, with what is soft or changes in place. `EXTENDED`:
    so it does, with earlier instances besides. `CORRECTED`: nothing was begun by the newest release (or all that has
    not ended is to follow): it is replaced from where it began. `SUCCEEDED`: a new release from then on. `OVER`: no
    instance of the new definition is left. `ENDS`: the process leaves the cluster.
    """

    step: Step
    effective_from: datetime | None


def decide_succession(
    sequence: InstanceSequence,
    now: datetime,
    *,
    stood_from: datetime | None,
    is_alike: bool,
    is_free: bool,
    stood: InstanceSequence | None = None,
    is_earlier: bool = False,
) -> Succession:
    """How the releases of a process go on under a definition with the instances of `sequence`.

    A new release begins with the first instance that is `SETTLING` or more ahead; where the validity that was there
    has ended, with the first one after its end, so that an extension leaves no hole.

    Args:
        sequence: the instances by the new definition.
        now: the present.
        stood_from: from when the newest release governs; None if there is none.
        is_alike: whether the sign is alike to the newest release's own.
        is_free: whether the newest release may be replaced from where it began.
        stood: the instances by the newest release.
        is_earlier: whether nothing but the start has changed, to an earlier instance of the same grid.
    """
    if stood_from is None:
        return Succession(step=Step.BEGINS, effective_from=sequence.start)
    if is_alike:
        return Succession(step=Step.IN_PLACE, effective_from=stood_from)
    if is_free:
        return Succession(step=Step.CORRECTED, effective_from=min(stood_from, sequence.start))
    if is_earlier:
        return Succession(step=Step.EXTENDED, effective_from=sequence.start)
    ahead = now + SETTLING
    begins = sequence.ceil(ahead if stood is None or stood.end is None else min(ahead, stood.end))
    return Succession(step=Step.OVER if begins is None else Step.SUCCEEDED, effective_from=begins)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSign:
    """What decides whether a new release is needed: digests of what a process says and uses, and of its cluster.

    `is_lagging` says that the cluster was changed under another version than the process refers to: then its change
    does not count yet.
    """

    facts: str
    start: str
    has_late: bool
    cluster: str
    is_lagging: bool

    def render(self) -> str:
        return "|".join(
            (
                self.facts,
                self.start,
                "late" if self.has_late else "",
                self.cluster,
                "lagging" if self.is_lagging else "",
            )
        )

    def is_alike(self, standing: "ReleaseSign", *, but_for_start: bool = False) -> bool:
        """Whether a release with the sign `standing` goes on under this one. Giving up late data changes nothing."""
        return (
            self.facts == standing.facts
            and (but_for_start or self.start == standing.start)
            and (standing.has_late or not self.has_late)
            and (self.is_lagging or self.cluster == standing.cluster)
        )

    def is_same(self, standing: "ReleaseSign") -> bool:
        """Whether definitions with this sign can stand for those of a release with the sign `standing`."""
        return self.is_alike(standing) and self.cluster == standing.cluster

    def after(self, standing: "ReleaseSign | None") -> "ReleaseSign":
        """The sign of a release that follows `standing`: the cluster stays what it was while the process lags."""
        cluster = standing.cluster if standing is not None and self.is_lagging else self.cluster
        return replace(self, cluster=cluster, is_lagging=False)


@lru_cache(maxsize=16384)
def parse_sign(text: str) -> ReleaseSign:
    """The sign of a release.

    >>> parse_sign("ab|2015-01-01T00:00Z||cd|").render()
    'ab|2015-01-01T00:00Z||cd|'
    """
    facts, start, late, cluster, lagging = text.split("|")
    return ReleaseSign(facts=facts, start=start, has_late=bool(late), cluster=cluster, is_lagging=bool(lagging))


def is_alike(standing: str, wanted: str) -> bool:
    """Whether a release with the sign `standing` goes on under definitions with the sign `wanted`."""
    return parse_sign(wanted).is_alike(parse_sign(standing))


def release_sign(bundle: Bundle, process: Process, cluster: str) -> str:
    """Changes whenever a new release of the process is needed on this cluster, and not otherwise.

    It covers the process without what is soft (`acl`, `tags`, `description`, `pipelines`, `notification`, `sla`,
    `retry`, `late_process` as long as there is one or none as before) and without what changes in place (`parallel`,
    the validity's end); of its feeds the frequency, time zone, availability flag, validity start, place and format; of
    the cluster, and of those of a mirror, the storage, Spark, catalog, colo and properties.

    Differs from Falcon: a feed's time zone, format and options count, too.

    Raises:
        EntityNotFoundError: the bundle lacks a feed or the cluster.
    """
    content = process.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={*_SOFT_OF_PROCESS, *_IN_PLACE, "clusters"}
    )
    for name in _ORDERED:
        if name in content:
            content[name] = list(content[name].items())
    entry = process.clusters[cluster]
    place = bundle.get_cluster(cluster)
    names = {item.feed for item in process.inputs.values()} | {item.feed for item in process.outputs.values()}
    feeds = [_feed_facts(bundle, name, cluster) for name in sorted(names)]
    sign = ReleaseSign(
        facts=_digest([_VERSION, content, feeds]),
        start=render_datetime(entry.validity.start),
        has_late=process.late_process is not None,
        cluster=_digest(_cluster_facts(bundle, process, cluster)),
        is_lagging=entry.version < place.version,
    )
    return sign.render()


def _cluster_facts(bundle: Bundle, process: Process, cluster: str) -> object:
    mirror = process.workflow.mirror
    others = [name for name in (mirror.clusters(cluster) if mirror else ()) if name != cluster]
    own, *more = (
        bundle.get_cluster(name).model_dump(mode="json", include=set(_HARD[Kind.CLUSTER]))
        for name in (cluster, *others)
    )
    return [own, *more] if more else own


def flow_sign(bundle: Bundle, feed: Feed, source: str, target: str, part: str, start: datetime) -> str:
    """Changes whenever a new release of a flow is needed, and not otherwise.

    It covers what `release_sign` has of the feed and the cluster, on both sides, and which part is copied; options of
    copies, the delay and the order hold at once.
    """
    places = [bundle.get_cluster(name) for name in (source, target)]
    sign = ReleaseSign(
        facts=_digest([_VERSION, "flow", part, *(_feed_facts(bundle, feed.name, name) for name in (source, target))]),
        start=render_datetime(start),
        has_late=feed.late_arrival is not None,
        cluster=_digest([place.model_dump(mode="json", include=set(_HARD[Kind.CLUSTER])) for place in places]),
        is_lagging=any(feed.clusters[place.name].version < place.version for place in places),
    )
    return sign.render()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def weigh(kind: Kind, path: FieldPath, before: object, after: object) -> Weight:
    """What the change of one field (a path of `diff_entities`) means for the processes that it concerns.

    >>> weigh(Kind.PROCESS, ("retry", "attempts"), 1, 2).value, weigh(Kind.PROCESS, ("parallel",), 1, 2).value
    ('soft', 'in place')
    >>> weigh(Kind.FEED, ("clusters", "primary", "validity", "start"), "…", "…").value
    'new release'
    """
    if path[0] == "clusters" and kind in (Kind.FEED, Kind.PROCESS):
        return _weigh_entry(kind, path[2:])
    top = str(path[0])
    match kind:
        case Kind.PROCESS if path == _LATE_POLICY and before is None and after is not None:
            return Weight.RELEASE  # late data were not handled before
        case Kind.PROCESS if top in _IN_PLACE:
            return Weight.IN_PLACE
        case Kind.PROCESS:
            return Weight.SOFT if top in _SOFT_OF_PROCESS else Weight.RELEASE
        case _:
            return Weight.RELEASE if top in _HARD[kind] and not _lies_beside(path) else Weight.SOFT


def _weigh_entry(kind: Kind, path: FieldPath) -> Weight:
    """What the change of a field of an entity's entry for one cluster means."""
    if not path or path == ("validity", "end"):
        return Weight.IN_PLACE
    if path[:2] == ("validity", "start") or path == ("validity",):
        return Weight.RELEASE
    if kind is Kind.PROCESS:
        return Weight.SOFT if path[0] == "sla" else Weight.RELEASE
    return Weight.RELEASE if path[0] in ("locations", "table") and not _lies_beside(path) else Weight.SOFT


def _lies_beside(path: FieldPath) -> bool:
    """Whether it is the place of something else than the data."""
    return path[0] == "locations" and len(path) > 1 and path[1] != "data"


def _feed_facts(bundle: Bundle, name: str, cluster: str) -> dict[str, object]:
    feed = bundle.get_feed(name)
    entry = feed.clusters.get(cluster)
    place = None if entry is None else feed.data_on(cluster) or feed.table_on(cluster)
    return {
        "name": name,
        "frequency": feed.frequency.render(),
        "timezone": feed.timezone,
        "availability_flag": feed.availability_flag,
        "start": None if entry is None else entry.validity.start.isoformat(),
        "place": place,
        "format": feed.format.value,
        "options": dict(feed.options),
    }
