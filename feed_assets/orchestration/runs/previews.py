"""Show the first rows of an instance with its materialization, where the settings or the feed say so.

They are read from the published files, without Spark. Nothing is computed twice.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO

import dagster as dg

from feed_assets.engines.data.file_heads import HeadOptions, Row, read_head
from feed_assets.instances.attempts.attempts import Published
from feed_assets.masking import mask
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.port import InstanceStore

ROWS = 10
COLUMNS = 20
CELL = 60
"""The most characters of a cell."""

_FILES = 5
_READ_WHOLE = 8 << 20  # a file on an object store is fetched to this size


def wants_preview(record: FeedRecord, by_default: bool) -> bool:
    """Return whether rows of a feed may be shown; its own word counts before that of the settings."""
    return by_default if record.preview is None else record.preview


def build_preview(store: InstanceStore, done: Published) -> dg.TableMetadataValue | None:
    """Return the first rows of a published instance; None if they cannot be read here, or if there are none.

    Raises:
        StorageError: the instance cannot be read.
        ValueError: a file is not in the feed's format.
        OSError: a local file cannot be read.
    """
    record = done.record
    if record.table is not None:
        return None
    known = [name for name, _ in done.columns or ()]
    rows: list[Row] = []
    files = [file for file in store.copying().survey(record.path(done.nominal_time), None, 0).files if file.size]
    data = [file for file in files if not file.path.rpartition("/")[2].startswith(("_", "."))]
    for file in data[:_FILES]:
        head = HeadOptions(rows=ROWS - len(rows), width=COLUMNS, options=dict(record.options), columns=known)
        with _opened(store, record.path(done.nominal_time), file.path, file.size) as stream:
            rows += (read_head(file.path, record.format.value, stream, head) if stream is not None else None) or []
        if len(rows) >= ROWS:
            break
    return _render(rows, dict(done.columns or ())) if rows else None


@contextmanager
def _opened(store: InstanceStore, path: str, file: str, size: int) -> Iterator[IO[bytes] | None]:
    """Open a file of an instance: in place on this machine, else fetched if it is small; None if it is not."""
    local = store.local_path(path)
    if local is not None:
        with (local / file).open("rb") as stream:
            yield stream
    elif size > _READ_WHOLE:
        yield None
    else:
        with store.copying().reading(path) as reading:
            yield io.BytesIO(b"".join(reading.chunks(file)))


def _render(rows: list[Row], types: dict[str, str]) -> dg.TableMetadataValue:
    names = list(dict.fromkeys(chain.from_iterable(rows)))[:COLUMNS]
    schema = dg.TableSchema(columns=[dg.TableColumn(name=name, type=types.get(name, "string")) for name in names])
    return dg.MetadataValue.table(
        [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in rows], schema
    )


def _cell(value: object) -> str:
    text = "null" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else mask(str(value))
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"
