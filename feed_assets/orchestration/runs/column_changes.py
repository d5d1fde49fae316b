"""Compare the columns that a run writes with those written before: a check that warns when they are others."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import dagster as dg

from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.orchestration.graph.metadata import COLUMN_SCHEMA
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.plan.rendering import render_first

COLUMNS_CHECK = "column_schema_change"
"""The name that Dagster gives to this check."""

_KNOWS_COLUMNS = frozenset({WorkflowEngine.PYTHON.value, WorkflowEngine.SQL.value, WorkflowEngine.STEPS.value})
_LOOKED_THROUGH = 10
"""The newest materializations of an asset that are searched for columns; arrivals and restored instances have none."""


def build_column_check(asset: dg.AssetKey, feed: FeedRecord, process: ProcessRecord) -> list[dg.AssetCheckSpec]:
    """Return the check on the asset of a feed whose columns its process or its table decides.

    A declared schema needs none: nothing else is written. Each check takes time whenever a run loads the location.
    """
    is_declared = feed.columns is not None and feed.table is None
    if is_declared or process.engine not in _KNOWS_COLUMNS:
        return []
    description = "Warns when an instance has other columns than the instance written before it."
    return [dg.AssetCheckSpec(COLUMNS_CHECK, asset=asset, description=description)]


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """The columns of the instances that one run writes, and their differences from those written before."""

    instance: dg.DagsterInstance
    _last: dict[dg.AssetKey, dict[str, str] | None] = field(default_factory=dict)
    _found: dict[dg.AssetKey, list[str]] = field(default_factory=dict)

    def note(self, asset: dg.AssetKey, partition: str, columns: Iterable[tuple[str, str]]) -> None:
        """Compare the columns of an instance, before it is reported to Dagster."""
        now = dict(columns)
        before = self._last[asset] if asset in self._last else find_last_columns(self.instance, asset)
        self._last[asset] = now
        found = self._found.setdefault(asset, [])
        if before is not None:
            found += [f"{partition}: {difference}" for difference in describe_changes(before, now)]

    def results(self, checks: Iterable[dg.AssetCheckKey]) -> Iterator[dg.AssetCheckResult]:
        """Yield the results of the checks of this run that compare columns."""
        for check in checks:
            if check.name != COLUMNS_CHECK:
                continue
            found = self._found.get(check.asset_key)
            known = "No instance with known columns was written." if found is None else "The columns are the same."
            yield dg.AssetCheckResult(
                asset_key=check.asset_key,
                check_name=check.name,
                passed=not found,
                severity=dg.AssetCheckSeverity.WARN,
                description=render_first(found) if found else known,
            )


def find_last_columns(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dict[str, str] | None:
    """Return the columns of the instance of an asset that was written last, by name; None if none is known."""
    for record in instance.fetch_materializations(asset, limit=_LOOKED_THROUGH).records:
        told = record.asset_materialization
        schema = told.metadata.get(COLUMN_SCHEMA) if told is not None else None
        if schema is not None and isinstance(schema.value, dg.TableSchema):
            return {column.name: column.type for column in schema.value.columns}
    return None


def describe_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the differences between columns, each as a phrase.

    >>> describe_changes({"n": "int", "old": "string"}, {"n": "bigint", "new": "date"})
    ['new (date) was added', 'old (string) is gone', 'n was int and is bigint']
    """
    added = [f"{name} ({kind}) was added" for name, kind in now.items() if name not in before]
    gone = [f"{name} ({kind}) is gone" for name, kind in before.items() if name not in now]
    others = [
        f"{name} was {before[name]} and is {kind}" for name, kind in now.items() if before.get(name, kind) != kind
    ]
    return [*added, *gone, *others]
