"""docs/iceberg.md: its example runs: late rows start a rerun, a compaction does not, and a sweep has an undo. A drill
has its storage and its tables on S3, and ten days that are evicted.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from feed_assets.alerts.delivery.dataset_names import name_feed
from feed_assets.engines.port import Work
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.storage.iceberg.catalogs import file_properties
from tests.cli.project import must
from tests.commands import words_of
from tests.documents.markdown import ROOT, fences
from tests.drills import drill
from tests.instances.harness import LifecycleHarness, at
from tests.lakes import append, compact, write
from tests.object_servers import BUCKET
from tests.projects import enter
from tests.retention.harness import RetentionHarness

PAGE = ROOT / "docs/iceberg.md"
START = at("2026-11-01")


@pytest.fixture(params=["file", drill("s3")])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LifecycleHarness, Any]]:
    """Days of the example, worked by a job that counts as the SQL does: three, twelve on S3."""
    enter(tmp_path, monkeypatch)
    (tmp_path / "data").mkdir()
    text, code = fences(PAGE, "yaml")[0], fences(PAGE, "python")[0]
    properties: dict[str, str] = {}
    if request.param == "s3":
        options = request.getfixturevalue("s3_options")
        root, properties = f"s3://{BUCKET}/{tmp_path.name}", file_properties("s3://", options)
        text = text.replace("storage: file://${DATA_ROOT}", f"storage: {root}\nstorage_options: {json.dumps(options)}")
        text = text.replace("file://${DATA_ROOT}", root)
        code = code.replace('f"file://{root}/lake"', f'"{root}/lake", **properties')
    text = text.replace("${DATA_ROOT}", f"{tmp_path}/data")
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/all.yaml").write_text(text)
    (tmp_path / "count_visits.sql").write_text(fences(PAGE, "sql")[0])
    names: dict[str, Any] = {"root": f"{tmp_path}/data", "properties": properties, "days": 12 if properties else 3}
    exec(code, names)
    loaded = load_files([EntityFile(name="all.yaml", content=text.encode())], Values(variables={}, environ={}))
    assert loaded.issues == ()
    state = f"sqlite:///{tmp_path}/state.db"
    (tmp_path / "feed_assets.yaml").write_text(yaml.safe_dump({"state": state}))
    lifecycle = LifecycleHarness.of(tmp_path, *loaded.bundle.entities, clusters=(), state=state)

    def count(work: Work) -> Mapping[str, str]:
        (clicks,), (visits,) = work.inputs, work.outputs
        assert clicks.table is not None
        assert clicks.table.rows is not None
        scan = clicks.table.rows.scan([dict(each.partition.values) for each in clicks.instances if each.partition])
        rows = pa.Table.from_batches(
            [batch.cast(scan.columns) for task in scan.tasks for batch in scan.read(task)], scan.columns
        )
        found = rows.group_by("visitor").aggregate([("visitor", "count")]).to_pylist()
        made = [
            {"day": work.nominal_time.date(), "region": "eu", "visitor": f"{each['visitor']} {each['visitor_count']}"}
            for each in found
        ]
        write(Path(visits.url.removeprefix("file://")), names["visits"].refresh(), *made)
        return {"visits": ""}

    lifecycle.job = count
    for day in range(names["days"]):
        append(
            names["clicks"], *[{"at": START + timedelta(days=day, hours=5), "visitor": name} for name in ("ann", "bob")]
        )
        work(lifecycle, START + timedelta(days=day, hours=8))
    yield lifecycle, names
    lifecycle.database.close()


def work(lifecycle: LifecycleHarness, as_of: datetime) -> list[datetime]:
    """Tick and run until nothing is asked for; what was run."""
    ran = []
    for _ in range(4):
        ran += lifecycle.launch(lifecycle.tick(as_of), as_of)
        lifecycle.look_for_late(as_of)
    return ran


def visits(names: Any) -> list[tuple[date, str]]:
    rows = names["visits"].refresh().scan().to_arrow().to_pylist()
    return sorted((row["day"], row["visitor"]) for row in rows)


def test_the_example_runs(project: tuple[LifecycleHarness, Any]) -> None:
    lifecycle, names = project
    days = [START + timedelta(days=day) for day in range(names["days"])]
    assert lifecycle.times("count-visits", ProcessInstanceStatus.SUCCEEDED) == days
    assert visits(names) == [(day.date(), f"{name} 1") for day in days for name in ("ann", "bob")]
    shown = {line: must(*words_of(line)).stdout for line in fences(PAGE, "sh")[0].splitlines()}
    namespace, name = name_feed(lifecycle.feed("visits"))
    assert (namespace[:18], name) == ("iceberg+sqlite:///", "web.visits")
    assert "columns: add" in shown["feed-assets entity definition feed visits"]

    last = days[-1]
    compact(names["clicks"], f"at >= '{last.isoformat()}'")
    assert work(lifecycle, last + timedelta(hours=12)) == []
    append(names["clicks"], {"at": last + timedelta(hours=6), "visitor": "ann"})
    assert work(lifecycle, last + timedelta(hours=20)) == [last]
    assert visits(names)[-2:] == [(last.date(), "ann 2"), (last.date(), "bob 1")]


def test_a_sweep_and_its_undo(project: tuple[LifecycleHarness, Any]) -> None:
    lifecycle, names = project
    before, retention = visits(names), RetentionHarness(lifecycle=lifecycle)
    evicted = 10 if names["properties"] else 1
    retention.wait(START + timedelta(days=30 + evicted, hours=12))
    sweep = retention.sweep_now("visits")
    assert visits(names) == before[2 * evicted :]
    names["visits"].refresh().maintenance.expire_snapshots().older_than(datetime(2100, 1, 1)).commit()  # noqa: DTZ001
    retention.undo(sweep)
    assert visits(names) == before
