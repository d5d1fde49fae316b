"""Store the items of sweeps, and what became of them, as rows instead of compressed JSON in their chunks.

The digests of chunks and sweeps are computed anew, except where a chunk or a sweep differs from its plan: it is refused
as before.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

_VERSION = 1
_chunks = sa.table(
    "fa_sweep_chunks",
    *(sa.column(name) for name in ("sweep_id", "number", "feed", "kind", "first_time", "last_time", "count", "digest")),
    sa.column("content", sa.LargeBinary()),
    sa.column("results", sa.LargeBinary()),
)
_sweeps = sa.table("fa_sweeps", *(sa.column(name) for name in ("sweep_id", "cluster", "digest")))
_TEXTS = ("path", "rule", "reason", "fingerprint", "outcome_reason")
_PLANNED = ("path", "nominal_time", "bytes", "files", "rule", "reason", "fingerprint")
_RESULT = ("outcome", "outcome_reason", "outcome_bytes", "outcome_files")
_items = sa.table(
    "fa_sweep_items", *(sa.column(name) for name in ("sweep_id", "chunk", "position", *_PLANNED, *_RESULT))
)
_render = json.JSONEncoder(separators=(",", ":")).encode

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_sweep_items",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("chunk", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger()),
        sa.Column("files", sa.BigInteger()),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("outcome_reason", sa.Text()),
        sa.Column("outcome_bytes", sa.BigInteger()),
        sa.Column("outcome_files", sa.BigInteger()),
        sa.PrimaryKeyConstraint("sweep_id", "chunk", "position", name="fa_sweep_items_pk"),
        sqlite_with_rowid=False,
    )
    _convert(_to_rows)
    op.drop_column("fa_sweep_chunks", "results")
    op.drop_column("fa_sweep_chunks", "content")


def downgrade() -> None:
    op.add_column("fa_sweep_chunks", sa.Column("results", sa.LargeBinary(), nullable=True))
    op.add_column(
        "fa_sweep_chunks", sa.Column("content", sa.LargeBinary(), nullable=False, server_default=sa.text("''"))
    )
    op.execute(sa.update(_chunks).values(content=b""))  # bytes also on SQLite, whose default is a text
    _convert(_to_content)
    op.drop_table("fa_sweep_items")


def _convert(convert: Callable[[sa.Connection, Any], str | None]) -> None:
    """Convert each chunk, and compute the digests of intact chunks and sweeps anew."""
    connection = op.get_bind()
    for sweep in connection.execute(sa.select(_sweeps)).all():
        is_of_sweep = _chunks.c.sweep_id == sweep.sweep_id
        is_intact = sweep.digest == _digest_sweep(connection, sweep)
        for number in connection.scalars(sa.select(_chunks.c.number).where(is_of_sweep)).all():
            is_it = (is_of_sweep, _chunks.c.number == number)
            chunk = connection.execute(sa.select(_chunks).where(*is_it)).one()
            digest = convert(connection, chunk)
            if digest is not None:
                connection.execute(sa.update(_chunks).where(*is_it).values(digest=digest))
        if is_intact:
            digest = _digest_sweep(connection, sweep)
            connection.execute(sa.update(_sweeps).where(_sweeps.c.sweep_id == sweep.sweep_id).values(digest=digest))


def _digest_sweep(connection: sa.Connection, sweep: Any) -> str:
    columns = [_chunks.c[name] for name in ("number", "feed", "kind", "first_time", "last_time", "count", "digest")]
    heads = connection.execute(
        sa.select(*columns).where(_chunks.c.sweep_id == sweep.sweep_id).order_by(_chunks.c.number)
    )
    return _digest(_render({"cluster": sweep.cluster, "chunks": [list(head) for head in heads]}).encode())


def _to_rows(connection: sa.Connection, chunk: Any) -> str | None:
    """Write the rows of a chunk, and return the digest of the planned ones; None if the chunk is damaged."""
    try:
        raw = zlib.decompress(chunk.content)
        raw_results = None if chunk.results is None else zlib.decompress(chunk.results)
    except zlib.error:
        return None
    if _digest(raw) != chunk.digest:
        return None
    content = json.loads(raw)
    planned = list(
        zip(
            content["paths"],
            content["times"],
            content["bytes"],
            content["files"],
            _unfold(content["rules"]),
            _unfold(content["reasons"]),
            content.get("signs") or [""] * len(content["paths"]),
            strict=True,
        )
    )
    results: Sequence[tuple[Any, ...]] = [(None,) * len(_RESULT)] * len(planned)
    if raw_results is not None:
        found = json.loads(raw_results)
        folded = _unfold(found["outcomes"]), _unfold(found["reasons"])
        results = list(zip(*folded, found["bytes"], found["files"], strict=True))
    rows = []
    for position, (item, result) in enumerate(zip(planned, results, strict=True)):
        row = dict(zip((*_PLANNED, *_RESULT), (*item, *result), strict=True))
        row |= {name: _escape(row[name]) for name in _TEXTS}
        rows.append({"sweep_id": chunk.sweep_id, "chunk": chunk.number, "position": position, **row})
    connection.execute(sa.insert(_items), rows)
    return _digest(_render(planned).encode())


def _to_content(connection: sa.Connection, chunk: Any) -> str | None:
    """Write the content of a chunk from its rows, and return its digest; None if the chunk is damaged."""
    is_of_chunk = (_items.c.sweep_id == chunk.sweep_id, _items.c.chunk == chunk.number)
    rows = connection.execute(sa.select(_items).where(*is_of_chunk).order_by(_items.c.position)).mappings().all()
    items = [{name: _unescape(row[name]) if name in _TEXTS else row[name] for name in row} for row in rows]
    if _digest(_render([[item[name] for name in _PLANNED] for item in items]).encode()) != chunk.digest:
        return None
    column = {name: [item[name] for item in items] for name in (*_PLANNED, *_RESULT)}
    content: dict[str, object] = {
        "version": _VERSION,
        "paths": column["path"],
        "times": column["nominal_time"],
        "bytes": column["bytes"],
        "files": column["files"],
        "rules": _fold(column["rule"]),
        "reasons": _fold(column["reason"]),
    }
    if any(column["fingerprint"]):
        content["signs"] = column["fingerprint"]
    results = {
        "version": _VERSION,
        "outcomes": _fold(column["outcome"]),
        "reasons": _fold(column["outcome_reason"]),
        "bytes": column["outcome_bytes"],
        "files": column["outcome_files"],
    }
    raw = _render(content).encode()
    connection.execute(
        sa.update(_chunks)
        .where(_chunks.c.sweep_id == chunk.sweep_id, _chunks.c.number == chunk.number)
        .values(
            content=zlib.compress(raw),
            results=zlib.compress(_render(results).encode()) if any(column["outcome"]) else None,
        )
    )
    return _digest(raw)


def _escape(text: str | None) -> str | None:
    return None if text is None else json.dumps(text)[1:-1]


def _unescape(text: str | None) -> str | None:
    return None if text is None else json.loads(f'"{text}"')


def _fold(values: Sequence[str | None]) -> dict[str, object]:
    places: dict[str | None, int] = {}
    at = [places.setdefault(value, len(places)) for value in values]
    return {"values": list(places), "at": at}


def _unfold(folded: dict[str, Any]) -> Iterator[Any]:
    return (folded["values"][place] for place in folded["at"])


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
