"""Instances at locations as partitions of a table of a Hive metastore, each at its instance's directory."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from feed_assets.entities.content.columns import parse_columns, parse_nested
from feed_assets.entities.feed import FeedFormat
from feed_assets.plan.records import FeedRecord, RegistrationRecord
from feed_assets.registration.port import OWNER, CatalogTable, OwnPlaces, Registered, RegisteredPlace, plain_url
from feed_assets.storage.table.copies import why_not_plain
from feed_assets.storage.table.metastore import Metastore, Partition, Table, TableFormat
from feed_assets.storage.table.partition_names import PartitionSpec, parse_partition
from feed_assets.storage.table.partitions import plain_location

_EXTERNAL = "EXTERNAL_TABLE"
_TYPES = {"timestamp_ntz": "timestamp", "timestamp_ltz": "timestamp"}


class HiveTable(CatalogTable):
    """A table of a metastore."""

    def __init__(
        self, record: FeedRecord, registration: RegistrationRecord, own: OwnPlaces, metastore: Metastore
    ) -> None:
        super().__init__(record, registration, own)
        self._metastore = metastore

    def find(self, places: Sequence[RegisteredPlace]) -> Mapping[datetime, Registered]:
        table = self._find_table()
        found = {} if table is None else self._find(table, places)
        return {each.nominal_time: self._state(each, found.get(each.nominal_time)) for each in places}

    def put(self, places: Sequence[RegisteredPlace]) -> Mapping[datetime, str]:
        table = self._require(self._find_table() or self._make(places[0]))
        found, refused = self._find(table, places), dict[datetime, str]()
        new: dict[tuple[str, ...], str] = {}
        for each in places:
            partition = found.get(each.nominal_time)
            match self._state(each, partition):
                case Registered.MISSING:
                    new[self._spec(table, each).values] = each.location
                case Registered.FOREIGN:
                    assert partition is not None
                    at = f"points to {partition.location}, not a place of the feed; drop it if nobody needs it"
                    refused[each.nominal_time] = f"the partition {table.render(partition.values)} {at}"
                case state:
                    assert partition is not None
                    if state is Registered.OTHER or partition.has_statistics:
                        self._metastore.alter_partition(table, partition, each.location)
        self._metastore.add_partitions(table, new)
        return refused

    def drop(self, places: Sequence[RegisteredPlace]) -> None:
        table = self._find_table()
        if table is not None:
            found = self._find(table, places)
            there = [(found[each.nominal_time], each) for each in places if each.nominal_time in found]
            own = [partition for partition, each in there if self._state(each, partition) is not Registered.FOREIGN]
            with suppress(LookupError):  # the table is gone
                self._metastore.drop_partitions(table, own)

    def find_others(
        self, places: Sequence[RegisteredPlace], first: datetime, last: datetime, *, drop: bool = False
    ) -> Mapping[str, datetime]:
        table = self._find_table()
        if table is None:
            return {}
        known = {values for each in places for values in self._spec(table, each).spellings}
        found, others = dict[str, datetime](), list[Partition]()
        for partition in self._metastore.find_partitions(table, self._metastore.partition_names(table, {})):
            location = plain_url(plain_location(partition.location))
            own = None if partition.values in known else self._own.find(location)
            if own is not None and own[0] == location and first <= own[1] <= last:
                found[table.render(partition.values)] = own[1]
                others.append(partition)
        if drop:
            self._metastore.drop_partitions(table, others)
        return found

    def _find_table(self) -> Table | None:
        return self._metastore.find_table(self._registration.table.database, self._registration.table.name)

    def _find(self, table: Table, places: Sequence[RegisteredPlace]) -> dict[datetime, Partition]:
        specs = {each.nominal_time: self._spec(table, each) for each in places}
        names = sorted({table.render(values) for spec in specs.values() for values in spec.spellings})
        by_values = {each.values: each for each in self._metastore.find_partitions(table, names)}
        found = ((time, next(filter(None, map(by_values.get, spec.spellings)), None)) for time, spec in specs.items())
        return {time: partition for time, partition in found if partition is not None}

    def _spec(self, table: Table, place: RegisteredPlace) -> PartitionSpec:
        return parse_partition(self._registration.store.url, place.partition, table.keys)

    def _state(self, place: RegisteredPlace, partition: Partition | None) -> Registered:
        if partition is None:
            return Registered.MISSING
        location = plain_url(plain_location(partition.location))
        if location == place.url:
            return Registered.CURRENT
        return Registered.OTHER if self._own.find_instance(location) == location else Registered.FOREIGN

    def _require(self, table: Table) -> Table:
        """Return a table that only this feed fills; mark it, if it is not marked."""
        name = self._registration.name
        if (reason := why_not_plain(table)) is not None:
            raise self._refused(f"of {name}, {reason}", "Use a plain external table.")
        if table.kind != _EXTERNAL:
            kind = table.kind.lower().replace("_", " ")
            raise self._refused(f"{name} is a {kind}, whose files are Hive's own", "Use an external table.")
        if table.parameters.get(OWNER) != self._owner:
            for partition in self._metastore.find_partitions(table, self._metastore.partition_names(table, {})):
                location = plain_url(plain_location(partition.location))
                if self._own.find_instance(location) != location:
                    raise self._filled_by_others(f"its partition {table.render(partition.values)} at {location}")
            self._metastore.put_parameter(table, OWNER, self._owner)
        return table

    def _make(self, place: RegisteredPlace) -> Table:
        if self._record.columns is None:
            raise self._no_schema()
        keys = tuple((part.partition("=")[0], "string") for part in self._registration.template.text.split("/"))
        named = {key.lower() for key, _ in keys}
        columns = [
            (name, _hive_type(kind)) for name, kind in parse_columns(self._record.columns) if name.lower() not in named
        ]
        form, kind = _format_of(self._record), self._record.format
        if form is None:
            header = " with a header line, a row for Spark" if kind is FeedFormat.CSV else ""
            reason = f"there is no table {self._registration.name}, and none is made for {kind.value}{header}"
            raise self._refused(reason, "Make the table, with the SerDe of these files, or write format: parquet.")
        described = self._registration.table
        if self._metastore.find_location(described.database) is None:
            raise self._no_database()
        self._metastore.make_table(
            described.database,
            described.name,
            location=f"{place.location.removesuffix(place.path)}{self._record.template.base.strip('/')}",
            columns=columns,
            keys=keys,
            form=form,
            parameters={OWNER: self._owner},
        )
        made = self._find_table()
        if made is None:
            raise self._refused(f"{self._registration.name} was made and is not there", "Look at the metastore.")
        return made


def _hive_type(kind: str) -> str:
    """Return the type of a column in Hive's words.

    >>> [_hive_type(kind) for kind in ("long COMMENT 'id'", "array<struct<at: timestamp_ntz, n: integer>>")]
    ['bigint', 'array<struct<at:timestamp,n:int>>']
    """
    name, inside = parse_nested(kind)
    kinds = [(key, _hive_type(each)) for key, each in inside]
    match name:
        case "struct":
            return f"struct<{','.join(f'{key}:{each}' for key, each in kinds)}>"
        case "array" | "map" if kinds:
            return f"{name}<{','.join(each for _, each in kinds)}>"
        case _:
            plain = name.lower().replace(" ", "")
            return _TYPES.get(plain, plain)


def _format_of(record: FeedRecord) -> TableFormat | None:
    """Return how Hive reads the files of a feed; None if not every reader of its tables would."""
    options = {name.lower(): text for name, text in record.options}
    match record.format:
        case FeedFormat.PARQUET:
            return TableFormat.parquet()
        case FeedFormat.ORC:
            return TableFormat.orc()
        case FeedFormat.TEXT:
            return TableFormat.text()
        case FeedFormat.CSV:
            has_header = options.get("header", "true").lower() == "true"  # which Spark would read as a row
            return None if has_header else TableFormat.text(options.get("sep") or options.get("delimiter") or ",")
        case _:
            return None
