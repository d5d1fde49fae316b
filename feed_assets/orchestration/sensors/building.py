"""The sensors and schedules of a cluster. Sensors run by default, each with its own minimum interval; schedules ask
every minute whether there is work to do.

Every Dagster run loads the location, so the modules of each are imported by its first tick.
"""

from collections.abc import Callable, Iterator, Mapping

import dagster as dg

from feed_assets.masking import masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.plan.records import FeedRecord, ProcessRecord

ARRIVAL_SECONDS = 4
OTHER_SECONDS = 10
IN_PROCESS: Mapping[str, object] = {"execution": {"config": {"in_process": {}}}}


def build_sensors(runtime: Runtime, layout: AssetLayout, cluster: str) -> Iterator[dg.SensorDefinition]:
    """Build the sensors of a cluster: for what arrives, for past releases, for late data, and for deadlines. A cluster
    on which nothing but copies is made has no past releases. The last two stay where nothing is late: they also end
    what an earlier declaration has begun.
    """

    def arrival_tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from feed_assets.orchestration.location.reloading import renew_code_server
        from feed_assets.orchestration.sensors.ticks import run_tick

        graph = context.repository_def.asset_graph if context.repository_def is not None else None
        result = run_tick(runtime, layout, cluster, context.instance, context.cursor, graph)
        renew_code_server(runtime, layout, context)
        return in_one_process(result, context.repository_def)

    def instances_tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from feed_assets.orchestration.runs.listed_instances import run_instances_tick

        return run_instances_tick(runtime, layout, cluster, context.instance)

    def late_tick(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from feed_assets.orchestration.sensors.deadlines import run_late_tick

        return run_late_tick(runtime, layout, cluster, context.instance)

    def sla_tick(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from feed_assets.orchestration.sensors.deadlines import run_sla_tick

        return run_sla_tick(runtime, layout, cluster, context.instance)

    polls = f"Polls for arrivals on cluster {cluster} and requests the process instances that become ready."
    targets = _assets(layout, cluster)
    yield _build_sensor(
        names.OfCluster.ARRIVAL_SENSOR.of(cluster), arrival_tick, polls, seconds=ARRIVAL_SECONDS, targets=targets
    )
    job, past = (
        names.OfCluster.INSTANCES_JOB.of(cluster),
        f"Requests instances on cluster {cluster} of past releases, and checks.",
    )
    is_needed = any(not each.is_flow for each in layout.plan.processes.values() if each.cluster == cluster)
    if is_needed or any(each.is_judged for each in layout.plan.feeds.values() if each.cluster == cluster):
        yield _build_sensor(job, instances_tick, past, job_name=job)
    checks = f"Checks for late data on cluster {cluster}, and repeats instances whose inputs have changed."
    targets = _assets(layout, cluster, lambda record: isinstance(record, ProcessRecord) and record.late is not None)
    yield _build_sensor(names.OfCluster.LATE_SENSOR.of(cluster), late_tick, checks, targets=targets)
    looks = f"Looks for missed deadlines on cluster {cluster}, and tells of them."
    targets = _assets(layout, cluster, lambda record: record.sla is not None)
    yield _build_sensor(names.OfCluster.SLA_SENSOR.of(cluster), sla_tick, looks, targets=targets)


def in_one_process(result: dg.SensorResult, repository: dg.RepositoryDefinition | None) -> dg.SensorResult:
    """Let the requested runs work in one process, with one start of Spark, if the location has Dagster's default
    executor. Another executor is the choice of whoever merged the definitions with others.
    """
    if not result.run_requests or repository is None:
        return result
    if repository.get_implicit_global_asset_job_def().executor_def is not dg.multi_or_in_process_executor:
        return result
    requests = [each.with_replaced_attrs(run_config=IN_PROCESS) for each in result.run_requests]
    return result._replace(run_requests=requests)


def build_notify_sensor(runtime: Runtime, layout: AssetLayout) -> dg.SensorDefinition:
    """Build the sensor that delivers messages to all receivers."""

    def tick(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return run_notify_tick(runtime, layout, context.instance)

    description = "Delivers messages to the receivers of the settings and of entities."
    return _build_sensor(names.NOTIFY_SENSOR, tick, description)


def run_notify_tick(runtime: Runtime, layout: AssetLayout, instance: dg.DagsterInstance) -> dg.SkipReason:
    """Deliver what is due, and say what was done. It waits a second for receivers, however many there are."""
    from feed_assets.orchestration.location.reloading import follow_definitions

    database = runtime.database(instance)
    with runtime.alone(names.NOTIFY_SENSOR) as is_alone:
        if not is_alone:
            return dg.SkipReason("an earlier tick is still at work")
        active = follow_definitions(runtime, layout, database)
        return dg.SkipReason(runtime.notifier.run(database, active.plan, runtime.real_clock).render())


def _assets(
    layout: AssetLayout, cluster: str, is_served: Callable[[FeedRecord | ProcessRecord], bool] | None = None
) -> dg.AssetSelection | None:
    """Return the assets of the feeds and processes of a cluster that a sensor serves, by default all; None without
    any.
    """
    feeds = [each for each in layout.plan.feeds.values() if is_served is None or is_served(each)]
    processes = [each for each in layout.plan.processes.values() if is_served is None or is_served(each)]
    keys = {layout.feed_asset(each.key)[0] for each in feeds if each.cluster == cluster}
    keys |= {key for each in processes if each.cluster == cluster for key, _ in layout.run_assets(each)}
    return dg.AssetSelection.assets(*sorted(keys)) if keys else None


def _build_sensor(
    name: str,
    tick: Callable[[dg.SensorEvaluationContext], dg.SensorResult | dg.SkipReason],
    description: str,
    *,
    seconds: int = OTHER_SECONDS,
    job_name: str | None = None,
    targets: dg.AssetSelection | None = None,
) -> dg.SensorDefinition:
    """Build a sensor from a tick function. It requests runs of a job or of assets, or none."""

    @dg.sensor(
        name=name,
        job_name=job_name,
        asset_selection=targets,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=description,
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        with masked_errors():
            return tick(context)

    return evaluate


EVERY_MINUTE = "* * * * *"


def build_retention_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: dg.JobDefinition
) -> dg.ScheduleDefinition:
    """Build the schedule that starts retention on a cluster when a feed is due."""

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        from feed_assets.orchestration.runs.retention import run_retention_tick

        return run_retention_tick(runtime, layout, cluster, context.instance)

    description = f"Checks every minute whether retention is due for a feed on cluster {cluster}."
    return _build_schedule(of_job, tick, description)


def build_replication_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: dg.JobDefinition
) -> dg.ScheduleDefinition:
    """Build the schedule that requests ready copies to a cluster."""

    def tick(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        from feed_assets.orchestration.runs.listed_instances import run_replication_tick

        return run_replication_tick(runtime, layout, cluster, context.instance)

    return _build_schedule(of_job, tick, f"Requests every minute the ready copies to cluster {cluster}.")


def _build_schedule(
    of_job: dg.JobDefinition,
    tick: Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | list[dg.RunRequest] | dg.SkipReason],
    description: str,
) -> dg.ScheduleDefinition:
    """Build a schedule from a tick function. It runs every minute and has the name of its job."""

    @dg.schedule(
        name=of_job.name,
        job=of_job,
        cron_schedule=EVERY_MINUTE,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | list[dg.RunRequest] | dg.SkipReason:
        with masked_errors():
            return tick(context)

    return evaluate
