"""Measures Dagster's own automation: one evaluation of `eager()` over hourly assets with a history and some news.
Arguments: pairs, hours of history, new materializations.
"""

import json
import sys
import time
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from benchmarks.peer_log import repeat_events
from benchmarks.workload import HOUR, Pair, pairs_of
from benchmarks.workload import START as BEGIN

KEY = "%Y-%m-%d-%H:%M"


def main(pairs: str, hours: str, new: str) -> None:
    """Print the seconds of an evaluation without news and of one with news, and the number of requests."""
    chosen, history = pairs_of(int(pairs)), int(hours)
    definitions = build_peer(chosen)
    spread = -(-int(new) // len(chosen))
    at = BEGIN + (history + spread - 1) * HOUR
    with dg.DagsterInstance.local_temp() as instance:
        begun = time.perf_counter()
        fill(instance, chosen, history)
        filled = time.perf_counter() - begun
        as_of = at + timedelta(minutes=30)

        def evaluate(cursor: Any) -> tuple[float, Any]:
            begun = time.perf_counter()
            result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor, evaluation_time=as_of)
            return time.perf_counter() - begun, result

        _, result = evaluate(None)
        idle, result = evaluate(result.cursor)
        news = [(pair, at - n * HOUR) for n in range(spread) for pair in chosen][: int(new)]
        for pair, nominal_time in news:
            instance.report_runless_asset_event(materialization(pair.source, nominal_time))
        seconds, result = evaluate(result.cursor)
        requested = result.total_requested
        print(json.dumps({"idle": idle, "tick": seconds, "requested": requested, "fill": filled}))


def build_peer(pairs: list[Pair]) -> dg.Definitions:
    """Build hourly external feeds, and an eager asset below each."""
    hours = dg.HourlyPartitionsDefinition(start_date=BEGIN.strftime(KEY), end_offset=1)

    def result(pair: Pair) -> dg.AssetsDefinition:
        @dg.asset(
            key=["primary", pair.result],
            deps=[["primary", pair.source]],
            partitions_def=hours,
            automation_condition=dg.AutomationCondition.eager(),
        )
        def made() -> None: ...

        return made

    sources = [dg.AssetSpec(["primary", pair.source], partitions_def=hours) for pair in pairs]
    return dg.Definitions(assets=[*sources, *map(result, pairs)])


def materialization(name: str, nominal_time: datetime) -> dg.AssetMaterialization:
    """Build the materialization of a partition."""
    return dg.AssetMaterialization(["primary", name], partition=nominal_time.strftime(KEY))


def fill(instance: dg.DagsterInstance, pairs: list[Pair], hours: int) -> None:
    """Materialize the first `hours` partitions of every asset."""
    if hours == 0:
        return
    for pair in pairs:
        for name in (pair.source, pair.result):
            instance.report_runless_asset_event(materialization(name, BEGIN))
    first, *others = [(BEGIN + n * HOUR).strftime(KEY) for n in range(hours)]
    repeat_events(instance, first, others)


if __name__ == "__main__":
    main(*sys.argv[1:])
