"""docs/registration.md: its example runs as it says, and its commands answer."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import EntityFile, Values
from tests.cli.project import must
from tests.documents.markdown import ROOT, fences
from tests.instances.harness import LifecycleHarness, at
from tests.projects import enter

START = at("2026-11-01")


def test_the_example_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = fences(ROOT / "docs/registration.md", "yaml")[0].replace("${DATA_ROOT}", f"{tmp_path}/data")
    (tmp_path / "entities").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "entities/all.yaml").write_text(declared)
    loaded = load_files([EntityFile(name="all.yaml", content=declared.encode())], Values(variables={}, environ={}))
    assert loaded.issues == ()
    catalog = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/data/catalog.db")
    catalog.create_namespace("shop")
    state = f"sqlite:///{tmp_path}/state.db"
    lifecycle = LifecycleHarness.of(tmp_path, *loaded.bundle.entities, clusters=(), state=state)
    folder = lifecycle.folder("sales", START)
    folder.mkdir(parents=True)
    rows = pa.table({"day": [START.date()], "shop": ["north"], "amount": [7]})
    pq.write_table(rows, folder / "part-0.parquet")
    lifecycle.tick(START + timedelta(hours=1))
    lifecycle.database.close()
    assert catalog.load_table("shop.sales").scan().to_arrow().to_pylist() == rows.to_pylist()

    (tmp_path / "feed_assets.yaml").write_text(yaml.safe_dump({"state": state}))
    enter(tmp_path, monkeypatch)
    assert must("registration", "verify", "sales").output == ""
    catalog.load_table("shop.sales").delete("day = '2026-11-01'")
    found = must("registration", "verify", "sales", code=1).output
    assert "it is AVAILABLE, and no partition of the table" in found
    assert "shop.sales" in must("registration", "repair", "sales", "--dry-run").output
    assert "1 repaired" in must("registration", "repair", "sales").output
    assert must("registration", "verify", "sales", "--output", "json").output.startswith("{")
    assert catalog.load_table("shop.sales").scan().to_arrow().num_rows == 1
