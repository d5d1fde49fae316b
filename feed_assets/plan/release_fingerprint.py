"""Release fingerprints: which changes of a definition make a new release of a process, and from when it governs.

Releases are created by these rules, and plans display them, so both agree.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import NULL_STRING, ROW_ARGUMENTS
from feed_assets.entities.feed import Feed, Instances
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence

SETTLING = timedelta(minutes=3)
"""The lead time of a new release, so that it does not affect instances that are being started."""

_VERSION = 1
_ORDERED = ("inputs", "outputs")
_SOFT_OF_PROCESS = frozenset(
    {"acl", "tags", "metadata", "description", "pipelines", "notification", "sla", "retry", "late_process", "version"}
)
_IN_PLACE = frozenset({"parallel", "catch_up", "trigger"})
_LATE_POLICY = ("late_process", "policy")
_COLUMN_LINEAGE = "column_lineage"
_QUARANTINE = ("quality", "quarantine")
_HARD: Mapping[Kind, frozenset[str]] = MappingProxyType(
    {
        Kind.CLUSTER: frozenset({"colo", "storage", "spark", "catalog", "properties"}),
        Kind.DATASOURCE: frozenset(),
        Kind.FEED: frozenset(
            {"frequency", "timezone", "path_timezone", "availability_flag", "locations", "table", "format", "options"}
        ),
    }
)
"""The fields of feeds, clusters and datasources that processes see."""


class Weight(StrEnum):
    """The effect of a changed field on processes: none, in place on the current release, or a new release."""

    SOFT = "soft"
    IN_PLACE = "in place"
    RELEASE = "new release"


class Step(StrEnum):
    """The next step of the releases of a process on a cluster when definitions change."""

    BEGINS = "begins"
    IN_PLACE = "in place"
    EXTENDED = "begins earlier"
    CORRECTED = "corrected"
    SUCCEEDED = "new release"
    OVER = "over"
    ENDS = "ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """The next step of the releases, and the first nominal time that the new definition governs.

    None if it governs none.

    `BEGINS`: the first release. `IN_PLACE`: the current release continues, with changes of soft and in-place fields.
    `EXTENDED`: the same, with additional earlier instances. `CORRECTED`: no instance of the newest release has begun
    (or all that have not ended are to follow), so it is replaced from its start. `SUCCEEDED`: a new release from then
    on. `OVER`: the new definition has no instance left. `ENDS`: the process leaves the cluster.
    """

    step: Step
    effective_from: datetime | None


def decide_succession(
    sequence: InstanceSequence,
    now: datetime,
    *,
    governed_from: datetime | None,
    is_alike: bool,
    is_free: bool,
    previous: InstanceSequence | None = None,
    is_earlier: bool = False,
) -> Succession:
    """Decide the next step of the releases of a process under a definition with the instances of `sequence`.

    A new release begins with the first instance that is at least `SETTLING` ahead. If the previous validity has ended,
    it begins with the first instance after that end, so that an extension leaves no gap.

    Args:
        sequence: the instances by the new definition.
        now: the present.
        governed_from: the start of the newest release; None if there is none.
        is_alike: whether the fingerprint is compatible with that of the newest release.
        is_free: whether the newest release may be replaced from its start.
        previous: the instances by the newest release.
        is_earlier: whether only the start has changed, to an earlier instance of the same grid.
    """
    if governed_from is None:
        return Succession(step=Step.BEGINS, effective_from=sequence.start)
    if is_alike:
        return Succession(step=Step.IN_PLACE, effective_from=governed_from)
    if is_free:
        return Succession(step=Step.CORRECTED, effective_from=min(governed_from, sequence.start))
    if is_earlier:
        return Succession(step=Step.EXTENDED, effective_from=sequence.start)
    ahead = now + SETTLING
    begins = sequence.ceil(ahead if previous is None or previous.end is None else min(ahead, previous.end))
    return Succession(step=Step.OVER if begins is None else Step.SUCCEEDED, effective_from=begins)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFingerprint:
    """The inputs of the decision for a new release: digests of a process's facts, and of its cluster.

    `is_lagging` means that the cluster was changed under a later version than the process refers to; then its change
    does not count yet. `files` is the digest of the pinned files of its workflows (see `plan/pinned_files.py`); "" if
    it has none or they are not known, which changes nothing.
    """

    facts: str
    start: str
    has_late: bool
    cluster: str
    is_lagging: bool
    files: str = ""

    def render(self) -> str:
        return "|".join(
            (
                self.facts,
                self.start,
                "late" if self.has_late else "",
                self.cluster,
                "lagging" if self.is_lagging else "",
                *([self.files] if self.files else []),
            )
        )

    def is_alike(self, current: "ReleaseFingerprint", *, but_for_start: bool = False) -> bool:
        """Return whether a release with the fingerprint `current` continues. Dropping late data changes nothing."""
        return self._is_defined_alike(current, but_for_start=but_for_start) and self.has_files_of(current)

    def has_files_of(self, current: "ReleaseFingerprint") -> bool:
        """Return whether the files of the workflows are those of `current`, as far as both are known."""
        return self.files in ("", current.files) or not current.files

    def _is_defined_alike(self, current: "ReleaseFingerprint", *, but_for_start: bool = False) -> bool:
        return (
            self.facts == current.facts
            and (but_for_start or self.start == current.start)
            and (current.has_late or not self.has_late)
            and (self.is_lagging or self.cluster == current.cluster)
        )

    def is_same(self, current: "ReleaseFingerprint") -> bool:
        """Return whether definitions with this fingerprint can replace those of a release with `current`.

        The files of the workflows are no definitions: a release keeps its own.
        """
        return self._is_defined_alike(current) and self.cluster == current.cluster

    def after(self, current: "ReleaseFingerprint | None") -> "ReleaseFingerprint":
        """Return the fingerprint of a release after `current`.

        The cluster's part stays the same while the process lags, and the files while they are not known.
        """
        cluster = current.cluster if current is not None and self.is_lagging else self.cluster
        files = self.files or (current.files if current is not None and self.facts == current.facts else "")
        return replace(self, cluster=cluster, is_lagging=False, files=files)


@lru_cache(maxsize=16384)
def parse_fingerprint(text: str) -> ReleaseFingerprint:
    """Parse the fingerprint of a release.

    >>> parse_fingerprint("ab|2015-01-01T00:00Z||cd|").render()
    'ab|2015-01-01T00:00Z||cd|'
    """
    facts, start, late, cluster, lagging, *files = text.split("|")
    return ReleaseFingerprint(
        facts=facts,
        start=start,
        has_late=bool(late),
        cluster=cluster,
        is_lagging=bool(lagging),
        files="".join(files),
    )


def is_alike(current: str, declared: str) -> bool:
    """Return whether a release with the fingerprint `current` continues under one with the fingerprint `declared`."""
    return parse_fingerprint(declared).is_alike(parse_fingerprint(current))


def release_fingerprint(bundle: Bundle, process: Process, cluster: str) -> str:
    """Return a text that changes exactly when a new release of the process is needed on this cluster.

    It covers the process without soft fields (`acl`, `tags`, `metadata`, `description`, `pipelines`, `notification`,
    `sla`, `retry`, `column_lineage` of outputs, and `late_process` unless it is added or removed) and without in-place
    fields (`parallel`, `catch_up`, `trigger`, the validity's end). Of its feeds and their quarantines it covers the
    frequency, time zone, availability flag, validity start, location and format; of the cluster, and of a mirror's
    clusters, the storage, Spark, catalog, colo and properties.

    Differs from Falcon: a feed's time zone, format and options count, too.

    Raises:
        EntityNotFoundError: the bundle lacks a feed or the cluster.
    """
    content = process.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={*_SOFT_OF_PROCESS, *_IN_PLACE, "clusters"}
    )
    for output in content.get("outputs", {}).values():
        output.pop(_COLUMN_LINEAGE, None)
    for name in _ORDERED:
        if name in content:
            content[name] = list(content[name].items())
    entry = process.clusters[cluster]
    place = bundle.get_cluster(cluster)
    names = {*(item.feed for item in process.inputs.values()), *bundle.written_feeds(process)}
    feeds = [_feed_facts(bundle, name, cluster) for name in sorted(names)]
    fingerprint = ReleaseFingerprint(
        facts=_digest([_VERSION, content, feeds]),
        start=render_datetime(entry.validity.start),
        has_late=process.late_process is not None,
        cluster=_digest(_cluster_facts(bundle, process, cluster)),
        is_lagging=entry.version < place.version,
    )
    return fingerprint.render()


def _cluster_facts(bundle: Bundle, process: Process, cluster: str) -> object:
    mirror = process.workflow.mirror
    others = [name for name in (mirror.clusters(cluster) if mirror else ()) if name != cluster]
    own, *more = (
        bundle.get_cluster(name).model_dump(mode="json", include=set(_HARD[Kind.CLUSTER]))
        for name in (cluster, *others)
    )
    return [own, *more] if more else own


def feed_work_fingerprint(
    bundle: Bundle, feed: Feed, clusters: Sequence[str], start: datetime, content: Sequence[object], *, has_late: bool
) -> str:
    """Return a text that changes exactly when a new release of the work of a feed is needed: with its `content`, or
    with the facts of the feed and of its clusters as in `release_fingerprint`. All else takes effect at once.
    """
    places = [bundle.get_cluster(name) for name in clusters]
    fingerprint = ReleaseFingerprint(
        facts=_digest([_VERSION, *content, *(_feed_facts(bundle, feed.name, name) for name in clusters)]),
        start=render_datetime(start),
        has_late=has_late,
        cluster=_digest([place.model_dump(mode="json", include=set(_HARD[Kind.CLUSTER])) for place in places]),
        is_lagging=any(feed.clusters[place.name].version < place.version for place in places),
    )
    return fingerprint.render()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def weigh(kind: Kind, path: FieldPath, before: object, after: object) -> Weight:
    """Return the weight of a changed field (a path of `diff_entities`) for the affected processes.

    >>> weigh(Kind.PROCESS, ("retry", "attempts"), 1, 2).value, weigh(Kind.PROCESS, ("parallel",), 1, 2).value
    ('soft', 'in place')
    >>> weigh(Kind.PROCESS, ("outputs", "counts", "column_lineage", "total"), None, ["clicks.id"]).value
    'soft'
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
        case Kind.PROCESS if _COLUMN_LINEAGE in path[2:3]:
            return Weight.SOFT
        case Kind.PROCESS:
            return Weight.SOFT if top in _SOFT_OF_PROCESS else Weight.RELEASE
        case Kind.FEED if path == _QUARANTINE:
            return Weight.RELEASE  # its writers write another feed
        case _:
            return Weight.RELEASE if top in _HARD[kind] and not _is_accompanying_location(path) else Weight.SOFT


def _weigh_entry(kind: Kind, path: FieldPath) -> Weight:
    """Return the weight of a changed field of an entity's entry for one cluster."""
    if not path or path == ("validity", "end"):
        return Weight.IN_PLACE
    if path[:2] == ("validity", "start") or path == ("validity",):
        return Weight.RELEASE
    if kind is Kind.PROCESS:
        return Weight.SOFT if path[0] == "sla" else Weight.RELEASE
    if path[0] in ("import", "export"):
        return _weigh_transfer(path)
    return Weight.RELEASE if path[0] in ("locations", "table") and not _is_accompanying_location(path) else Weight.SOFT


def _weigh_transfer(path: FieldPath) -> Weight:
    """Return the weight of a changed field of an import or export, as their fingerprints have it."""
    is_soft = path[-1] == "version" or path[2:] == ("extract", "consistent")
    if path[1:2] == ("arguments",) and len(path) > 2:
        is_soft = str(path[2]).lower() not in (NULL_STRING, *ROW_ARGUMENTS)
    return Weight.SOFT if is_soft else Weight.RELEASE


def _is_accompanying_location(path: FieldPath) -> bool:
    """Return whether the path is a location of something other than the data."""
    return path[0] == "locations" and len(path) > 1 and path[1] != "data"


def _feed_facts(bundle: Bundle, name: str, cluster: str) -> dict[str, object]:
    feed = bundle.get_feed(name)
    entry = feed.clusters.get(cluster)
    place = None if entry is None else feed.data_on(cluster) or feed.table_on(cluster)
    return {
        "name": name,
        "frequency": feed.frequency.render(),
        "timezone": feed.timezone,
        "path_timezone": feed.path_zone.key,
        "availability_flag": feed.availability_flag,
        "start": None if entry is None else entry.validity.start.isoformat(),
        "place": place,
        "format": feed.format.value,
        "options": dict(feed.options),
        **({} if feed.instances is Instances.ON_SCHEDULE else {"instances": feed.instances.value}),
    }
