"""Which partitions of a table its retention takes: the product's own walk and rules over names without a metastore."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast
from zoneinfo import ZoneInfo

from feed_assets.entities.common import LocationKind
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import RetainedLocation, RetentionRecord
from feed_assets.retention.rules.eligibility import collect_candidates, decide_eligible, find_before
from feed_assets.storage.port import Choose, FolderNames, InstanceStore
from feed_assets.storage.table.partition_names import parse_partition_name
from feed_assets.storage.table.partition_store import walk_partitions
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import TableAddress

Values = Mapping[str, str]
_START = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class NamedPartitions:
    """The partitions of a table whose keys are strings, walked as a table's store walks them."""

    keys: tuple[str, ...]
    partitions: Sequence[Values]

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        assert base == ""
        assert depth == len(self.keys)
        return walk_partitions(self.partitions, [(key, "string") for key in self.keys], self.keys, choose)


def expired_partitions(
    address: TableAddress, partitions: Sequence[Values], policy: RetentionRecord, now: datetime, zone: ZoneInfo
) -> list[Values]:
    """The partitions that go by age, in the order in which they are given."""
    keys = tuple(key for key, _ in address.partition)
    template = address.template.in_zone(zone)
    location = RetainedLocation(kind=LocationKind.DATA, store=StoreAddress(url="memory://names"), template=template)
    daily = InstanceSequence(start=_START, frequency=parse_frequency("days(1)"), timezone=zone)
    store = cast("InstanceStore", NamedPartitions(keys, partitions))
    found = collect_candidates(store, location, daily, find_before(policy, now))
    eligible = decide_eligible(policy, {LocationKind.DATA: found}, [], now)
    gone = [parse_partition_name(path) for each in eligible for path in each.candidates.paths]
    return [values for values in partitions if dict(values) in gone]


def expired_before(
    address: TableAddress, partitions: Sequence[Values], before: datetime, zone: ZoneInfo
) -> list[Values]:
    """The partitions that go when everything before a moment is too old."""
    policy = RetentionRecord(
        limit=parse_frequency("days(1)"),
        cadence=parse_frequency("days(1)"),
        trash=parse_frequency("days(1)"),
        partition=address.template.in_zone(zone),
    )
    return expired_partitions(address, partitions, policy, before + timedelta(days=1), zone)
