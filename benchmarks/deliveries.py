"""(l) Messages to a local receiver: with cursor, order, signature and record, against loops of plain POSTs in as many
threads: of `urlopen` with the same documents, and of ready bodies over kept connections, which is
the least that a program can do.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, faster

AT_LEAST = 0.8


def measure_deliveries(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure how long it takes until a receiver has all messages."""
    count, repeats = scale.choose((10_000, 5), (2_000, 3), (50, 1))
    say(f"deliveries: {count:,} messages")
    found = run_probe("deliveries_probe", folder, count, repeats)
    name = f"{count:,} messages to a webhook, SQLite, {found['threads']} threads"
    note = f"{count / found['ours']:,.0f} messages a second"
    ours = found["ours"]
    yield faster(Part.DELIVERIES, name, ours, "a loop of urlopen", found["urlopen"], at_least=AT_LEAST, note=note)
    yield faster(Part.DELIVERIES, name, ours, "a loop of http.client with ready bodies", found["ready"])
