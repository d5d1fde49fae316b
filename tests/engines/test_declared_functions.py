import importlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.python_engine import PythonEngine
from tests.engines.works import flights, target, work, written_lines


@pytest.mark.spark
def test_a_run_finds_the_function_by_the_path_of_its_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declared_under_test.py").write_text(
        "from feed_assets import process\n\n\n"
        "@process(frequency='hours(1)', clusters={'primary': {'validity': {'start': '2013-11-01T00:00Z'}}})\n"
        "def late_flights(flights):\n"
        "    return flights.where('delay > 0')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = importlib.import_module("declared_under_test").late_flights.entity.workflow.path
    output = target(tmp_path)
    data = flights(tmp_path, "origin,delay\nJFK,1\nEWR,-2\n")
    PythonEngine().run(work(tmp_path, path, inputs=(data,), outputs=(output,)), lambda: spark)
    assert written_lines(output) == ["JFK,1"]
