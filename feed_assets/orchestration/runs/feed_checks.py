"""The checks on the asset of a feed: `on_time` where it has an SLA (red for an error, yellow for a warning, green if no
instance is late), whether its replicas are behind, the quality of its rows, and whether a run writes other columns than
those before.

The first two have no partitions: Dagster accepts the result of a check of a partition without a run only once.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from feed_assets.entities.content.quality import OnFail, Quality
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.masking import masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.metadata import COLUMN_SCHEMA
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.plan.rendering import render_first

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from feed_assets.alerts.deadlines.alerts import FeedLateness
    from feed_assets.instances.attempts.verdicts import Verdict
    from feed_assets.instances.late.quality_checks import QualityCheck
    from feed_assets.instances.late.store import BehindCopies


def build_on_time_checks(runtime: Runtime, layout: AssetLayout, cluster: str) -> list[dg.AssetChecksDefinition]:
    """Return the op that makes the checks of all feeds with an SLA on a cluster; none without such feeds."""
    feeds = {layout.feed_asset(key)[0]: key[0] for key in feeds_on_time(layout, cluster)}
    description = "Fails while instances are late: an error after sla.high, a warning after sla.low."
    specs = [dg.AssetCheckSpec(names.ON_TIME_CHECK, asset=key, description=description) for key in feeds]

    def evaluate(connection: "Connection", wanted: Sequence[dg.AssetKey]) -> Iterator[dg.AssetCheckEvaluation]:
        from feed_assets.alerts.deadlines.alerts import FeedLateness, find_lateness

        found = find_lateness(connection, cluster, sorted(feeds[key] for key in wanted))
        for key in wanted:
            grid = layout.grids[feeds[key], cluster]
            yield build_evaluation(key, grid, found.get(feeds[key], FeedLateness()))

    return build_feed_checks(runtime, names.OfCluster.ON_TIME_OP.of(cluster), specs, evaluate)


def build_feed_checks(
    runtime: Runtime,
    op_name: str,
    specs: Sequence[dg.AssetCheckSpec],
    evaluate: "Callable[[Connection, Sequence[dg.AssetKey]], Iterable[dg.AssetCheckEvaluation]]",
) -> list[dg.AssetChecksDefinition]:
    """Return the op that makes checks of feeds from the record; none without checks."""
    if not specs:
        return []

    @dg.multi_asset_check(name=op_name, specs=specs, can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with masked_errors():
            wanted = [key.asset_key for key in context.selected_asset_check_keys]
            with runtime.database(context.instance).read() as connection:
                found = list(evaluate(connection, wanted))
            for each in found:
                yield to_result(each)

    return [check]


def to_result(found: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """Return what the op of a check yields for what ticks report."""
    return dg.AssetCheckResult(
        asset_key=found.asset_key,
        check_name=found.check_name,
        passed=found.passed,
        severity=found.severity,
        description=found.description,
        metadata=found.metadata,
    )


def feeds_on_time(layout: AssetLayout, cluster: str) -> list[tuple[str, str]]:
    """Return the feeds of a cluster that have the check."""
    return [key for key, record in layout.plan.feeds.items() if key[1] == cluster and record.sla is not None]


def build_evaluation(asset: dg.AssetKey, grid: Grid, lateness: "FeedLateness") -> dg.AssetCheckEvaluation:
    """Return what Dagster is told about a feed; the first late partitions are named."""
    from feed_assets.alerts.deadlines.alerts import NAMED
    from feed_assets.log.messages.levels import SlaLevel

    late = lateness.late
    metadata: Mapping[str, dg.MetadataValue] = {}
    if late:
        lines = [
            f"- {grid.key(time) if grid.sequence.contains(time) else time.isoformat()}: {level.value}"
            for time, level in late[:NAMED]
        ]
        lines += [f"- and {len(late) - NAMED:,} more"] if len(late) > NAMED else []
        metadata = {
            names.META_SLA_LATE: dg.MetadataValue.int(len(late)),
            names.META_SLA: dg.MetadataValue.md("\n".join(lines)),
        }
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=names.ON_TIME_CHECK,
        passed=not late,
        severity=dg.AssetCheckSeverity.WARN if lateness.level is SlaLevel.LOW else dg.AssetCheckSeverity.ERROR,
        description=lateness.sentence,
        metadata=metadata,
    )


def build_replica_checks(runtime: Runtime, layout: AssetLayout, cluster: str) -> list[dg.AssetChecksDefinition]:
    """Return the op that makes the checks of all replicas on a cluster; none without replicas."""
    description = "Fails while instances are behind: their source has other content than the replica."
    assets = _find_flows(layout, cluster)
    specs = [dg.AssetCheckSpec(names.IN_SYNC_CHECK, asset=asset, description=description) for asset in assets]

    def evaluate(connection: "Connection", wanted: Collection[dg.AssetKey]) -> list[dg.AssetCheckEvaluation]:
        from feed_assets.instances.late.store import LateChecks

        behind = LateChecks(connection).behind(runtime.clock.now())
        return [_evaluate(asset, assets[asset], cluster, behind) for asset in wanted]

    return build_feed_checks(runtime, names.OfCluster.IN_SYNC_OP.of(cluster), specs, evaluate)


def evaluate_changed(
    layout: AssetLayout, cluster: str, behind: "Sequence[BehindCopies]", told: Mapping[str, int]
) -> list[dg.AssetCheckEvaluation]:
    """Return the results of the checks of replicas of which other numbers are behind than were told, by flow."""
    now = {each.flow: each.instances for each in behind if each.cluster == cluster}
    changed = {flow for flow in {*now, *told} if now.get(flow) != told.get(flow)}
    assets = _find_flows(layout, cluster) if changed else {}
    return [_evaluate(asset, flows, cluster, behind) for asset, flows in assets.items() if changed.intersection(flows)]


def _find_flows(layout: AssetLayout, cluster: str) -> dict[dg.AssetKey, list[str]]:
    found: dict[dg.AssetKey, list[str]] = {}
    for process in layout.plan.processes.values():
        if process.is_flow and process.cluster == cluster:
            found.setdefault(layout.feed_asset(process.outputs[0].feed_key)[0], []).append(process.process)
    return found


def _evaluate(
    asset: dg.AssetKey, flows: Collection[str], cluster: str, behind: "Sequence[BehindCopies]"
) -> dg.AssetCheckEvaluation:
    from feed_assets.orchestration.location.health import describe_behind

    said = [describe_behind(each) for each in behind if each.cluster == cluster and each.flow in flows]
    description = "\n\n".join(said) or "No instance is behind its source."
    return dg.AssetCheckEvaluation(
        asset_key=asset, check_name=names.IN_SYNC_CHECK, passed=not said, description=description
    )


QUALITY_CHECK = "quality"


RunResult: TypeAlias = dg.MaterializeResult[None] | dg.AssetCheckResult | dg.Output[None]
"""What a run of a process yields to Dagster."""


def build_quality_check(asset: dg.AssetKey, feed: FeedRecord, grid: Grid) -> list[dg.AssetCheckSpec]:
    """Return the check on the asset of a feed whose rows are held to a quality."""
    if feed.quality is None:
        return []
    description = "Tells how many rows of an instance are good. Too many bad ones are not published, or are told."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # checks of partitions are one of Dagster's previews
        return [
            dg.AssetCheckSpec(QUALITY_CHECK, asset=asset, description=description, partitions_def=grid.definition())
        ]


def build_quality_evaluation(
    asset: dg.AssetKey, partition: str | None, quality: Quality, found: "Verdict | QualityCheck"
) -> dg.AssetCheckEvaluation:
    """Return what Dagster is told about the rows of one instance."""
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=QUALITY_CHECK,
        passed=found.has_passed,
        severity=dg.AssetCheckSeverity.WARN if quality.on_fail is OnFail.WARN else dg.AssetCheckSeverity.ERROR,
        description=found.summary,
        metadata=quality_metadata(found.facts),
        partition=partition,
    )


def quality_metadata(facts: Mapping[str, str]) -> Mapping[str, int | float | str]:
    """Return the figures of an instance. They have the same keys in each, so Dagster plots them over time."""
    return {f"{names.META_QUALITY}{name}": _parse(name, text) for name, text in facts.items() if name != "did.dq.pass"}


def _parse(name: str, text: str) -> int | float | str:
    if name.startswith("condition."):
        return text
    return float(Decimal(text)) if "percent" in name or "threshold" in name else int(text)


def check_outputs(assets: dg.AssetsDefinition, checks: Iterable[dg.AssetCheckKey]) -> Iterator[dg.Output[None]]:
    """Yield the outputs that Dagster expects of the checks of a run, whose evaluations have been written."""
    for check in checks:
        if check.name == QUALITY_CHECK:
            yield dg.Output(None, output_name=assets.get_output_name_for_asset_check_key(check))


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
