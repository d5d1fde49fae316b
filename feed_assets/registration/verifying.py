"""`registration verify` and `repair`: whether the table of a catalog has what the record has, and let it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, OperationContext, note_target
from feed_assets.entities.common import Kind, label_of
from feed_assets.errors import FeedAssetsError, describe_error
from feed_assets.json_form import NominalTime, shown
from feed_assets.log.records import FeedInstanceStatus, FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.registration.port import Registered, RegisteredPlace
from feed_assets.registration.registering import Registrations, iter_places, open_table, settle
from feed_assets.releases.timeline import BEGINNING

COLUMNS = "cluster, table, instance=nominal_time, reason, repaired"
_AT_ONCE = 500
_MOMENT = timedelta(microseconds=1)
_TOLD = {
    Registered.MISSING: "it is AVAILABLE, and no partition of the table",
    Registered.OTHER: "the table has other files of it",
    Registered.FOREIGN: "its partition is not in a place of the feed, and stays as it is until somebody drops it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationQuery:
    """A feed, on one cluster or all, in a range of nominal times."""

    feed: str
    cluster: str | None
    start: datetime | None
    end: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What the table has else than the record, and whether it was repaired."""

    cluster: str
    table: str
    nominal_time: NominalTime
    reason: str
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRegistrations:
    """The differences; `instances` were compared."""

    feed: str
    instances: int
    differences: tuple[Difference, ...]
    dry_run: bool = False

    @shown
    def is_complete(self) -> bool:
        """Whether nothing differs any more."""
        return self.dry_run or all(each.repaired for each in self.differences)

    @property
    def has_failed(self) -> bool:
        """Whether something differs still."""
        return not self.is_complete

    @property
    def shown_columns(self) -> str:
        """The columns of the table; none if nothing differs, of which nothing is said."""
        return COLUMNS if self.differences else ""

    @property
    def summary(self) -> str:
        """What was compared, and what differs; nothing if all is well."""
        if not self.differences:
            return ""
        repaired = sum(each.repaired for each in self.differences)
        done = f", {repaired} repaired" if repaired else ""
        return f"feed {self.feed!r}: {counted(self.instances, 'instance')}, {len(self.differences)} differ{done}"


def verify_registrations(context: OperationContext, query: RegistrationQuery) -> VerifiedRegistrations:
    """Compare the tables of a feed with the record.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it has no table, or is not on the cluster.
        StorageError: the catalog is away.
    """
    compared, found = 0, list[Difference]()
    for record in _find_feeds(context, query):
        count, differences = _compare(context, record, query)
        compared += count
        found += differences
    return VerifiedRegistrations(feed=query.feed, instances=compared, differences=tuple(found))


def repair_registrations(context: ChangeContext, query: RegistrationQuery) -> VerifiedRegistrations:
    """Let the tables of a feed have what the record has. Raises as `verify_registrations`."""
    verified = verify_registrations(context, query)
    if context.dry_run or not verified.differences:
        return replace(verified, dry_run=context.dry_run)
    note_target(context, "registration repair", f"feed {query.feed}", instances=len(verified.differences))
    done: list[Difference] = []
    for record in _find_feeds(context, query):
        due = [each for each in verified.differences if each.cluster == record.cluster]
        for start in range(0, len(due), _AT_ONCE):
            done += _repair(context, record, due[start : start + _AT_ONCE])
        if due:
            _drop_others(context, record, query)
    return replace(verified, differences=tuple(done))


def _repair(context: OperationContext, record: FeedRecord, due: list[Difference]) -> Iterator[Difference]:
    assert record.registration is not None
    times = [each.nominal_time for each in due]
    try:
        refused = dict(context.stores.ask(record.registration.store, lambda: settle(context, record, times)))
    except FeedAssetsError as exc:
        refused = dict.fromkeys(times, describe_error(exc))
    with context.database.begin() as connection:
        Registrations(connection).plan([FeedKey(*record.key, time) for time in times], context.as_of)
    for each in due:
        reason = refused.get(each.nominal_time)
        yield replace(each, reason=reason or each.reason, repaired=reason is None)


def _drop_others(context: OperationContext, record: FeedRecord, query: RegistrationQuery) -> None:
    assert record.registration is not None
    span, table = _span(context, query), open_table(context, record)
    known = [each for _, places in iter_places(context, record, *span) for each in places]
    context.stores.ask(record.registration.store, lambda: table.find_others(known, *span, drop=True))


def _find_feeds(context: OperationContext, query: RegistrationQuery) -> list[FeedRecord]:
    records = context.feeds_of(query.feed, query.cluster)
    registered = [each for each in records if each.registration is not None]
    if not registered:
        raise InstanceQueryError(
            subject=label_of((Kind.FEED, query.feed)),
            reason="its instances are not registered in a table of a catalog",
            next_step="Write catalog_table at the feed, and catalog at the cluster.",
        )
    return registered


def _span(context: OperationContext, query: RegistrationQuery) -> tuple[datetime, datetime]:
    """Return the first and the last time that is asked for."""
    return query.start or BEGINNING, (query.end or context.as_of + _MOMENT) - _MOMENT


def _compare(context: OperationContext, record: FeedRecord, query: RegistrationQuery) -> tuple[int, list[Difference]]:
    """Return how many instances were compared, and what differs."""
    registration, table, known = record.registration, open_table(context, record), list[RegisteredPlace]()
    assert registration is not None
    told = list[tuple[datetime, str | None]]()
    for rows, places in iter_places(context, record, *_span(context, query)):
        known += places
        found = context.stores.ask(registration.store, partial(table.find, places))
        told += [(row.nominal_time, _describe(row.status, found[row.nominal_time])) for row in rows]
    others = context.stores.ask(registration.store, lambda: table.find_others(known, *_span(context, query)))
    reason = "is in a place of the feed, and no instance that is recorded there"
    told += [(time, f"{name} {reason}") for name, time in sorted(others.items())]
    return len(known), [
        Difference(cluster=record.cluster, table=registration.name, nominal_time=time, reason=each)
        for time, each in told
        if each is not None
    ]


def _describe(status: FeedInstanceStatus, found: Registered) -> str | None:
    """Return what the table has else than the record has; None if it has the same."""
    if status is FeedInstanceStatus.AVAILABLE:
        return _TOLD.get(found)
    return f"it is {status.value}, and a partition of the table" if found.is_own else None
