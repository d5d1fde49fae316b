"""The declared entities of the benchmarks: pairs of an hourly external feed and a process that reads it. They are
written as YAML and loaded like any location.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

CLUSTER = "primary"
START = datetime(2025, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

_FEED = """\
kind: feed
name: {name}
description: {description}
frequency: hours(1)
format: parquet
schema: "id string, amount double, recorded_at timestamp"
availability_flag: _SUCCESS
locations: {{data: "/{name}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"}}
clusters:
  primary:
    type: source
    validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}
    retention: {{limit: days({kept}), action: delete}}
tags: {{owner: ops, classification: public}}
groups: [group{group}]
"""
_PROCESS = """\
kind: process
name: {process}
description: {description}
frequency: hours(1)
parallel: 2
timeout: hours(12)
clusters: {{primary: {{validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}}}}}
inputs:
  source: {{feed: {source}, start: "now(0,0)", end: "now(0,0)"}}
outputs:
  result: {{feed: {result}, instance: "now(0,0)"}}
workflow: {{engine: python, path: "benchmarks.jobs:count_source"}}
retry: {{policy: exp-backoff, delay: minutes(5), attempts: 3}}
tags: {{owner: ops}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An external feed, the process that reads it, and the feed that the process produces."""

    number: int

    @property
    def source(self) -> str:
        return f"source-{self.number:04d}"

    @property
    def process(self) -> str:
        return f"process-{self.number:04d}"

    @property
    def result(self) -> str:
        return f"result-{self.number:04d}"

    @property
    def group(self) -> int:
        return self.number % 20

    def render(self, kept: int = 800) -> str:
        """Return the entities as one YAML file; data are `kept` for days."""
        feeds = [
            _FEED.format(name=name, description=f"{kind} {self.number}", group=self.group, kept=kept)
            for name, kind in ((self.source, "Source"), (self.result, "Result"))
        ]
        process = _PROCESS.format(
            process=self.process, description=f"Process {self.number}", source=self.source, result=self.result
        )
        return "---\n".join([*feeds, process])

    def path(self, nominal_time: datetime) -> str:
        """Return the path of a source instance below the storage."""
        return f"{self.source}/{nominal_time:%Y/%m/%d/%H}"


def pairs_of(count: int) -> list[Pair]:
    """Return the first `count` pairs."""
    return [Pair(number=number) for number in range(count)]


def write_entities(folder: Path, pairs: list[Pair], storage: Path, kept: int = 800) -> None:
    """Write one file for each pair, and one with the cluster."""
    folder.mkdir(parents=True)
    cluster = (
        f"kind: cluster\nname: {CLUSTER}\ncolo: here\nstorage: {storage.as_uri()}\nspark: {{master: 'local[2]'}}\n"
    )
    (folder / "cluster.yaml").write_text(cluster)
    for pair in pairs:
        (folder / f"{pair.process}.yaml").write_text(pair.render(kept))


def land(storage: Path, pair: Pair, nominal_time: datetime) -> None:
    """Let an instance of a source arrive: a file, then the flag."""
    folder = storage / pair.path(nominal_time)
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"x" * 64)
    (folder / "_SUCCESS").touch()
