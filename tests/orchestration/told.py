"""What Dagster's own records tell of a location: the ticks of its arrival sensor, and its check."""

from collections.abc import Sequence

from dagster import AssetCheckKey, AssetKey, DagsterInstance, TableColumnDep, TableColumnLineage
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluation
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from feed_assets.orchestration import names
from tests.orchestration.dagster_home import runs_of

CHECK = AssetCheckKey(names.location_key(None), names.LOCATION_CHECK)


def lineage(**columns: Sequence[tuple[str, str]]) -> TableColumnLineage:
    """What columns were made of, each of columns of assets."""
    return TableColumnLineage(
        {
            name: [TableColumnDep(AssetKey(asset.split("/")), column) for asset, column in sources]
            for name, sources in columns.items()
        }
    )


def location_check(instance: DagsterInstance) -> AssetCheckEvaluation | None:
    """The newest result of the location's check."""
    (record, *_) = instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=1) or [None]
    event = record.event.dagster_event if record is not None and record.event is not None else None
    found = event.event_specific_data if event is not None else None
    return found if isinstance(found, AssetCheckEvaluation) else None


def arrival_ticks(instance: DagsterInstance, since: float, name: str = "arrival_here") -> list[InstigatorTick]:
    """The ticks of an arrival sensor that began after a moment, the oldest first; none if it has never run."""
    found = [each for each in instance.all_instigator_state() if each.instigator_name == name]
    if not found:
        return []
    (sensor,) = found
    ticks = instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id, after=since)
    return sorted(ticks, key=lambda tick: tick.timestamp)


def ticks_until_requested(instance: DagsterInstance, process: str, partition: str, since: float) -> int:
    """How many ticks began after a moment until the run with a partition was requested; none if the tick that was under
    way has requested it. No tick may have failed.
    """
    (run,) = [each for each in runs_of(instance, process) if partition in _partitions(each.tags)]
    ticks = arrival_ticks(instance, since)
    errors = [tick.error and tick.error.to_string() for tick in ticks if tick.status is TickStatus.FAILURE]
    assert not errors, errors
    found = [count for count, tick in enumerate(ticks, start=1) if run.run_id in tick.run_ids]
    return found[0] if found else 0


def _partitions(tags: dict[str, str]) -> str:
    """One partition, or what is in a range of hours of one day."""
    if names.RANGE_START not in tags:
        return tags.get("dagster/partition", "")
    first, last = tags[names.RANGE_START], tags[names.RANGE_END]
    hours = range(int(first[11:13]), int(last[11:13]) + 1)
    return " ".join(f"{first[:11]}{hour:02d}:00" for hour in hours)
