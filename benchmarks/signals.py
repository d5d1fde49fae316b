"""The declared entities of the benchmark of triggers: signals, and as many processes, of which each runs for what has
come of two of them.
"""

from pathlib import Path

from benchmarks.workload import CLUSTER

_SIGNAL = """\
kind: feed
name: {name}
signal: true
clusters: {{primary: {{validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}}}}}
"""
_CONSUMER = """\
kind: process
name: {name}
trigger: {{when: {{any: [{feeds}]}}}}
clusters: {{primary: {{validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}}}}}
workflow: {{engine: python, path: "benchmarks.jobs:take"}}
"""


def signals_of(count: int) -> list[str]:
    """Return the names of the signals."""
    return [f"signal-{number:04d}" for number in range(count)]


def consumers_of(signals: list[str]) -> dict[str, tuple[str, str]]:
    """Return the processes, as many as signals, each with the two that it takes: one and its neighbour."""
    neighbours = [*signals[1:], signals[0]]
    return {f"consumer-{n:04d}": two for n, two in enumerate(zip(signals, neighbours, strict=True))}


def write_signals(folder: Path, signals: list[str], storage: Path) -> None:
    """Write all entities as one file, and the cluster."""
    folder.mkdir(parents=True)
    cluster = f"kind: cluster\nname: {CLUSTER}\nstorage: {storage.as_uri()}\nspark: {{master: 'local[2]'}}\n"
    feeds = [_SIGNAL.format(name=name) for name in signals]
    processes = [_CONSUMER.format(name=name, feeds=", ".join(two)) for name, two in consumers_of(signals).items()]
    (folder / "all.yaml").write_text("---\n".join([cluster, *feeds, *processes]))
