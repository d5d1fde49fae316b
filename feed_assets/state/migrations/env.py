"""Run the migrations in the connection and transaction that `Database.migrate` provides."""

from alembic import context

from feed_assets.state import (
    delivery_schema,
    inbox_schema,
    metadata_schema,
    retention_schema,
    sla_schema,
    step_schema,
    totals_schema,
    trigger_schema,
)
from feed_assets.state.schema import TABLE_PREFIX, VERSION_TABLE

_SCHEMAS = (
    delivery_schema.deliveries,
    inbox_schema.taken_files,
    metadata_schema.entity_metadata,
    retention_schema.sweeps,
    step_schema.steps,
    sla_schema.sla_misses,
    totals_schema.totals,
    trigger_schema.batches,
)


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or (name or "").startswith(TABLE_PREFIX)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=_SCHEMAS[0].metadata,
    version_table=VERSION_TABLE,
    include_name=_is_ours,
)
with context.begin_transaction():
    context.run_migrations()
