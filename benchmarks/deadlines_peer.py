"""Measures Dagster's freshness checks of hourly assets. Arguments: assets, hours that each of them has."""

import json
import sys
import time
import warnings
from datetime import UTC, datetime, timedelta

import dagster as dg

KEY = "%Y-%m-%d-%H:%M"
HOUR = timedelta(hours=1)


def main(assets: str, hours: str) -> None:
    """Print the seconds of an execution of all checks in this process, all of which pass."""
    count, known = int(assets), int(hours)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    partitions = dg.HourlyPartitionsDefinition(start_date=(now - 8_760 * HOUR).strftime(KEY))
    specs = [dg.AssetSpec(["primary", f"feed{n}"], partitions_def=partitions) for n in range(count)]
    with warnings.catch_warnings(action="ignore"), dg.DagsterInstance.local_temp() as instance:
        checks = dg.build_time_partition_freshness_checks(
            assets=[spec.key for spec in specs], deadline_cron="0 * * * *"
        )
        job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
        definitions = dg.Definitions(assets=specs, asset_checks=checks, jobs=[job])
        for spec in specs:
            for hour in range(1, known + 1):
                partition = (now - hour * HOUR).strftime(KEY)
                instance.report_runless_asset_event(dg.AssetMaterialization(spec.key, partition=partition))
        begun = time.perf_counter()
        result = definitions.resolve_job_def("checks").execute_in_process(instance=instance)
        seconds = time.perf_counter() - begun
        evaluations = result.get_asset_check_evaluations()
    assert len(evaluations) == count
    passed = sum(evaluation.passed for evaluation in evaluations)
    print(json.dumps({"executed": seconds, "passed": passed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
