"""Find what retention may remove at former places of feeds: what the record has there, and only if nothing else can be
there by now.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from operator import itemgetter
from typing import TypeAlias

from feed_assets.context.operation import TimelineContext
from feed_assets.entities.common import LocationKind
from feed_assets.entities.locations.overlaps import FixedPlace, LocationKey, Places, describe_location, iter_locations
from feed_assets.instances.arrival.polling import fingerprint
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances
from feed_assets.instances.late.contents import to_scan
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.manifests import Manifests
from feed_assets.log.records import FeedInstance, FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.left_out import PHRASES
from feed_assets.retention.rules.eligibility import Candidates
from feed_assets.retention.rules.hold_traces import HoldTraces
from feed_assets.retention.rules.locations import at_former
from feed_assets.storage.errors import StorageError
from feed_assets.storage.records import Availability, Look
from feed_assets.timing.overlaps import Nesting, find_nesting

At: TypeAlias = tuple[FeedRecord, Candidates]
"""A feed at one of its places, and the data that are there."""


class Neighbours:
    """The locations of everything that is declared, and all places that feeds have had, at the time of the making."""

    def __init__(self, context: TimelineContext) -> None:
        self._places = Places()
        with context.database.read() as connection:
            versions = Definitions(connection).declared_versions()
            members = [Member(kind=kind, name=name, version=version) for (kind, name), version in versions.items()]
            loaded = context.timeline.load_recorded(connection, members)
            recorded = FeedPlaces(connection).all()
        located = iter_locations(loaded.bundle, left_out=loaded.salvaged, places=self._places)
        self._others: list[tuple[LocationKey, tuple[str, ...], str]] = [(key, (), text) for key, text in located]
        for feed, cluster, *where, _ in recorded:
            text = self._places.canonical("/".join(where))
            self._others.append(((feed, cluster, LocationKind.DATA), tuple(where), text))

    def find_obstacle(self, there: FeedRecord) -> str | None:
        """Return why what is at a former place of a feed may be something else's by now; None if nothing else is, or
        was, at it, inside it or around it, but the storage.

        The same location of the feed with another `path_timezone` is nothing else: `find_protections` knows what else
        a path can mean there.
        """
        if there.table is not None or not there.template.covers(there.sequence.frequency):
            return "it is a table" if there.table is not None else "several instances may have one path there"
        where = (there.store.url, there.template.text)
        own = self._places.canonical("/".join(where))
        for key, place, text in self._others:
            nesting = find_nesting(text, own)
            is_above = key[2] is FixedPlace.STORAGE and nesting is Nesting.AROUND
            is_own = key == (*there.key, LocationKind.DATA) and text == own and place in ((), where)
            if nesting is not None and not is_above and not is_own:
                return f"{describe_location(key)} is, or was, {PHRASES[nesting]}"
        return None


def find_former(record: FeedRecord, neighbours: Callable[[], Neighbours], traces: HoldTraces) -> list[At]:
    """Return a feed at each former place with what the record has there, the last of several at one path; with an
    obstacle where nothing is removed. Settles the traces of holds there.
    """
    with traces.context.database.read() as connection:
        found = sorted(FeedPlaces(connection).find_elsewhere(record), key=itemgetter(0))
    at: dict[int, tuple[FeedRecord, dict[str, datetime]]] = {}
    for time, there in found:
        at.setdefault(there.place, (there, {}))[1][there.path(time)] = time
    former: list[At] = []
    for there, times in at.values():
        obstacle = neighbours().find_obstacle(there)
        try:
            traces.settle([] if obstacle else [at_former(there)])
        except StorageError as exc:
            obstacle = str(exc)
        told = f"{counted(len(times), 'instance')} at the former place {there.store.url} stay: {obstacle}"
        former.append((at_former(there, obstacle and told), Candidates(list(times), list(times.values()))))
    return former


def find_differing(context: TimelineContext, there: FeedRecord, times: Collection[datetime]) -> dict[datetime, str]:
    """Return which instances of a feed at a former place are not there as the record says, each with why."""
    stores, keys = context.stores, [FeedKey(*there.key, time) for time in times]
    with context.database.read() as connection:
        rows = list(FeedInstances(connection).get_many(keys).values())
        scanned = Manifests(connection).get_many(keys)

    def compare(pair: tuple[FeedInstance, Look]) -> str | None:
        row, look = pair
        digest = row.manifest_digest or ""
        if look.obstacle is not None or digest == fingerprint(look):
            return look.obstacle
        if not digest.startswith("look:") and (row.bytes, row.files) == (look.bytes, look.files):
            store, earlier = stores.get(there.store), to_scan(scanned.get(row.key))
            found = store.published_manifest(look.path) or store.scan(look.path, there.flag, earlier, context.real_now)
            if found.digest == digest:
                return None
        is_gone = look.availability is Availability.MISSING
        return "nothing is there" if is_gone else "what is there is not what the record says"

    try:
        looks = poll_instances(stores, [Candidate(record=there, nominal_time=row.nominal_time) for row in rows])
        reasons = stores.each(compare, list(zip(rows, looks, strict=True)))
    except StorageError as exc:
        return dict.fromkeys(times, str(exc))
    return {row.nominal_time: reason for row, reason in zip(rows, reasons, strict=True) if reason is not None}
