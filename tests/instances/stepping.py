"""A process whose work has steps, and an engine that runs them without Spark."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from feed_assets.engines.data.frames import frame_targets
from feed_assets.engines.errors import WorkflowFailedError
from feed_assets.engines.port import Engine, OutputReport, Work, WorkReport
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.instances.steps import engine as steps_module
from feed_assets.plan.records import ProcessRecord
from feed_assets.sql.database import open_database
from tests.instances.harness import LifecycleHarness, at, feed, process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = at("01T01:00")
CHAIN = {
    "extract": {"path": "jobs:extract"},
    "clean": {"path": "jobs:clean", "after": ["extract"], "recoverable": False},
    "load": {"path": "jobs:load", "after": ["clean"]},
}
RECOVERABLE = {**CHAIN, "clean": {"path": "jobs:clean", "after": ["extract"]}}
WIDE = {
    "left": {"path": "jobs:left"},
    "right": {"path": "jobs:right"},
    "join": {"path": "jobs:join", "after": ["left", "right"]},
}


def fail(work: Work) -> None:
    raise WorkflowFailedError(
        process=work.process, path=work.path, nominal_time=f"{work.nominal_time:%H:%M}", reason="no luck"
    )


def vanish(_: Work) -> None:
    """The end of a worker that nobody hears of."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Jobs:
    """An engine whose steps yield frames that tell who made them. Those in `fails` end as `how` says, after writing."""

    fails: set[str] = field(default_factory=set)
    how: Callable[[Work], object] = lambda work: fail(work)
    yields: dict[str, list[str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    read: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    events: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def __call__(self, _: str) -> Engine:
        jobs = self

        class Writing(Engine):
            def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:  # noqa: ARG002
                return jobs.run(work)

        return Writing()

    def run(self, work: Work) -> WorkReport:
        assert work.step is not None
        name = work.step.name
        self.ran.append(name)
        if work.engine == "sql":
            self.files[name] = work.read_file(work.path).decode()
        self.read[name] = {data.name: _text(data.paths) for data in work.inputs}
        taken = work.context().events
        self.events[name] = [(source, event.number) for source, events in taken.items() for event in events]
        default = [target.name for target in work.outputs] if work.step.frames_url is None else [name]
        targets = frame_targets(work, work.step, self.yields.get(name, default))
        for target in targets:
            folder = Path(urlsplit(target.url).path)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "part-0.csv").write_text(f"{target.name} of {name} in attempt {work.attempt}")
        if name in self.fails:
            self.how(work)
        reported = ReportedMetadata(facts={f"{name} in attempt": work.attempt})
        return WorkReport(
            outputs=tuple(OutputReport(name=target.name, rows=1) for target in targets), reported=reported
        )


def _text(paths: tuple[str, ...]) -> str:
    files = [file for path in paths for file in Path(urlsplit(path).path).glob("*.csv")]
    return "".join(sorted(file.read_text() for file in files))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    jobs = Jobs()
    monkeypatch.setattr(steps_module, "open_engine", jobs)
    return jobs


def declare(lifecycle: LifecycleHarness, steps: Mapping[str, Any] = CHAIN, **more: Any) -> None:
    lifecycle.declare(
        feed("orders"),
        feed("loaded"),
        process(
            "load",
            inputs={"orders": "now(0,0)"},
            outputs={"loaded": "now(0,0)"},
            start=TIME,
            workflow={"steps": steps},
            **more,
        ),
    )


def ready(lifecycle: LifecycleHarness, steps: Mapping[str, Any] = CHAIN, **more: Any) -> None:
    declare(lifecycle, steps, **more)
    lifecycle.land("orders", TIME, text="ann")
    lifecycle.tick(TIME)


def run(lifecycle: LifecycleHarness, as_of: datetime = TIME, record: ProcessRecord | None = None, **more: Any) -> None:
    record = lifecycle.process("load") if record is None else record
    replace(lifecycle.runner(as_of, "run"), engines=None, **more).run(record, TIME, lambda _: None)


def failing(lifecycle: LifecycleHarness) -> None:
    with pytest.raises(WorkflowFailedError, match="no luck"):
        run(lifecycle)


def vanishing(lifecycle: LifecycleHarness) -> None:
    """Run in a process of its own, which is killed."""
    child = os.fork()
    if not child:
        try:
            lifecycle.database = open_database(lifecycle.database.name)
            run(lifecycle)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
