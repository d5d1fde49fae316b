"""The edges between feeds and processes: what a process reads and writes, with the windows of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from feed_assets.entities.content.column_lineage import ColumnSource
from feed_assets.entities.maps import EMPTY
from feed_assets.timing.windows import Window

Key: TypeAlias = tuple[str, str]
"""(entity name, cluster name): the identity of a feed record or a process record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What has come and this process has not taken yet: the events that its next batch freezes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEdge:
    """Instances of a feed on `feed_cluster` that a process on `cluster` reads; the clusters differ for a replication.

    It takes a window of them, or what is pending. `at_least` instances of a window, and all but `missing_at_most`, must
    be there; None of both: all. `shifts` are the first and last instance that the window always contains, counted from
    the instance of the process's own nominal time; None if that varies or there is no such instance.
    """

    name: str
    feed: str
    feed_cluster: str
    process: str
    cluster: str
    takes: Window | Pending
    shifts: tuple[int, int] | None
    optional: bool
    partition: str | None
    is_late: bool
    at_least: int | None = None
    missing_at_most: int | None = None

    @property
    def window(self) -> Window | None:
        """The window; None if it takes what is pending."""
        return self.takes if isinstance(self.takes, Window) else None

    @property
    def is_data_driven(self) -> bool:
        """Whether what has come decides which instances it takes, and not the nominal time alone."""
        return self.window is None or self.window.is_data_driven

    @property
    def taken(self) -> str:
        """The instances that it takes, for people: `today(0,0) to now(0,0)`, `what is new`."""
        return "what is new" if self.window is None else f"{self.window.start} to {self.window.end}"

    @property
    def feed_key(self) -> Key:
        return (self.feed, self.feed_cluster)

    @property
    def process_key(self) -> Key:
        return (self.process, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEdge:
    """An instance of a feed that a process writes, both on one cluster: `window` is from one expression to itself.

    `shift` is the number of instances after that of the process's own nominal time; None if that varies. An `optional`
    one may be left out. A quarantine is written with the output `quarantine_of`, whose bad rows it takes; no work names
    it, and its instance has the time of theirs. `column_lineage` are the sources that are declared of its columns.
    """

    name: str
    feed: str
    process: str
    cluster: str
    window: Window
    shift: int | None
    optional: bool = False
    quarantine_of: str | None = None
    column_lineage: Mapping[str, tuple[ColumnSource, ...]] = EMPTY

    @property
    def feed_key(self) -> Key:
        return (self.feed, self.cluster)

    @property
    def process_key(self) -> Key:
        return (self.process, self.cluster)

    def to_quarantine(self, feed: str) -> Self:
        """Return the output that takes the bad rows of this one: the instance of `feed` of the same time."""
        return replace(self, name=f"{self.name}@quarantine", feed=feed, optional=True, quarantine_of=self.name)
