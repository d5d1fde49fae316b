"""A feed on an object store, as docs/your-assets.md says that other people's code reads it."""

from pathlib import Path

import pytest
import yaml

from feed_assets import load_instance, locate_instance
from tests.object_servers import BUCKET, run_s3, s3_client


@pytest.mark.server
def test_what_lies_on_s3_is_read_without_java_and_written_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = {
        "kind": "feed",
        "name": "orders",
        "frequency": "days(1)",
        "format": "csv",
        "schema": "id int, amount double",
        "locations": {"data": "/orders/${YEAR}-${MONTH}-${DAY}"},
        "clusters": {"primary": {"validity": {"start": "2026-01-01T00:00Z"}}},
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with run_s3() as server:
        cluster = {"kind": "cluster", "name": "primary", "storage": server.url, "storage_options": dict(server.options)}
        (tmp_path / "entities").mkdir()
        (tmp_path / "entities" / "all.yaml").write_text(yaml.safe_dump_all([cluster, feed]))
        s3_client(server.options).put_object(Bucket=BUCKET, Key="orders/2026-01-03/a.csv", Body=b"id,amount\n1,2.5\n")
        (locate_instance(None, "orders", "2026-01-04") / "b.csv").write_text("id,amount\n2,4.0\n")
        frame = load_instance(None, "orders", ["2026-01-03", "2026-01-04"], as_="pandas")
    assert frame.to_dict("list") == {"id": [1, 2], "amount": [2.5, 4.0]}
