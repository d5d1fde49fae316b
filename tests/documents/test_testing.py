"""docs/testing.md: its tests pass, on a real Spark."""

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets import testing
from tests.documents.markdown import ROOT, fences
from tests.spark_session import spark

__all__ = ["spark"]

PAGE = ROOT / "docs/testing.md"

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (entities,) = fences(PAGE, "yaml")
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities" / "shop.yaml").write_text(entities)
    (tmp_path / "feed_assets.yaml").touch()
    (tmp_path / "revenue.sql").write_text("select sum(amount) as total from orders")
    for name in ("FEED_ASSETS_ENTITIES", "FEED_ASSETS_STATE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_row_156_the_programs_of_the_page_pass(
    project: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = partial(testing.open_project, spark=spark)
    monkeypatch.setattr(testing, "open_project", shared, raising=False)
    program = {"__file__": str(project / "test_shop.py")}
    for body in fences(PAGE, "python"):
        exec(compile(body, str(PAGE), "exec", dont_inherit=True), program)
