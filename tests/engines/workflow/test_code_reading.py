from pathlib import Path

import pytest

from feed_assets.engines.workflow.python_code import Call, PythonFiles, find_python_fault
from feed_assets.engines.workflow.sql_code import find_sql_faults


def _python(folder: Path, text: str, *inputs: str, path: str = "job.py:run") -> str | None:
    (folder / "job.py").write_text(text, "utf-8")
    fault = find_python_fault(path, Call(inputs=inputs), PythonFiles(folder, []))
    return None if fault is None else f"{fault.line}: {fault.reason}"


@pytest.mark.parametrize(
    "text",
    [
        "def run(spark, flights): ...",
        "def run(flights, *, context, limit=3): ...",
        "def run(**frames): ...",
        "async def run(flights): ...",
        "import feed_assets\n\n@feed_assets.process(frequency='days(1)')\ndef run(flights): ...",
        "@retried\ndef run(anything): ...",
        "def make(): ...\n\nrun = make()",
        "from elsewhere import run",
        "from elsewhere import *",
        "if True:\n    def run(anything): ...",
    ],
)
def test_a_function_that_fits_or_cannot_be_judged_is_not_refused(tmp_path: Path, text: str) -> None:
    assert _python(tmp_path, text, "flights") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def run(flights, /): ...", "1: run does not match the inputs: no argument matches the parameter 'flights'"),
        (
            "\n@process(frequency='days(1)')\ndef run(): ...",
            "3: run does not match the inputs: the input 'flights' has no",
        ),
        (
            "def run(flights, *, limit): ...",
            "1: run does not match the inputs: no argument matches the parameter 'limit'",
        ),
        ("x = 1\ny = (", "2: it is not Python: '(' was never closed"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_its_line(tmp_path: Path, text: str, reason: str) -> None:
    assert str(_python(tmp_path, text, "flights")).startswith(reason)


def test_an_input_is_a_parameter_with_underscores(tmp_path: Path) -> None:
    assert _python(tmp_path, "def run(late_flights): ...", "late-flights") is None


def _sql(folder: Path, text: str, *outputs: str) -> list[str]:
    (file := folder / "query.sql").write_text(text, "utf-8")
    faults = find_sql_faults(file, ["late-flights", "weather"], dict.fromkeys(outputs or ("out",), "feed"))
    return [f"{fault.line}: {fault.reason}. {fault.next_step}" for fault in faults]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * EXCEPT (a) FROM late_flights GROUP BY ALL",
        "CREATE OR REPLACE TEMPORARY VIEW wether AS SELECT 1 AS a; SELECT * FROM wether",
        "CACHE TABLE late_flight AS SELECT 1 AS a; SELECT * FROM late_flight",
        "WITH weathr AS (SELECT 1 AS a) SELECT * FROM weathr JOIN web.wether",
        "SELECT * FROM IDENTIFIER(:falcon_weather_database || '.' || :falcon_weather_table)",
        "SELECT CAST(:min_delay AS INT), transform(a, x -> x + 1) FROM weather LATERAL VIEW explode(b) t AS c",
        "ADD JAR a.jar; SET spark.sql.ansi.enabled = false; INSERT OVERWRITE t PARTITION (ds = 1) SELECT 1; SELECT 2",
        "FROM weather |> WHERE a > 1 |> SELECT a",
        "SET a = 1; -- output: out\nSELECT 2",
        "USE web; DESCRIBE weather; (SELECT 1) UNION SELECT 2",
    ],
)
def test_what_spark_reads_is_not_refused(tmp_path: Path, text: str) -> None:
    assert _sql(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "-- one\nSET a = 1;\n\n/* two\n*/\nSELECT a\n  FORM weather",
            "7: the statement cannot be read as SQL at 'weather', ",
        ),
        (
            "SELECT 1\nFROM wether",
            "2: there is no view 'wether'; the inputs are late_flights, weather. Did you mean 'we",
        ),
        ("SELECT 'abc", "1: the statement has a string, a quoted name or a comment that is not closed"),
        ("-- nothing\n", "None: it contains no statement"),
        ("-- output: other\nSELECT 1", "None: line 2: there is no output 'other'. Put one comment"),
    ],
)
def test_what_is_wrong_in_a_file_stands_at_its_line(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = _sql(tmp_path, text)[:1]
    assert found.startswith(fault)
