"""Measures Dagster's own automation: one evaluation of `any_deps_updated()` over assets of which each has two others
above it, with a history and some news. Arguments: signals, events of each in the history, new events. It is
measured again without partitions and history: Dagster then knows that something has come, but not what.
"""

import json
import sys
import time
from typing import Any

import dagster as dg

from benchmarks.peer_log import repeat_events
from benchmarks.signals import consumers_of, signals_of


def main(count: str, history: str, new: str) -> None:
    """Print the seconds of an evaluation without news and of one with news, with partitions and without."""
    signals = signals_of(int(count))
    found = {"partitions": measure(signals, int(history), int(new)), "blind": measure(signals, 0, int(new))}
    print(json.dumps(found))


def measure(signals: list[str], history: int, new: int) -> dict[str, float]:
    """Evaluate over signals of which each has come so often before; without a history, they have no partitions."""
    definitions = build_peer(signals, has_partitions=history > 0)
    rounds = -(-new // len(signals))
    with dg.DagsterInstance.local_temp() as instance:

        def come(signal: str, number: int) -> None:
            partition = f"instance-{number}" if history else None
            instance.report_runless_asset_event(dg.AssetMaterialization(["primary", signal], partition=partition))

        def evaluate(cursor: Any) -> tuple[float, Any]:
            begun = time.perf_counter()
            result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
            return time.perf_counter() - begun, result

        for signal in signals:
            if history:
                instance.add_dynamic_partitions(signal, [f"instance-{number}" for number in range(history + rounds)])
            come(signal, 0)
        repeat_events(instance, "instance-0", [f"instance-{number}" for number in range(1, history)])
        _, result = evaluate(None)
        idle, result = evaluate(result.cursor)
        for signal, number in [(signal, history + number) for number in range(rounds) for signal in signals][:new]:
            come(signal, number)
        seconds, result = evaluate(result.cursor)
        assert result.total_requested == len(signals), result.total_requested
    return {"idle": idle, "tick": seconds}


def build_peer(signals: list[str], *, has_partitions: bool) -> dg.Definitions:
    """Build signals, and assets below them that run when one of their two has come."""

    def result(name: str, two: tuple[str, str]) -> dg.AssetsDefinition:
        @dg.asset(
            key=["primary", name],
            deps=[["primary", signal] for signal in two],
            automation_condition=dg.AutomationCondition.any_deps_updated(),
        )
        def made() -> None: ...

        return made

    sources = [
        dg.AssetSpec(
            ["primary", signal],
            partitions_def=dg.DynamicPartitionsDefinition(name=signal) if has_partitions else None,
        )
        for signal in signals
    ]
    return dg.Definitions(assets=[*sources, *(result(*each) for each in consumers_of(signals).items())])


if __name__ == "__main__":
    main(*sys.argv[1:])
