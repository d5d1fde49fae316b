from pathlib import Path
from typing import Any

import pytest

from feed_assets.definitions.checks.code_trials import try_code
from feed_assets.issues import Issue, SourceMap
from tests.entities.samples import BASE, bundle


def _tried(root: Path, *paths: str, seconds: float = 120.0) -> list[Issue]:
    changes: dict[str, Any] = {"feed clicks/schema": "at timestamp"}
    for path in paths:
        name, engine = path.partition(".")[0], "sql" if path.endswith(".sql") else "python"
        work = {"name": name, "workflow": {"engine": engine, "path": path}}
        changes[f"process {name}"] = {**BASE["process daily"], **work}
    keys = [("process", path.partition(".")[0]) for path in paths]
    return try_code(bundle(changes), keys, sources=SourceMap(), root=root, seconds=seconds)


def test_modules_are_imported_elsewhere_whatever_they_do(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('loud')\n\ndef run(clicks): ...\n")
    (tmp_path / "b.py").write_text("import functools\nx = 1\nraise SystemExit('early')\n")
    (tmp_path / "c.py").write_text("def run(clicks): ...\n\nrun = run and (lambda click: click)\n")
    (tmp_path / "d.py").write_text("import os\nprint('going', flush=True)\nos._exit(3)\n")
    (tmp_path / "e.py").write_text("def run(): ...\n")
    texts = [issue.render() for issue in _tried(tmp_path, "a.py:run", "b.py:run", "c.py:run", "d.py:run", "e.py:run")]
    assert texts == [
        "process 'd': the code could not be tried: it ended Python with exit code 3: going. Run it by itself to see "
        "why.",
        f"{tmp_path}/b.py:3: process 'b': importing it fails: SystemExit: early. Correct the module.",
        f"{tmp_path}/c.py:3: process 'c': run does not match the inputs: no argument matches the parameter 'click'; "
        "the input 'clicks' has no parameter. Did you mean 'clicks' instead of 'click'? Arguments are passed by name: "
        "spark, context, clicks.",
    ]


def test_a_module_that_never_ends_is_left_in_time(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import time\ntime.sleep(600)\n")
    (issue,) = _tried(tmp_path, "a.py:run", seconds=3.0)
    assert issue.message == "the code could not be tried: it has not ended within 3 seconds"


@pytest.mark.spark
def test_sql_is_analyzed_by_a_spark_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SET spark.sql.ansi.enabled = true;\n\n-- one\nSELECT country\nFROM clicks")
    (issue,) = _tried(tmp_path, "a.sql")
    assert issue.render() == (
        f"{tmp_path}/a.sql:4: process 'a': there is no column `country`. Did you mean `at`? There are `at`."
    )
