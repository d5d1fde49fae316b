"""`listing`: the instances of a feed with availability, size and times, from the record or from storage itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.arrivals import Candidate, look_at
from feed_assets.operations.consolidation import Result, consolidate
from feed_assets.operations.instances.lifecycles import find_data
from feed_assets.operations.instances.queries import VERSION, range_of
from feed_assets.operations.instances.ranges import InstanceQuery
from feed_assets.operations.instances.rows import due_between, iter_feed_instances, rendered
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord
from feed_assets.state.records import FeedInstance, FeedInstanceStatus
from feed_assets.timing.dates import render_datetime

_MOMENT = timedelta(microseconds=1)
_STEP = 1024
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedInstance:
    """An instance of a feed. `created_at` is when it became available by the record, or was changed last by storage;
    `looked_at` is None where storage was not asked.
    """

    feed: str
    cluster: str
    nominal_time: datetime
    status: FeedInstanceStatus
    url: str
    size: int | None
    files: int | None
    created_at: datetime | None
    looked_at: datetime | None = None

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "name": self.feed,
            "cluster": self.cluster,
            "instance": render_datetime(self.nominal_time),
            "status": self.status.value,
            "uri": self.url,
            "size": self.size,
            "sizeH": None if self.size is None else render_size(self.size),
            "files": self.files,
            "creationTime": rendered(self.created_at),
            "lookedAt": rendered(self.looked_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedListing:
    """The instances with `start <= nominal time <= end` that exist by now, by cluster, oldest first."""

    result: Result
    message: str
    start: datetime
    end: datetime
    instances: tuple[ListedInstance, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "status": self.result.value,
            "message": self.message,
            "start": render_datetime(self.start),
            "end": render_datetime(self.end),
            "instances": [each.to_json() for each in self.instances],
        }


def list_feed(
    scene: Scene,
    name: str,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    clusters: Iterable[str] = (),
    statuses: frozenset[str] | None = None,
    results: int = 10,
    look: bool = False,
) -> FeedListing:
    """The instances of a feed in a range, both ends included, as the record has them.

    With `look`, storage is asked instead, as it is now; nothing is recorded. A cluster whose storage does not answer
    fails without the others. Ranges have the defaults of `decide_range`, with `results` instances.

    Differs from Falcon: what was evicted is EVICTED, not MISSING, unless storage is asked; a missing instance has no
    size, where Falcon says -1; sizes count no replicas; and instances step in the feed's time zone, in its validity.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the range makes no sense.
    """
    subjects = find_data(scene, name, tuple(clusters) or None)
    query = InstanceQuery(kind=Kind.FEED, name=name, start=start, end=end, results=results)
    first, last = range_of(scene, query, subjects)
    with scene.read() as connection:

        def read(cluster: str) -> Sequence[ListedInstance]:
            record = scene.feed_on(name, cluster)
            due = due_between(record, first, last + _MOMENT, scene.as_of)
            rows = list(iter_feed_instances(connection, record, due, descending=False))
            return _looked(scene, record, [time for time, _ in rows]) if look else _recorded(scene, record, rows)

        parts = consolidate(subjects.clusters, read)
    wanted = [each for each in parts.items if statuses is None or each.status in statuses]
    return FeedListing(result=parts.result, message=parts.message, start=first, end=last, instances=tuple(wanted))


def _recorded(
    scene: Scene, record: FeedRecord, rows: Iterable[tuple[datetime, FeedInstance | None]]
) -> list[ListedInstance]:
    return [
        ListedInstance(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=time,
            status=row.status if row else FeedInstanceStatus.MISSING,
            url=scene.feed_url(record, time),
            size=row.bytes if row and row.status is not FeedInstanceStatus.MISSING else None,
            files=row.files if row and row.status is not FeedInstanceStatus.MISSING else None,
            created_at=row.available_at if row else None,
        )
        for time, row in rows
    ]


def _looked(scene: Scene, record: FeedRecord, times: Sequence[datetime]) -> list[ListedInstance]:
    looks = look_at(scene.stores, [Candidate(record=record, nominal_time=time) for time in times])
    return [
        ListedInstance(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=time,
            status=(status := FeedInstanceStatus(look.availability.value)),
            url=scene.feed_url(record, time),
            size=None if status is FeedInstanceStatus.MISSING else look.bytes,
            files=None if status is FeedInstanceStatus.MISSING else look.files,
            created_at=look.modified_at,
            looked_at=scene.as_of,
        )
        for time, look in zip(times, looks, strict=True)
    ]


def render_size(size: int) -> str:
    """A size for people.

    >>> render_size(0), render_size(1536), render_size(5 * 1024**3)
    ('0 bytes', '1.5 KiB', '5.0 GiB')
    """
    value = float(size)
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            return f"{size} bytes" if unit == _UNITS[0] else f"{value:.1f} {unit}"
        value /= _STEP
    raise AssertionError(size)
