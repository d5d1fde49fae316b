"""What imports and exports of feeds compile to."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from feed_assets.entities.datasource import IncrementBy, LoadType
from feed_assets.timing.sequence import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementRecord:
    """Which rows of a table are new: those whose `column` lies in the period of the instance, or is above the mark of
    the instance before. What lies up to `overlap` below that mark is read again, and rows with a `key` that an earlier
    instance has with the same value of the column are left out.
    """

    column: str
    by: IncrementBy
    overlap: Frequency | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _TransferRecord:
    """What a feed and a table of a datasource share. `columns` are those that are read and written, or are left out if
    they are `excluded`; none are all.
    """

    datasource: str
    columns: tuple[str, ...] = ()
    excluded: bool = False

    def takes(self, column: str) -> bool:
        """Return whether a column is read and written, in any case of its name."""
        return not self.columns or (column.lower() in map(str.lower, self.columns)) is not self.excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRecord(_TransferRecord):
    """What an import reads: a table of a datasource, or the rows of a `query`, as far as `where` holds.

    It is read in `parts` by the values of `split_by`, at one moment if it is `consistent`. Nulls of texts become
    `null_text`. Without an `increment` the whole table is read: for the newest due instance only, unless with
    `history`.
    """

    engine: ClassVar[str] = "import"
    table: str | None
    query: str | None = None
    where: str | None = None
    parts: int = 1
    split_by: str | None = None
    fetch_size: int = 10_000
    null_text: str | None = None
    consistent: bool = True
    history: bool = False
    increment: IncrementRecord | None = None

    @property
    def name(self) -> str:
        """What is read, for people: `table public.orders of shop`."""
        what = f"table {self.table}" if self.table is not None else "a query"
        return f"{what} of {self.datasource}"

    @property
    def text(self) -> str:
        """What is done, for people."""
        by = f", by {self.increment.by} of {self.increment.column}" if self.increment is not None else ""
        return f"from {self.name}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRecord(_TransferRecord):
    """The table of a datasource that an instance of a feed is written to, and how.

    `key` are the columns by which rows are found in the table. With `instance_column` the rows of an instance have its
    nominal time there; instances are `pace` apart, or days and months if it is None. A text that is `null_string` is
    null in a column of texts, one that is `null_other` in any other. At most `connections` write at once.
    """

    engine: ClassVar[str] = "export"
    table: str
    load: LoadType
    key: tuple[str, ...] = ()
    instance_column: str | None = None
    null_string: str | None = None
    null_other: str | None = None
    connections: int = 4
    pace: timedelta | None = timedelta(0)

    @property
    def text(self) -> str:
        """What is done, for people."""
        return f"to table {self.table} of {self.datasource}, {self.load}"
