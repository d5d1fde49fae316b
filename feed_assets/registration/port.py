"""The port of tables in which instances at locations are partitions, and the places of a feed's instances."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from feed_assets.plan.records import FeedRecord, RegistrationRecord
from feed_assets.storage.errors import TableRefusedError
from feed_assets.storage.iceberg.catalogs import ALIKE
from feed_assets.storage.port import InstanceStore

OWNER = "feed-assets.feed"
"""The parameter of a table that names the feed that fills it."""


class Registered(StrEnum):
    """What a table has of an instance: nothing, nothing as there are no files, its files, other files of the feed, or
    what is not the feed's.
    """

    MISSING = "missing"
    EMPTY = "empty"
    CURRENT = "current"
    OTHER = "other files"
    FOREIGN = "foreign"

    @property
    def is_own(self) -> bool:
        """Whether it has files of the feed."""
        return self in (Registered.CURRENT, Registered.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPlace:
    """An instance for a table: the path of its `partition`, `ds=2013-11-03`, and the directory of its files."""

    nominal_time: datetime
    partition: str
    store: InstanceStore
    path: str
    flag: str | None

    @property
    def url(self) -> str:
        """The directory, see `plain_url`."""
        return plain_url(self.store.url(self.path))

    @property
    def location(self) -> str:
        """The directory as Spark and Hive open it."""
        return self.store.spark_url(self.path) or self.store.url(self.path)


def plain_url(url: str) -> str:
    """Return a URL with the common one of the schemes of its storage.

    >>> plain_url("s3a://bucket/clicks"), plain_url("file:///data")
    ('s3://bucket/clicks', 'file:///data')
    """
    scheme, found, rest = url.partition("://")
    return f"{ALIKE.get(scheme, scheme)}{found}{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlaces:
    """Where a feed has, or had, its instances: the feed at each of its places, with the URL of the store's root."""

    places: tuple[tuple[str, FeedRecord], ...]

    def find_instance(self, url: str) -> str | None:
        """Return the directory of the instance in which a file or directory is; None if it is in none of the feed."""
        found = self.find(url)
        return None if found is None else found[0]

    def find(self, url: str) -> tuple[str, datetime] | None:
        """Return the same, and the time that its path names."""
        url = plain_url(url)
        for root, record in self.places:
            base = f"{plain_url(root).rstrip('/')}/"
            parts = url.removeprefix(base).split("/") if url.startswith(base) else []
            depth = len(record.path(record.sequence.start).split("/"))
            path = "/".join(parts[:depth])
            named = f"/{path}" if record.template.text.startswith("/") else path
            time = record.template.parse(named) if len(parts) >= depth else None
            if time is not None:
                return f"{base}{path}", time
        return None


class CatalogTable(ABC):
    """One table of a catalog, as a feed on files fills it. Nothing but what points into the feed's own places is
    changed. Every method raises `StorageError` if the catalog refuses, `StorageAwayError` if it does not answer.
    """

    def __init__(self, record: FeedRecord, registration: RegistrationRecord, own: OwnPlaces) -> None:
        self._record = record
        self._registration = registration
        self._own = own

    @abstractmethod
    def find(self, places: Sequence[RegisteredPlace]) -> Mapping[datetime, Registered]:
        """Return what the table has of some instances; nothing if there is no table."""

    @abstractmethod
    def put(self, places: Sequence[RegisteredPlace]) -> Mapping[datetime, str]:
        """Let instances be partitions, as they are now; return why some cannot. A table that is not there is made from
        the feed's schema. A repeat changes nothing.

        Raises:
            TableRefusedError: the table cannot have any of them, such as one that others fill.
        """

    @abstractmethod
    def drop(self, places: Sequence[RegisteredPlace]) -> None:
        """Let instances be partitions no longer. No file is touched."""

    @abstractmethod
    def find_others(
        self, places: Sequence[RegisteredPlace], first: datetime, last: datetime, *, drop: bool = False
    ) -> Mapping[str, datetime]:
        """Return what the table has in the feed's own places but for some instances, between two times, by partition or
        directory. With `drop` it has them no longer.
        """

    @property
    def _owner(self) -> str:
        return f"{self._record.feed}@{self._record.cluster}"

    def _refused(self, reason: str, next_step: str) -> TableRefusedError:
        url = self._registration.store.url
        return TableRefusedError(store=url, path="", reason=f"no instance is registered: {reason}", next_step=next_step)

    def _no_schema(self) -> TableRefusedError:
        reason = f"there is no table {self._registration.name}, and the feed has no schema to make it from"
        return self._refused(reason, "Write schema at the feed, or make the table.")

    def _no_database(self) -> TableRefusedError:
        name = self._registration.table.database
        return self._refused(f"there is no database {name!r} in the catalog", "Create it there.")

    def _filled_by_others(self, what: str) -> TableRefusedError:
        table, feed = self._registration.name, self._record.feed
        reason = f"others fill the table {table}: {what} is not in a place of feed {feed!r}"
        return self._refused(reason, "Write another catalog_table, which only this feed fills.")
