"""What the sensors of a cluster have in common: they run from the start, and may tick as often as is worth it."""

from collections.abc import Callable

from dagster import (
    AssetSelection,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)


def build_sensor(
    name: str,
    tick: Callable[[SensorEvaluationContext], SensorResult | SkipReason],
    *,
    description: str,
    minimum_seconds: int,
    job_name: str | None = None,
) -> SensorDefinition:
    """A sensor that does `tick`. It asks for runs of a job, or of any assets."""

    @sensor(
        name=name,
        job_name=job_name,
        asset_selection=None if job_name else AssetSelection.all(),
        minimum_interval_seconds=minimum_seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description=description,
    )
    def evaluate(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        return tick(context)

    return evaluate
