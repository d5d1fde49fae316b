"""Decide about what stands in the place of a publication, and record as a sweep what goes to the trash: what others
wrote, and the version of a current instance that a newer one replaces.

Such a sweep is listed, undone and purged like those of retention; its paths are no instances, so the states of
instances do not change.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Self

from feed_assets.context.operation import AttemptContext, LifecycleContext
from feed_assets.entities.copies.options import EXISTING, Existing
from feed_assets.instances.arrival.polling import describe_owner
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import OWN_PATHS, FeedPlaces
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.log.removals.chunks import SweepDraft
from feed_assets.log.removals.records import (
    VERSION,
    WAS,
    WHILE_A_VERSION,
    ChunkState,
    ItemOutcome,
    ItemResult,
    SweepChunk,
    SweepItem,
    SweepState,
)
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.copy_records import Directory
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.storage.clearing import find_foreign, refuse_foreign, refuse_unreadable
from feed_assets.storage.errors import StorageError
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Clearing, Displaced, Manifest, Outcome, describe_displaced
from feed_assets.timing.sequence import Frequency, Unit

DISPLACED = "displaced"
"""The kind of the paths of such a sweep, and their rule."""
UNDECLARED_TRASH_LIFETIME = Frequency(unit=Unit.DAYS, count=7)
"""The lifetime of the trash of a feed that has no retention, and of mirrors."""
MIRRORED = "mirrored"
"""The kind of the paths that a mirror displaces; `mirror/NAME` stands for the feed then, a name that no feed has."""

_ORIGIN = "publication"
_KNOWN = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.PARTIAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlace:
    """The place of one publication, with the rules for what stands there; `displaced` has what went to the trash.

    `owner` is the instance that is published, `kind` that of the displaced paths. The trash is kept for `kept_for`.
    `origin` is that of events.
    """

    context: LifecycleContext
    origin: str
    owner: FeedKey
    kind: str
    kept_for: Frequency
    clearing: Clearing
    displaced: list[Displaced] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        context: LifecycleContext,
        origin: str,
        record: FeedRecord,
        nominal_time: datetime,
        overrides: Mapping[str, object],
    ) -> Self:
        """Return the place of an instance by the record, the declaration, and what a person has decided.

        Raises:
            StorageError: another instance, which came before the place of the feed changed, is there.
        """
        with context.database.read() as connection:
            row = FeedInstances(connection).get(*record.key, nominal_time)
            owners = FeedPlaces(connection).find_owners([(record, nominal_time)])
        for other in owners.values():
            path, reason = record.path(nominal_time), describe_owner(other)
            raise StorageError(store=record.store.url, path=path, reason=reason, next_step=OWN_PATHS)
        decided = overrides.get(EXISTING)
        clearing = Clearing(
            sweep=_name_sweep(context),
            existing=record.existing if decided is None else Existing(str(decided)),
            is_known=row is not None and row.status in _KNOWN,
        )
        policy = record.retention
        kept_for = policy.trash if policy else UNDECLARED_TRASH_LIFETIME
        owner = FeedKey(*record.key, nominal_time)
        place = cls(
            context=context, origin=origin, owner=owner, kind=DISPLACED, kept_for=kept_for, clearing=clearing
        )._announcing()
        if not record.is_current or not record.versions:
            return place
        return replace(place, clearing=replace(place.clearing, keep=partial(place.keep_version, record)))

    @classmethod
    def of_mirror(
        cls, context: AttemptContext, process: ProcessRecord, nominal_time: datetime, target: Directory
    ) -> Self:
        """Return the place of a directory that a mirror writes, on the cluster that has its storage.

        A run that may not replace foreign content has been refused before.
        """
        clusters = context.plan.clusters
        at = next((each for each in (process.cluster, *clusters) if clusters[each].store == target.store), None)
        owner = FeedKey(f"mirror/{process.process}", at or process.cluster, nominal_time)
        clearing = Clearing(sweep=_name_sweep(context), existing=Existing.REPLACE, has_flags=False)
        kept_for = UNDECLARED_TRASH_LIFETIME
        return cls(
            context=context, origin=context.origin, owner=owner, kind=MIRRORED, kept_for=kept_for, clearing=clearing
        )._announcing()

    def _announcing(self) -> Self:
        return replace(self, clearing=replace(self.clearing, announce=self.record_displaced))

    @property
    def details(self) -> dict[str, str | int | float]:
        """What went to the trash, for the partition; empty if nothing did."""
        return describe_displaced(self.displaced)

    def is_to_adopt(self, store: InstanceStore, record: FeedRecord) -> bool:
        """Return whether foreign content stands here that is to become the instance.

        Raises:
            ForeignContentError: foreign content stands here, and nothing decides about it.
            StorageError: it is to be adopted, but nobody could read it.
        """
        clearing, path = self.clearing, record.path(self.owner.nominal_time)
        foreign = () if clearing.is_known else find_foreign(store, path)
        refuse_foreign(store, path, foreign, clearing)
        if not foreign or clearing.existing is not Existing.ADOPT:
            return False
        is_recursive = any(name.lower() == "recursivefilelookup" for name, _ in record.options)
        reads_folders = bool(record.partitions) or is_recursive
        refuse_unreadable(store, path, foreign, record.flag, reads_folders=reads_folders)
        return True

    def record_displaced(self, displaced: Displaced) -> None:
        """Record the sweep of what goes to the trash, before it goes; no error if it is recorded already."""
        self.displaced.append(displaced)
        reason = "the publication replaced it" if displaced.is_whole else "the last manifest did not name it"
        items = [SweepItem(path, self.owner.nominal_time, None, None, DISPLACED, reason) for path in displaced.paths]
        self._record(displaced, self.kind, items, self.context.clock.now() + self.kept_for.as_duration())

    def keep_version(self, record: FeedRecord, manifest: Manifest) -> None:
        """Copy into the trash what we have published here, and record it before as a sweep, if it is the version that
        the record knows. A repeat before the next version has the same sweep.

        Raises:
            StorageError: it cannot be copied; nothing may be published then.
        """
        with self.context.database.read() as connection:
            row = FeedInstances(connection).get(*self.owner)
        if row is None or row.manifest_digest != manifest.digest:
            return
        sweep = f"{row.available_at or row.updated_at:%Y%m%d-%H%M%S}-{row.event_seq:06x}"
        store, path = self.context.stores.get(record.store), record.path(self.owner.nominal_time)
        kept = Displaced(sweep=sweep, store=store.root_url, path=path, paths=(path,), files=manifest.files)
        item = SweepItem(path, self.owner.nominal_time, row.bytes, row.files, VERSION, "a newer version replaced it")
        self._record(kept, VERSION, [item], WHILE_A_VERSION, row)
        trash = store.trash()
        trash.describe(sweep, kept.describe())
        copied = trash.keep(sweep, path, flag=record.flag)
        if copied.outcome not in (Outcome.MOVED, Outcome.ALREADY):
            raise StorageError(
                store=store.root_url,
                path=path,
                reason=f"its former version cannot be kept in the trash of sweep {sweep}: {copied.reason}",
                next_step="Correct that and repeat, or lower retention.versions of the feed.",
            )

    def _record(
        self,
        displaced: Displaced,
        kind: str,
        items: Sequence[SweepItem],
        purge_at: datetime,
        version: FeedInstance | None = None,
    ) -> None:
        now = self.context.clock.now()
        draft = SweepDraft(displaced.sweep, self.owner.cluster)
        draft.add(self.owner.feed, kind, items)
        with self.context.database.begin() as connection:
            sweeps, log = Sweeps(connection), EventLog(connection)
            if sweeps.find(displaced.sweep) is not None:
                return
            sweep = draft.finish(
                SweepState.DONE, as_of=now, created_at=now, author=self.origin, origin=_ORIGIN, log_seq=log.last_seq()
            )
            counts = tuple(replace(count, evicted=count.paths, files=displaced.files) for count in sweep.counts)
            ended = replace(sweep, counts=counts, started_at=now, ended_at=now, purge_at=purge_at)
            sweeps.add(ended, [_as_evicted(chunk) for chunk in draft.chunks])
            for chunk in draft.chunks:
                log.append([self._event(displaced, kind, item, now, version) for item in chunk.items])

    def _event(
        self, displaced: Displaced, kind: str, item: SweepItem, now: datetime, version: FeedInstance | None
    ) -> NewFeedEvent:
        facts: dict[str, Any] = {} if version is None else {WAS: version.status.value, VERSION: version.event_seq}
        return NewFeedEvent(
            **self.owner._asdict(),
            kind=FeedEventKind.EVICTED,
            origin=_ORIGIN,
            recorded_at=now,
            payload={
                "sweep": displaced.sweep,
                "path": item.path,
                "kind": kind,
                "rule": item.rule,
                "reason": item.reason,
                "store": displaced.store,
                **facts,
            },
            manifest_digest=version.manifest_digest if version else None,
            bytes=item.bytes,
            files=item.files,
        )


def _name_sweep(context: LifecycleContext) -> str:
    return f"{context.clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _as_evicted(chunk: SweepChunk) -> SweepChunk:
    return replace(chunk, state=ChunkState.DONE, results=dict.fromkeys(chunk.items, ItemResult(ItemOutcome.EVICTED)))
