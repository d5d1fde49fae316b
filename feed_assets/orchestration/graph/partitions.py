"""Represent instance sequences as Dagster partitions: one shared definition per distinct grid, and exact two-way keys.

A grid that five-field cron expresses exactly is a time-window definition. Every other grid is a dynamic one: the
arrival sensor adds its keys when the instances are due.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import dagster as dg

from feed_assets.orchestration.errors import PartitionKeyError
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.timing.dates import FixedOffset, is_fixed, is_regular, render_datetime
from feed_assets.timing.sequence import InstanceSequence, Unit, key_format, render_key, zone_of_keys

_DAYS_OF_EVERY_MONTH = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A sequence of instances in the form of Dagster partitions. A current instance is an asset without partitions.

    Where instances come as they come, `owner` is the feed or process that makes them: their keys are added with them.
    """

    sequence: InstanceSequence
    cron: str | None
    key_format: str
    owner: str = ""

    @property
    def key_zone(self) -> ZoneInfo:
        """The zone of partition keys: UTC for elapsed time, else the sequence's own."""
        return zone_of_keys(self.sequence)

    @property
    def is_dynamic(self) -> bool:
        return self.cron is None

    @property
    def is_filled_by_time(self) -> bool:
        """Whether its keys must be added to Dagster as time goes by."""
        return self.is_dynamic and not self.owner and not self.is_single

    @property
    def is_single(self) -> bool:
        """Whether there are no partitions."""
        return self.sequence.is_single

    @property
    def dynamic_name(self) -> str:
        """The name under which Dagster keeps the keys of a dynamic grid."""
        if self.owner:
            return f"feed_assets/{self.owner}"
        sequence = self.sequence
        facts = f"{sequence.frequency} {render_datetime(sequence.start)} {sequence.timezone.key}"
        return f"feed_assets/{sequence.frequency.render()}/{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    def key(self, nominal_time: datetime) -> str:
        """Return the partition key of an instance."""
        return render_key(self.sequence, nominal_time)

    def partition(self, nominal_time: datetime) -> str | None:
        """Return the partition that shows an instance; None if it is the asset."""
        return None if self.is_single else self.key(nominal_time)

    def nominal_time(self, key: str) -> datetime:
        """Return the nominal time of a partition key.

        Raises:
            PartitionKeyError: the key does not denote an instance of the sequence.
        """
        if self.is_single:
            return self.sequence.start
        try:
            wall = datetime.strptime(key, self.key_format).replace(tzinfo=self.key_zone)
        except ValueError as exc:
            raise self._refusal(key, f"keys have the form {self.key(self.sequence.start)}") from exc
        near = self.sequence.index_at_or_before(wall.astimezone(UTC))
        for index in (near, near + 1, near - 1):
            found = self.sequence.at(index)
            if self.key(found) == key and self.sequence.contains(found):
                return found
        raise self._refusal(key, "the validity has no such instance")

    def _refusal(self, key: str, reason: str) -> PartitionKeyError:
        return PartitionKeyError(key=key, start=self.sequence.start, frequency=self.sequence.frequency, reason=reason)

    def add_request(self, keys: Sequence[str]) -> dg.AddDynamicPartitionsRequest:
        """Return the request to add keys to a dynamic grid."""
        return dg.AddDynamicPartitionsRequest(self.dynamic_name, keys)

    def definition(self) -> dg.PartitionsDefinition[str] | None:
        """Return the partitions definition; equal grids share one object."""
        return None if self.is_single else _definition(self)


@cache
def grid(sequence: InstanceSequence, owner: str = "") -> Grid:
    """Return the grid of a sequence, of a certain owner if its instances come as they come."""
    cron = None if owner or sequence.is_single else exact_cron(sequence)
    return Grid(sequence=sequence, cron=cron, key_format=key_format(sequence), owner=owner)


def feed_grid(record: FeedRecord) -> Grid:
    """Return the grid of a feed."""
    return grid(record.sequence, "" if record.is_expected else f"feed/{record.feed}@{record.cluster}")


def process_grid(process: ProcessRecord) -> Grid:
    """Return the grid of a process."""
    return grid(process.sequence, "" if process.is_enumerated else f"process/{process.process}@{process.cluster}")


@cache
def _definition(grid: Grid) -> dg.PartitionsDefinition[str]:
    if grid.cron is None:
        return dg.DynamicPartitionsDefinition(name=grid.dynamic_name)
    sequence = grid.sequence
    size = sequence.size
    return dg.TimeWindowPartitionsDefinition(
        start=grid.key(sequence.start),
        end=None if size is None else grid.key(sequence.at(size)),
        fmt=grid.key_format,
        timezone=grid.key_zone.key,
        cron_schedule=grid.cron,
        end_offset=1,
    )


def exact_cron(sequence: InstanceSequence) -> str | None:
    """Return the five-field cron schedule with exactly the sequence's instances; None if there is none.

    Exact schedules are: N minutes with N dividing 60 (but not 1, which Dagster handles very slowly), N hours with N
    dividing 24, one day, one week, and N months with N dividing 12 from a day that every month has. Days and months
    also need a local time that no clock change skips or repeats, in a zone that Dagster knows.
    """
    frequency, count = sequence.frequency, sequence.frequency.count
    start, wall = sequence.start, sequence.wall_start
    if start.second or start.microsecond:
        return None
    match frequency.unit:
        case Unit.MINUTES if count % 60 == 0:
            return _hours_cron(start, count // 60)
        case Unit.MINUTES if 60 % count == 0 and count > 1:
            return f"{_cycle(start.minute, count, 60)} * * * *"
        case Unit.HOURS:
            return _hours_cron(start, count)
        case Unit.DAYS if count == 1 and _keeps_wall_time(sequence):
            return f"{wall.minute} {wall.hour} * * *"
        case Unit.DAYS if count == 7 and _keeps_wall_time(sequence):
            return f"{wall.minute} {wall.hour} * * {wall.isoweekday() % 7}"
        case Unit.MONTHS if 12 % count == 0 and wall.day <= _DAYS_OF_EVERY_MONTH and _keeps_wall_time(sequence):
            months = sorted((wall.month - 1 + step) % 12 + 1 for step in range(0, 12, count))
            listed = "*" if count == 1 else ",".join(map(str, months))
            return f"{wall.minute} {wall.hour} {wall.day} {listed} *"
        case _:
            return None


def _hours_cron(start: datetime, hours: int) -> str | None:
    if 24 % hours:
        return None
    return f"{start.minute} {_cycle(start.hour, hours, 24)} * * *"


def _cycle(phase: int, step: int, period: int) -> str:
    """Return one cron field: every `step` from `phase`.

    >>> _cycle(0, 15, 60), _cycle(17, 60, 60), _cycle(1, 6, 24), _cycle(5, 1, 24)
    ('*/15', '17', '1,7,13,19', '*')
    """
    if step == 1:
        return "*"
    values = sorted((phase + offset) % period for offset in range(0, period, step))
    if values[0] == 0 and len(values) > 1:
        return f"*/{step}"
    return ",".join(map(str, values))


def _keeps_wall_time(sequence: InstanceSequence) -> bool:
    """Return whether no instance falls on a local time that is skipped or repeated; only then cron means the same
    times.
    """
    wall = sequence.wall_start
    time_of_day = timedelta(hours=wall.hour, minutes=wall.minute)
    zone = sequence.timezone
    return not isinstance(zone, FixedOffset) and (is_fixed(zone) or is_regular(zone, time_of_day, sequence.start))
