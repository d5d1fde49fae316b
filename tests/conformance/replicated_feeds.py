"""Feeds that are replicated, in a few words, for the cases about them."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.issues import Severity, SourceMap
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import ProcessRecord
from feed_assets.validation.rules import validate_bundle
from tests.instances.harness import LifecycleHarness

START = datetime(2014, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEVELS = ["first", "second", "third"]
VALID = {"start": "2014-01-01T00:00Z"}
PATH = "/data/${YEAR}-${MONTH}-${DAY}/${HOUR}-${MINUTE}"


def feed_of(sources: Mapping[str, Mapping[str, Any]], targets: Mapping[str, Mapping[str, Any]], **more: Any) -> Feed:
    """The feed `logs` on sources and targets, with what each says of its own."""
    roles = (("source", sources), ("target", targets))
    clusters = {name: {"validity": VALID, "type": role, **own} for role, given in roles for name, own in given.items()}
    whole = {"name": "logs", "frequency": "hours(1)", "locations": {"data": PATH}, "clusters": clusters, **more}
    return Feed.model_validate(whole)


def bundle_of(feed: Feed) -> Bundle:
    """With a cluster for each that the feed names."""
    return Bundle(entities=(*(Cluster(name=name, storage=f"file:///{name}") for name in feed.clusters), feed))


def flows_of(feed: Feed) -> dict[tuple[str, str], ProcessRecord]:
    return dict(compile_plan(bundle_of(feed)).processes)


def codes_of(feed: Feed, severity: Severity = Severity.ERROR) -> set[str]:
    issues = validate_bundle(bundle_of(feed), SourceMap())
    return {issue.code for issue in issues if issue.severity is severity}


def pass_time(lifecycle: LifecycleHarness, as_of: datetime) -> None:
    for cluster in lifecycle.plan.clusters:
        lifecycle.arrive(as_of, cluster)
    for cluster in lifecycle.plan.clusters:
        lifecycle.launch(lifecycle.tick(as_of, cluster), as_of)


@contextmanager
def replicated(*, flag: str | None, files: list[str], targets: int = 1) -> Iterator[LifecycleHarness]:
    """One instance of a feed with some files, and what has become of it on the clusters t0, t1."""
    names = [f"t{number}" for number in range(targets)]
    feed = feed_of({"s": {}}, {name: {} for name in names}, availability_flag=flag)
    with tempfile.TemporaryDirectory() as root:
        lifecycle = LifecycleHarness.of(Path(root), feed, clusters=("s", *names))
        folder = lifecycle.folder("logs", START, "s")
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).write_text("" if name == flag else name)
        pass_time(lifecycle, START + MINUTE)
        yield lifecycle
        lifecycle.database.close()


def contents(lifecycle: LifecycleHarness, cluster: str) -> list[Path]:
    folder = lifecycle.folder("logs", START, cluster)
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
