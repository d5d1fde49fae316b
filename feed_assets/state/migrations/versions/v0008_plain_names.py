"""Rename the tables and columns of arrival polls, watermarks, the retention schedule and overdue notices.

Causes of process instances and attempts get columns of their own, filled from the existing sentences.
"""

import sqlalchemy as sa
from alembic import op

_HAS_NEXT_TIME = sa.text("next_time IS NOT NULL")

# For each table: its old and new name, the columns of its index, and its renamed columns.
_TABLES = (
    (
        ("fa_looks", "fa_arrival_polls"),
        ["cluster", "next_poll_at", "feed", "nominal_time"],
        (("looked_at", "polled_at"), ("next_look_at", "next_poll_at")),
    ),
    (("fa_frontiers", "fa_watermarks"), ["kind", "due_at"], ()),
    (("fa_sweep_turns", "fa_retention_schedule"), ["cluster", "next_at"], ()),
)
_NOTICE_COLUMNS = (("tell_at", "notice_at"), ("told", "notice_digest"))
_SENTENCES = {
    "INPUTS": "its inputs are there",
    "BY_HAND": "a run that was started by hand",
    "SUPERSEDED": "a newer instance has come into being, and the order is LAST_ONLY",
    "MISSED": "its time came while nobody looked, and catch_up is none",
    "OVERTAKEN": "its time and that of a newer instance came while nobody looked, and catch_up is latest",
    "TIMED_OUT": "its mandatory inputs did not all become available in time",
    "RUN_CANCELLED": "its run was cancelled",
    "RUN_LOST": "its run ended without recording a result",
    "UNDECLARED": "it is not declared any more",
}
# The first match counts; a sentence without a match stays as the detail, without a cause.
_PATTERNS = (
    ("%; all % retries have been made", "RETRIES_EXHAUSTED"),
    ("late data: %; not run again: %", "LATE_DATA_REFUSED"),
    ("late data: %", "LATE_DATA"),
    ("retry % after: %", "RETRY"),
    ("its worker died at attempt %", "WORKERS_LOST"),
    ("the run was interrupted", "INTERRUPTED"),
    ("its process was deleted", "REMOVED"),
    ("its process was taken off the cluster", "REMOVED"),
    ("a repair by %", "REPAIR"),
    *((f"{done} by %", "COMMAND") for done in ("killed", "suspended", "resumed", "run again")),
)
_OLD_COUNT, _NEW_COUNT = '"keepers"', '"protected_by"'
_OLD_CURSORS, _NEW_CURSORS = "retention/turns/", "retention/schedule/"

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for (old, new), indexed, columns in _TABLES:
        _rename_table(old, new, columns, indexed)
    _rename_notice_columns(_NOTICE_COLUMNS, "fa_process_instances_to_tell", "fa_process_instances_notices")
    _rename_cursors(_OLD_CURSORS, _NEW_CURSORS)
    _rename_count(_OLD_COUNT, _NEW_COUNT)
    op.drop_index("fa_sweep_chunks_by_feed", "fa_sweep_chunks")
    op.execute("ALTER TABLE fa_releases RENAME COLUMN sign TO fingerprint")
    _part_causes("fa_process_instances", "reason", None)
    _part_causes("fa_attempts", "trigger", "")


def downgrade() -> None:
    _join_causes("fa_process_instances", "reason")
    _join_causes("fa_attempts", "trigger")
    op.execute("ALTER TABLE fa_releases RENAME COLUMN fingerprint TO sign")
    op.create_index("fa_sweep_chunks_by_feed", "fa_sweep_chunks", ["sweep_id", "feed", "first_time"])
    _rename_count(_NEW_COUNT, _OLD_COUNT)
    _rename_cursors(_NEW_CURSORS, _OLD_CURSORS)
    _rename_notice_columns(_reversed(_NOTICE_COLUMNS), "fa_process_instances_notices", "fa_process_instances_to_tell")
    for (old, new), indexed, columns in _TABLES:
        former = {now: before for before, now in columns}
        _rename_table(new, old, _reversed(columns), [former.get(name, name) for name in indexed])


def _rename_count(old: str, new: str) -> None:
    statement = sa.text("UPDATE fa_sweeps SET counts = REPLACE(counts, :old, :new)")
    op.execute(statement.bindparams(old=old, new=new))


def _rename_table(old: str, new: str, columns: tuple[tuple[str, str], ...], indexed: list[str]) -> None:
    op.drop_index(f"{old}_due", old)
    op.rename_table(old, new)
    for before, after in columns:
        op.execute(f"ALTER TABLE {new} RENAME COLUMN {before} TO {after}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {new} RENAME CONSTRAINT {old}_pk TO {new}_pk")
    where = _HAS_NEXT_TIME if "due_at" in indexed else None
    op.create_index(f"{new}_due", new, indexed, sqlite_where=where, postgresql_where=where)


def _rename_notice_columns(columns: tuple[tuple[str, str], ...], old: str, new: str) -> None:
    op.drop_index(old, "fa_process_instances")
    for before, after in columns:
        op.execute(f"ALTER TABLE fa_process_instances RENAME COLUMN {before} TO {after}")
    due = columns[0][1]
    where = sa.text(f"status IN ('FAILED', 'TIMEDOUT', 'WAITING') AND {due} IS NOT NULL")
    op.create_index(new, "fa_process_instances", ["cluster", due], sqlite_where=where, postgresql_where=where)


def _rename_cursors(old: str, new: str) -> None:
    op.execute(
        f"UPDATE fa_cursors SET name = '{new}' || substr(name, {len(old) + 1}) "
        f"WHERE substr(name, 1, {len(old)}) = '{old}'"
    )


def _part_causes(table: str, column: str, nothing: str | None) -> None:
    """Split a column of sentences into causes and details."""
    op.add_column(table, sa.Column("cause", sa.Text(), nullable=True))
    op.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO cause_detail")
    rows = _rows(table)
    detail = rows.c.cause_detail
    known = [(detail == sentence, cause) for cause, sentence in _SENTENCES.items()]
    known += [(detail.like(pattern), cause) for pattern, cause in _PATTERNS]
    if table == "fa_process_instances":
        # How an attempt ended does not tell what triggered it.
        known.append((rows.c.status == "FAILED", "FAILURE"))
    cause = sa.case(*known, else_=sa.null())
    op.execute(rows.update().where(detail.is_not(None), detail != "").values(cause=cause))
    op.execute(rows.update().where(rows.c.cause.in_(list(_SENTENCES))).values(cause_detail=nothing))


def _join_causes(table: str, column: str) -> None:
    rows = _rows(table)
    sentences = sa.case(_SENTENCES, value=rows.c.cause)
    has_none = sa.func.coalesce(rows.c.cause_detail, "") == ""
    op.execute(rows.update().where(rows.c.cause.in_(list(_SENTENCES)), has_none).values(cause_detail=sentences))
    op.execute(f"ALTER TABLE {table} RENAME COLUMN cause_detail TO {column}")
    op.drop_column(table, "cause")


def _rows(table: str) -> sa.TableClause:
    return sa.table(table, *(sa.column(name, sa.Text()) for name in ("status", "cause", "cause_detail")))


def _reversed(columns: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((new, old) for old, new in columns)
