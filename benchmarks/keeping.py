"""(o) What the state keeps of two years of 100 hourly processes with one input and one output, on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import text

from benchmarks.lived_state import LivedSize, fill_lived_state
from benchmarks.probes import say
from benchmarks.report import Figure, Part, Scale
from benchmarks.searching_probe import open_state
from feed_assets.sql.database import Database

_SIZES = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND starts_with(relname, 'fa_')"
MEGABYTE = 1_000_000


def measure_keeping(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure the size of each table."""
    size = LivedSize(pairs=scale.choose(100, 10, 1), periods=scale.choose(730, 730, 368))
    with open_state(folder / "state", "postgresql") as database:
        say(f"keeping: {size.periods} days of {size.pairs} hourly processes")
        _run(database, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        fill_lived_state(database, folder, size)
        _run(database, "VACUUM ANALYZE")
        yield from _sizes(database)


def _sizes(database: Database) -> Iterator[Figure]:
    with database.read() as connection:
        sizes: dict[str, int] = {row.relname: row[1] for row in connection.execute(text(_SIZES))}
    total = sum(sizes.values())
    for name, size in sorted(sizes.items(), key=lambda each: -each[1]):
        if size > total / 100:
            yield Figure(part=Part.KEEPING, name=f"size of {name}", ours=size / MEGABYTE, unit=" MB")
    yield Figure(part=Part.KEEPING, name="size of all tables", ours=total / MEGABYTE, unit=" MB")


def _run(database: Database, *statements: str) -> None:
    with database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(text(statement))
