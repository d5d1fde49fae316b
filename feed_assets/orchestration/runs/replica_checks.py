"""The check `in_sync` on the asset of each replica: it fails while the source has other content for a while.

It has no partitions, as the check `on_time`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dagster import AssetCheckEvaluation, AssetChecksDefinition, AssetCheckSpec, AssetKey

from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.on_time_checks import build_feed_checks

if TYPE_CHECKING:  # a location is loaded without the life cycle
    from sqlalchemy import Connection

    from feed_assets.state.late_checks import BehindCopies


def build_replica_checks(runtime: Runtime, layout: AssetLayout, cluster: str) -> list[AssetChecksDefinition]:
    """Return the op that makes the checks of all replicas on a cluster; none without replicas."""
    description = "Fails while instances are behind: their source has other content than the replica."
    assets = _find_flows(layout, cluster)
    specs = [AssetCheckSpec(names.IN_SYNC_CHECK, asset=asset, description=description) for asset in assets]

    def evaluate(connection: "Connection", wanted: Collection[AssetKey]) -> list[AssetCheckEvaluation]:
        from feed_assets.state.late_checks import LateChecks

        behind = LateChecks(connection).behind(runtime.clock.now())
        return [_evaluate(asset, assets[asset], cluster, behind) for asset in wanted]

    return [build_feed_checks(runtime, names.in_sync_op(cluster), specs, evaluate)] if specs else []


def evaluate_changed(
    layout: AssetLayout, cluster: str, behind: "Sequence[BehindCopies]", told: Mapping[str, int]
) -> list[AssetCheckEvaluation]:
    """Return the results of the checks of replicas of which other numbers are behind than were told, by flow."""
    now = {each.flow: each.instances for each in behind if each.cluster == cluster}
    changed = {flow for flow in {*now, *told} if now.get(flow) != told.get(flow)}
    assets = _find_flows(layout, cluster) if changed else {}
    return [_evaluate(asset, flows, cluster, behind) for asset, flows in assets.items() if changed.intersection(flows)]


def _find_flows(layout: AssetLayout, cluster: str) -> dict[AssetKey, list[str]]:
    found: dict[AssetKey, list[str]] = {}
    for process in layout.plan.processes.values():
        if process.copy is not None and process.cluster == cluster:
            found.setdefault(layout.feed_asset(process.outputs[0].feed_key)[0], []).append(process.process)
    return found


def _evaluate(
    asset: AssetKey, flows: Collection[str], cluster: str, behind: "Sequence[BehindCopies]"
) -> AssetCheckEvaluation:
    from feed_assets.orchestration.location.health import describe_behind

    said = [describe_behind(each) for each in behind if each.cluster == cluster and each.flow in flows]
    description = "\n\n".join(said) or "No instance is behind its source."
    return AssetCheckEvaluation(
        asset_key=asset, check_name=names.IN_SYNC_CHECK, passed=not said, description=description
    )
