"""Tell Dagster the quality of what a run writes: an asset check, evaluated once for each partition.

The evaluations are written from the run. Written without one, the second of a partition would be refused by Dagster.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetsDefinition,
    MaterializeResult,
    Output,
    PreviewWarning,
)

from feed_assets.entities.content.quality import OnFail
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.plan.records import FeedRecord

if TYPE_CHECKING:  # a location is loaded without the life cycle
    from feed_assets.instances.attempts.verdicts import Verdict

QUALITY_CHECK = "quality"

RunResult: TypeAlias = MaterializeResult[None] | AssetCheckResult | Output[None]
"""What a run of a process yields to Dagster."""


def build_quality_check(asset: AssetKey, feed: FeedRecord, grid: Grid) -> list[AssetCheckSpec]:
    """Return the check on the asset of a feed whose rows are held to a quality."""
    if feed.quality is None:
        return []
    description = "Tells how many rows of an instance are good. Too many bad ones are not published, or are told."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreviewWarning)  # checks of partitions are one of Dagster's previews
        return [AssetCheckSpec(QUALITY_CHECK, asset=asset, description=description, partitions_def=grid.definition())]


def build_evaluation(asset: AssetKey, partition: str, verdict: "Verdict") -> AssetCheckEvaluation:
    """Return what Dagster is told about the rows of one instance."""
    is_warning = verdict.quality.on_fail is OnFail.WARN
    return AssetCheckEvaluation(
        asset_key=asset,
        check_name=QUALITY_CHECK,
        passed=verdict.has_passed,
        severity=AssetCheckSeverity.WARN if is_warning else AssetCheckSeverity.ERROR,
        description=verdict.summary,
        metadata=quality_metadata(verdict),
        partition=partition,
    )


def quality_metadata(verdict: "Verdict") -> Mapping[str, int | float]:
    """Return the figures of an instance. They have the same keys in each, so Dagster plots them over time."""
    return {
        f"{names.META_QUALITY}{name}": float(Decimal(value)) if "percent" in name or "threshold" in name else int(value)
        for name, value in verdict.facts.items()
        if name != "did.dq.pass"
    }


def check_outputs(assets: AssetsDefinition, checks: Iterable[AssetCheckKey]) -> Iterator[Output[None]]:
    """Yield the outputs that Dagster expects of the checks of a run, whose evaluations have been written."""
    for check in checks:
        if check.name == QUALITY_CHECK:
            yield Output(None, output_name=assets.get_output_name_for_asset_check_key(check))
