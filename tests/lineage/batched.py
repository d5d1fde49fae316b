"""A record in which a batch has taken an event of the feed src, and has made an instance of the feed dst of it."""

from pathlib import Path

from feed_assets.entities.process import Process
from feed_assets.triggers.apply_triggers import apply_triggers
from tests.instances.harness import START, LifecycleHarness, at, feed, validity
from tests.instances.inbox.test_rebuilt_queues import coming


def batched(tmp_path: Path, state: str | None = None) -> LifecycleHarness:
    """The run b1 of the process load has worked on the batch at 00:20."""
    load = Process.model_validate(
        {
            "name": "load",
            "clusters": {"primary": validity(START, None)},
            "workflow": {"path": "jobs:run"},
            "outputs": {"dst": {"feed": "dst", "instance": "now(0,0)"}},
            "trigger": {"when": "src"},
        }
    )
    lifecycle = LifecycleHarness.of(tmp_path, feed("src"), coming("dst"), load, state=state)
    lifecycle.tick(START)
    apply_triggers(lifecycle.open_tick(START))
    lifecycle.land("src", START)
    lifecycle.tick(at("01T00:10"))
    (batch,) = apply_triggers(lifecycle.open_tick(at("01T00:11"))).batches
    lifecycle.run("load", batch.nominal_time, at("01T00:20"), "b1")
    lifecycle.now = at("01T05:00")
    return lifecycle
