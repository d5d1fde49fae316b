"""What imports of feeds compile to."""

from dataclasses import dataclass
from typing import ClassVar

from feed_assets.entities.datasource import IncrementBy
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
class ImportRecord:
    """What an import reads: a table of a datasource, or the rows of a `query`, as far as `where` holds.

    `columns` are those that are read, or are left out if they are `excluded`; none are all. It is read in `parts` by
    the values of `split_by`, at one moment if it is `consistent`. Nulls of texts become `null_text`. Without an
    `increment` the whole table is read: for the newest due instance only, unless with `history`.
    """

    engine: ClassVar[str] = "import"
    datasource: str
    table: str | None
    query: str | None = None
    where: str | None = None
    columns: tuple[str, ...] = ()
    excluded: bool = False
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
