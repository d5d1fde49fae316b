"""Find on storage what a lost state has recorded: the instances of feeds, and which process wrote them; and move
watermarks past what is done.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime

from feed_assets.context.operation import OperationContext
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances
from feed_assets.instances.attempts.made_from import TakenEvent, parse_taken
from feed_assets.instances.attempts.staged_outputs import INSTANCE
from feed_assets.instances.inbox.taken import is_taken
from feed_assets.log.records import WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.storage.errors import ManifestError
from feed_assets.storage.manifests import Publication
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability, Look, Manifest
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import DateTimeError
from feed_assets.transfer.plans import Replica, copy_filter, parse_replica, replica_key

BATCH = 500

PROCESS, RUN = "process", "run"
"""Keys in a manifest's `extra`: the process that wrote it, and the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInstance:
    """A complete instance on storage; `publication` is its manifest's head, None if it has no manifest. `delivered` is
    the manifest of files from an inbox. `fault` is why the manifest cannot be read.
    """

    nominal_time: datetime
    look: Look
    publication: Publication | None = None
    delivered: Manifest | None = None
    fault: str | None = None

    @property
    def run_id(self) -> str | None:
        """The run that wrote it last."""
        return self.publication.extra.get(RUN) if self.publication else None

    @property
    def made_by(self) -> datetime | None:
        """The nominal time of the process instance that has written a current one; None if it does not tell."""
        told = self.publication.extra.get(INSTANCE) if self.publication else None
        try:
            return None if told is None else parse_datetime(told, seconds=True)
        except DateTimeError:
            return None

    @property
    def taken(self) -> tuple[TakenEvent, ...]:
        """The events from which a batch has made it."""
        return parse_taken(self.publication.extra) if self.publication else ()

    def is_written_by(self, process: ProcessRecord, former: Collection[str] = ()) -> bool:
        """Return whether the manifest names a process as the writer, or by a `former` name, or the source of a flow."""
        if self.publication is None:
            return False
        if not process.is_flow:
            return self.publication.extra.get(PROCESS) in (process.process, *former)
        return self.find_replica(process) is not None

    def find_replica(self, flow: ProcessRecord) -> Replica | None:
        """Return the manifest's record of the source of a flow."""
        if self.publication is None or not flow.is_flow:
            return None
        return parse_replica(self.publication.extra.get(replica_key(copy_filter(flow.copied.options).name)))


def iter_found(
    stores: StorePool, record: FeedRecord, times: Sequence[datetime], threads: Executor
) -> Iterator[tuple[int, list[FoundInstance]]]:
    """Yield the complete instances among the nominal times, in batches, each with the number of times looked at.

    Only manifests of feeds that processes write are read.

    Raises:
        StorageError: the storage cannot be read.
    """
    store = stores.get(record.store)
    for start in range(0, len(times), BATCH):
        batch = times[start : start + BATCH]
        looks = poll_instances(stores, [Candidate(record=record, nominal_time=time) for time in batch])
        complete = [
            (time, look)
            for time, look in zip(batch, looks, strict=True)
            if look.availability is Availability.AVAILABLE and look.obstacle is None
        ]
        yield len(batch), list(threads.map(lambda item: _find(store, record, *item), complete))


def _find(store: InstanceStore, record: FeedRecord, time: datetime, look: Look) -> FoundInstance:
    if record.is_external and record.inbox is None:
        return FoundInstance(nominal_time=time, look=look)
    try:
        manifest = store.published_manifest(record.path(time))
        publication = None if manifest is None else Publication.of(manifest)
        if publication is not None and not _can_be_recorded(publication):
            reason = "it has numbers, times or words that no record can keep"
            raise ManifestError(store=record.store.url, path=look.path, reason=reason)
    except ManifestError as exc:
        return FoundInstance(nominal_time=time, look=look, fault=str(exc))
    if record.inbox is not None:
        delivered = manifest if manifest is not None and is_taken(manifest) else None
        return FoundInstance(nominal_time=time, look=look, delivered=delivered)
    return FoundInstance(nominal_time=time, look=look, publication=publication)


def _can_be_recorded(found: Publication) -> bool:
    try:
        parse_taken(found.extra)
    except (ValueError, TypeError, RecursionError):
        return False
    is_number = all(0 <= number < 1 << 63 for number in (found.bytes, found.files))
    return is_number and not any("\0" in text for text in found.extra.values())


def find_finished(
    plan: Plan,
    process: ProcessRecord,
    found: Mapping[tuple[str, str], Mapping[datetime, FoundInstance]],
    former: Collection[str] = (),
) -> dict[datetime, FoundInstance]:
    """Return the instances of a process all of whose outputs on storage name it, each with one that it wrote; `former`
    are the names that it had.

    An optional output may be absent, but one output must be there; a quarantine proves nothing.
    """
    mandatory = {edge.name for edge in process.own_outputs if not edge.optional}
    leading = [edge for edge in process.own_outputs if not edge.optional][:1] or process.own_outputs
    finished: dict[datetime, FoundInstance] = {}
    for first in leading:
        for time in sorted(found.get(first.feed_key, {})):
            for nominal_time in plan.writer_times(first, time, found[first.feed_key][time].made_by):
                written = {
                    edge.name: each
                    for edge in process.own_outputs
                    if (output := plan.output_time(edge, nominal_time)) is not None
                    and (each := found.get(edge.feed_key, {}).get(output)) is not None
                    and each.is_written_by(process, former)
                }
                if written and mandatory <= written.keys():
                    finished[nominal_time] = written.get(first.name) or next(iter(written.values()))
    return finished


def move_watermark(context: OperationContext, record: FeedRecord | ProcessRecord, to: datetime | None) -> None:
    """Let the creation or the polls of instances begin at a time, unless they have gone further; None is the end."""
    kind = WatermarkKind.FEED if isinstance(record, FeedRecord) else WatermarkKind.PROCESS
    sequence = record.sequence
    index = sequence.size if to is None else sequence.index(to)
    with context.database.begin() as connection:
        watermarks = Watermarks(connection)
        standing = watermarks.get(kind, *record.key)
        if standing is None or not standing.ahead or index is None:
            return
        if to is None or standing.ahead[0][0] < to:
            watermarks.put([replace(standing.rejoined(), next_index=index, next_time=to)])
