"""Read the first rows of a data file without Spark: enough to show what it is like."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, TypeAlias

Row: TypeAlias = dict[str, object]

_CODECS = (".bz2", ".snappy", ".zst", ".zstd", ".lz4", ".deflate", ".xz")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """What is read of a file: at most `rows` and `width` columns. `options` are Spark's, `columns` the known names."""

    rows: int
    width: int
    options: Mapping[str, str]
    columns: Sequence[str] = ()

    def get(self, *names: str, default: str) -> str:
        """Return a reader's option by any of its names, as Spark finds it."""
        given = {name.lower(): value for name, value in self.options.items()}
        return next((given[name] for name in names if name in given), default)


def read_head(name: str, data_format: str, file: IO[bytes], head: HeadOptions) -> list[Row] | None:
    """Return the first rows of a file, by column, and close it; None for a format or codec that is not read here.

    Raises:
        ValueError: the content is not in the format.
        OSError: the file is damaged, or cannot be read.
    """
    if data_format == "parquet":
        return _read_parquet(file, head)
    if data_format == "orc":
        return _read_orc(file, head)
    if data_format not in _LINES or name.endswith(_CODECS):
        return None
    content = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    try:
        with io.TextIOWrapper(content, encoding="utf-8", errors="replace", newline="") as text:
            return list(islice(_LINES[data_format](text, head), head.rows))
    except (EOFError, csv.Error) as exc:
        raise ValueError(str(exc)) from exc


def _read_csv(text: IO[str], head: HeadOptions) -> Iterator[Row]:
    separator = head.get("sep", "delimiter", default=",")
    if len(separator) != 1:
        return
    lines = csv.reader(text, delimiter=separator, quotechar=head.get("quote", default='"')[:1] or None, escapechar="\\")
    names = list(head.columns)
    if head.get("header", default="true").lower() == "true":
        names = next(lines, names)
    for line in lines:
        known = names or [f"_c{number}" for number in range(len(line))]
        yield dict(islice(zip(known, line, strict=False), head.width))


def _read_json(text: IO[str], head: HeadOptions) -> Iterator[Row]:
    for line in text:
        found = json.loads(line)
        if not isinstance(found, dict):
            raise ValueError("a line is not a JSON object")
        yield dict(islice(found.items(), head.width))


def _read_text(text: IO[str], head: HeadOptions) -> Iterator[Row]:  # noqa: ARG001 - as the others
    for line in text:
        yield {"value": line.rstrip("\r\n")}


_LINES: Mapping[str, Callable[[IO[str], HeadOptions], Iterator[Row]]] = {
    "csv": _read_csv,
    "json": _read_json,
    "text": _read_text,
}


def _read_parquet(file: IO[bytes], head: HeadOptions) -> list[Row]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        opened = ParquetFile(file)
        names = opened.schema_arrow.names[: head.width]
        batch = next(opened.iter_batches(batch_size=head.rows, columns=names), None)
        return [] if batch is None else batch.to_pylist()
    except ArrowException as exc:
        raise ValueError(str(exc)) from exc


def _read_orc(file: IO[bytes], head: HeadOptions) -> list[Row]:
    from pyarrow import ArrowException
    from pyarrow.orc import ORCFile

    try:
        opened = ORCFile(file)
        if opened.nstripes == 0:
            return []
        rows: list[Row] = opened.read_stripe(0, columns=opened.schema.names[: head.width]).to_pylist()[: head.rows]
    except ArrowException as exc:
        raise ValueError(str(exc)) from exc
    return rows
