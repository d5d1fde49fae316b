"""Add totals of what has ended, and count what there is."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_COUNTED = """
SELECT 'ATTEMPTS', process, cluster, status, count(*), sum({spent})
FROM fa_attempts WHERE ended_at IS NOT NULL GROUP BY process, cluster, status
UNION ALL
SELECT 'STARTS', process, cluster, coalesce(cause, ''), count(*), 0
FROM fa_attempts GROUP BY process, cluster, coalesce(cause, '')
UNION ALL
SELECT 'START_DELAY', process, cluster, '', count(*), sum({start_delay})
FROM fa_attempts WHERE attempt = 1 AND coalesce(cause, '') <> 'REBUILT' GROUP BY process, cluster
UNION ALL
SELECT 'ENDS', process, cluster, status, count(*), 0
FROM fa_process_instances WHERE status IN ('SUCCEEDED', 'FAILED', 'KILLED', 'TIMEDOUT', 'SKIPPED')
GROUP BY process, cluster, status
UNION ALL
SELECT 'EVENTS', feed, cluster, kind, count(*), sum(coalesce(bytes, 0))
FROM fa_feed_events GROUP BY feed, cluster, kind
UNION ALL
SELECT 'ARRIVAL_DELAY', feed, cluster, '', count(*), sum({arrival_delay})
FROM fa_feed_events WHERE kind = 'ARRIVED' GROUP BY feed, cluster
UNION ALL
SELECT 'COPIED', feed, cluster, {source}, count(*), sum(coalesce({copied}, 0))
FROM fa_feed_events WHERE kind = 'REPLICATED' AND {source} <> '' GROUP BY feed, cluster, {source}
UNION ALL
SELECT 'COPYING', feed, cluster, {source}, count(*), sum(coalesce({seconds}, 0))
FROM fa_feed_events WHERE kind = 'REPLICATED' AND {source} <> '' GROUP BY feed, cluster, {source}
UNION ALL
SELECT 'SWEEPS', '', cluster, state, count(*), 0
FROM fa_sweeps WHERE state IN ('DONE', 'UNDONE', 'PURGED', 'CANCELLED', 'SUPERSEDED') GROUP BY cluster, state
UNION ALL
SELECT CASE kind WHEN 'feed' THEN 'FEED_MISSES' ELSE 'PROCESS_MISSES' END, name, cluster, level, count(*), 0
FROM fa_sla GROUP BY kind, name, cluster, level
"""
_SQLITE = {
    "spent": "max(ended_at - started_at, 0)",
    "start_delay": "max(started_at - nominal_time, 0)",
    "arrival_delay": "max(recorded_at - nominal_time, 0)",
    "source": (
        "substr(json_extract(payload, '$.payload.process'), 1 + nullif(instr("
        "json_extract(payload, '$.payload.process'), '@'), 0))"
    ),
    "copied": "json_extract(payload, '$.payload.copy.copied_bytes')",
    "seconds": "CAST(json_extract(payload, '$.payload.copy.copy_seconds') * 1000000 AS INTEGER)",
}
_POSTGRESQL = {
    "spent": "greatest(ended_at - started_at, 0)",
    "start_delay": "greatest(started_at - nominal_time, 0)",
    "arrival_delay": "greatest(recorded_at - nominal_time, 0)",
    "source": "split_part(payload::jsonb #>> '{payload,process}', '@', 2)",
    "copied": "(payload::jsonb #>> '{payload,copy,copied_bytes}')::bigint",
    "seconds": "((payload::jsonb #>> '{payload,copy,copy_seconds}')::numeric * 1000000)::bigint",
}


def upgrade() -> None:
    op.create_table(
        "fa_totals",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("occurrences", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "entity", "cluster", "label", name="fa_totals_pk"),
        sqlite_with_rowid=False,
    )
    parts = _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL
    counted = _COUNTED.format(**parts)
    op.get_bind().exec_driver_sql(
        f"INSERT INTO fa_totals (kind, entity, cluster, label, occurrences, amount) {counted}"
    )


def downgrade() -> None:
    op.drop_table("fa_totals")
