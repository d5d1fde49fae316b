"""What imports and exports of feeds compile to."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from feed_assets.entities.datasource import ExportTarget, ImportSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRecord:
    """What an import reads, and how: in `parts` by the values of `split_by`. Nulls of texts become `null_text`."""

    engine: ClassVar[str] = "import"
    source: ImportSource
    parts: int = 1
    split_by: str | None = None
    fetch_size: int = 10_000
    null_text: str | None = None

    @property
    def datasource(self) -> str:
        """The name of the datasource that is read."""
        return self.source.name

    @property
    def name(self) -> str:
        """What is read, for people: `table public.orders of shop`."""
        what = f"table {self.source.table}" if self.source.table is not None else "a query"
        return f"{what} of {self.datasource}"

    @property
    def text(self) -> str:
        """What is done, for people."""
        extract = self.source.extract
        by = f", by {extract.increment} of {extract.delta_column}" if extract.increment is not None else ""
        return f"from {self.name}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRecord:
    """The table of a datasource that an instance of a feed is written to, and how.

    `key` are the columns by which rows are found in the table. Where a column of the table has the nominal time of the
    instance, instances are `pace` apart, or days and months if it is None. A text that is `null_string` is null in a
    column of texts, one that is `null_other` in any other. At most `connections` write at once.
    """

    engine: ClassVar[str] = "export"
    target: ExportTarget
    key: tuple[str, ...] = ()
    null_string: str | None = None
    null_other: str | None = None
    connections: int = 4
    pace: timedelta | None = timedelta(0)

    @property
    def datasource(self) -> str:
        """The name of the datasource that is written."""
        return self.target.name

    @property
    def text(self) -> str:
        """What is done, for people."""
        return f"to table {self.target.table} of {self.datasource}, {self.target.load.type}"
