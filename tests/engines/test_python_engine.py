import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.errors import (
    OutputMismatchError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowSignatureError,
)
from feed_assets.engines.port import Work, WorkReport
from feed_assets.engines.python_engine import PythonEngine
from feed_assets.entities.content.event_messages import EventMessage
from tests.engines.works import flights, target, work, written_lines


def no_session() -> SparkSession:
    raise AssertionError("Spark must not be started for this")


def write_job(root: Path, code: str) -> str:
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs" / "file.py").write_text(code)
    return "jobs/file.py:run"


def failure(job: Work, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        PythonEngine().run(job, no_session)
    return str(caught.value)


def run(job: Work, spark: SparkSession) -> WorkReport:
    return PythonEngine().run(job, lambda: spark)


@pytest.mark.spark
def test_a_function_of_a_file_gets_its_inputs_and_the_context_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path = write_job(
        tmp_path,
        "from pyspark.sql.functions import lit\n"
        "def run(late_flights, context, spark, factor=2):\n"
        "    assert context.input_instances['late-flights'][0].nominal_time == context.nominal_time\n"
        "    assert context.local_time.hour == 0 and context.properties['carrier'] == 'AA'\n"
        "    assert list(context.output_urls) == ['out']\n"
        "    context.event('out', payload={'up to': 3}, marking='whole')\n"
        "    return late_flights.where('delay > 0').withColumn('delay', late_flights.delay * lit(factor))\n",
    )
    data = flights(tmp_path, "origin,delay\nJFK,1\nEWR,-2\n", "origin,delay\nLGA,3\n", name="late-flights")
    output = target(tmp_path)
    report = run(work(tmp_path, path, inputs=(data,), outputs=(output,), properties={"carrier": "AA"}), spark)
    assert written_lines(output) == ["JFK,2", "LGA,6"]
    message = EventMessage(payload={"up to": 3}, marking="whole")
    assert [(done.name, done.rows, done.message) for done in report.outputs] == [("out", 2, message)]


@pytest.mark.spark
def test_a_function_of_a_package_below_the_root_may_return_several_outputs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipeline_under_test").mkdir()
    (tmp_path / "pipeline_under_test" / "__init__.py").write_text("")
    (tmp_path / "pipeline_under_test" / "names.py").write_text("COLUMN = 'origin'\n")
    (tmp_path / "pipeline_under_test" / "split.py").write_text(
        "def run(spark, flights):\n"
        "    from pipeline_under_test.names import COLUMN\n"
        "    return {'all': flights, 'origins': flights.select(COLUMN).distinct()}\n"
    )
    before = list(sys.path)
    outputs = (target(tmp_path, name="origins", columns="origin string"), target(tmp_path, name="all"))
    data = flights(tmp_path, "origin,delay\nJFK,1\nJFK,2\n")
    report = run(work(tmp_path, "pipeline_under_test.split:run", inputs=(data,), outputs=outputs), spark)
    assert [(done.name, done.rows) for done in report.outputs] == [("origins", 1), ("all", 2)]
    assert sys.path == before


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_python_function_on_workers_finds_the_code_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text("def double(n):\n    return 2 * n\n")
    path = write_job(
        tmp_path,
        "from pyspark.sql.functions import udf\n"
        "def twice(n):\n"
        "    from doubling import double\n"
        "    return double(n)\n"
        "def run(flights):\n"
        "    return flights.withColumn('delay', udf(twice, 'int')(flights.delay))\n",
    )
    output = target(tmp_path)
    data = flights(tmp_path, "origin,delay\nJFK,4\n")
    run(work(tmp_path, path, inputs=(data,), outputs=(output,), libs=("doubling.py",)), spark)
    assert written_lines(output) == ["JFK,8"]


@pytest.mark.spark
def test_row_30_a_function_without_inputs_and_outputs_returns_none(spark: SparkSession, tmp_path: Path) -> None:
    path = write_job(tmp_path, "def run():\n    return None\n")
    assert run(work(tmp_path, path), spark).outputs == ()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", r"'out' \(feed 'out-feed'\) is its only output, but jobs/file.py:run returned None. Return a Spark"),
        ("[1]", "returned a builtins.list"),
        ("{'other': flights}", r"returned \{'other': DataFrame\}"),
        ("{'out': 1}", r"returned \{'out': int\}"),
    ],
)
def test_a_result_that_is_not_the_outputs_is_described(
    spark: SparkSession, tmp_path: Path, returned: str, message: str
) -> None:
    path = write_job(tmp_path, f"def run(flights):\n    return {returned}\n")
    data = flights(tmp_path, "origin,delay\nJFK,4\n")
    with pytest.raises(OutputMismatchError, match=message):
        run(work(tmp_path, path, inputs=(data,), outputs=(target(tmp_path),)), spark)


@pytest.mark.spark
def test_a_frame_for_two_outputs_names_what_to_return(spark: SparkSession, tmp_path: Path) -> None:
    path = write_job(tmp_path, "def run(flights):\n    return flights\n")
    outputs = (target(tmp_path, name="a"), target(tmp_path, name="b"))
    with pytest.raises(
        OutputMismatchError, match=r"outputs are a, b, but .* Return \{'a': DataFrame, 'b': DataFrame\}"
    ):
        run(work(tmp_path, path, inputs=(flights(tmp_path, "origin,delay\n"),), outputs=outputs), spark)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mandatory", "returned", "made"),
    [
        (True, "{'a': flights}", ["a"]),
        (True, "{'a': flights, 'b': None}", ["a"]),
        (True, "{'a': flights, 'b': flights}", ["a", "b"]),
        (False, "None", []),
    ],
)
def test_af_64_a_function_leaves_out_an_optional_output(
    spark: SparkSession, tmp_path: Path, *, mandatory: bool, returned: str, made: list[str]
) -> None:
    path = write_job(tmp_path, f"def run(flights):\n    return {returned}\n")
    optional = replace(target(tmp_path, name="b"), optional=True)
    outputs = (target(tmp_path, name="a"), optional) if mandatory else (optional,)
    data = flights(tmp_path, "origin,delay\nJFK,4\n")
    report = run(work(tmp_path, path, inputs=(data,), outputs=outputs), spark)
    assert [done.name for done in report.outputs] == made


@pytest.mark.spark
@pytest.mark.parametrize("returned", ["None", "{'b': flights}", "{'a': None}", "{'a': flights, 'c': flights}"])
def test_a_mandatory_output_cannot_be_left_out(spark: SparkSession, tmp_path: Path, returned: str) -> None:
    path = write_job(tmp_path, f"def run(flights):\n    return {returned}\n")
    outputs = (target(tmp_path, name="a"), replace(target(tmp_path, name="b"), optional=True))
    data = flights(tmp_path, "origin,delay\nJFK,4\n")
    with pytest.raises(OutputMismatchError, match=r"Return \{'a': DataFrame, 'b': DataFrame or None\}\."):
        run(work(tmp_path, path, inputs=(data,), outputs=outputs), spark)


@pytest.mark.spark
def test_what_user_code_raises_is_the_cause_of_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    path = write_job(tmp_path, "def run():\n    raise KeyError('origin')\n")
    with pytest.raises(WorkflowFailedError) as caught:
        run(work(tmp_path, path), spark)
    assert str(caught.value) == (
        "process 'daily-delays', instance 2013-11-03T04:00Z: workflow 'jobs/file.py:run' failed: KeyError: 'origin'. "
        "Nothing was published; correct the cause and run the instance again."
    )
    assert isinstance(caught.value.__cause__, KeyError)


LEAKING = """
import sys

def run(spark, flights, context):
    flights.createOrReplaceTempView("left_by_day_2")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.feed_assets.mine", "1")
    spark.conf.unset("spark.sql.shuffle.partitions")
    spark.sql("CREATE DATABASE IF NOT EXISTS of_day_2")
    spark.sql("USE of_day_2")
    if context.properties:
        sys.exit(1)
    return flights
"""


@pytest.mark.spark
@pytest.mark.parametrize("properties", [{}, {"fails": "yes"}])
def test_what_an_instance_leaves_in_the_session_is_put_back(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    def state() -> tuple[object, ...]:
        return spark.conf.getAll, spark.catalog.currentDatabase(), spark.sql("SHOW VIEWS").count()

    before = state()
    inputs, outputs = (flights(tmp_path, "origin,delay\nJFK,1\n"),), (target(tmp_path),)
    job = work(tmp_path, write_job(tmp_path, LEAKING), inputs=inputs, outputs=outputs, properties=properties)
    try:
        with pytest.raises(WorkflowFailedError) if properties else nullcontext():
            run(job, spark)
        assert state() == before
    finally:
        spark.sql("DROP DATABASE IF EXISTS of_day_2")


@pytest.mark.spark
def test_what_an_instance_leaves_is_put_back_without_sql_which_a_metastore_that_is_away_would_fail(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, outputs = (flights(tmp_path, "origin,delay\nJFK,1\n"),), (target(tmp_path),)
    path = write_job(tmp_path, "def run(flights):\n    flights.createOrReplaceTempView('left')\n    return flights\n")
    with monkeypatch.context() as patched:
        patched.setattr(SparkSession, "sql", lambda *_, **__: pytest.fail("a metastore may be asked"))
        run(work(tmp_path, path, inputs=inputs, outputs=outputs), spark)
    assert not spark.catalog.dropTempView("left")


@pytest.mark.spark
def test_an_exit_of_user_code_is_a_failure_of_the_workflow(spark: SparkSession, tmp_path: Path) -> None:
    path = write_job(tmp_path, "import sys\n\ndef run():\n    sys.exit(0)\n")
    with pytest.raises(WorkflowFailedError, match="failed: SystemExit: 0"):
        run(work(tmp_path, path), spark)


@pytest.mark.spark
def test_what_spark_raises_while_it_writes_is_a_failure_of_the_workflow(spark: SparkSession, tmp_path: Path) -> None:
    path = write_job(tmp_path, "def run(flights):\n    return flights.selectExpr('origin', '1 / delay AS delay')\n")
    data = flights(tmp_path, "origin,delay\nJFK,0\n")
    output = replace(target(tmp_path), columns=None)
    with pytest.raises(WorkflowFailedError, match="DIVIDE_BY_ZERO"):
        run(work(tmp_path, path, inputs=(data,), outputs=(output,)), spark)


def test_a_parameter_that_is_no_input_is_found_before_spark_starts(tmp_path: Path) -> None:
    path = write_job(tmp_path, "def run(spark, flights, wether):\n    return flights\n")
    inputs = (flights(tmp_path, "", name="flights"), flights(tmp_path, "", name="weather"))
    assert failure(work(tmp_path, path, inputs=inputs), WorkflowSignatureError) == (
        "process 'daily-delays': workflow 'jobs/file.py:run' does not match the process: "
        "no argument matches the parameter 'wether'; the input 'weather' has no parameter. "
        "Did you mean 'weather' instead of 'wether'? Arguments are passed by name: spark, context, flights, weather."
    )


def test_two_inputs_of_one_parameter_name_are_found_before_spark_starts(tmp_path: Path) -> None:
    path = write_job(tmp_path, "def run(context):\n    return None\n")
    inputs = (flights(tmp_path, "", name="context"),)
    assert "two arguments would be called 'context'" in failure(
        work(tmp_path, path, inputs=inputs), WorkflowSignatureError
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("jobs/file.py", "it does not name a function. Write package.module:function"),
        ("jobs/none.py:run", "jobs/none.py is not a file. Name a file relative to the project's folder."),
        ("jobs/file.py:walk", "jobs/file.py has no function 'walk'. Name one of its functions: run."),
        ("no_such_package.jobs:run", "there is no module 'no_such_package' on the Python path"),
    ],
)
def test_a_path_that_leads_to_no_function_says_why(tmp_path: Path, path: str, message: str) -> None:
    write_job(tmp_path, "from pathlib import Path\ndef run():\n    return None\ndef _hidden():\n    return None\n")
    assert message in failure(work(tmp_path, path), WorkflowNotFoundError)


@pytest.mark.parametrize("is_there", [True, False])
def test_row_104_a_pinned_file_is_loaded_as_if_it_still_stood_in_its_place(tmp_path: Path, *, is_there: bool) -> None:
    path = write_job(tmp_path, "raise ValueError('new')")
    if not is_there:
        (tmp_path / "jobs" / "file.py").unlink()
    job = replace(work(tmp_path, path), pinned={"jobs/file.py": b"raise ValueError(f'old: {__file__}')"})
    assert f"old: {tmp_path / 'jobs' / 'file.py'}" in failure(job, WorkflowFailedError)


def test_a_missing_package_that_the_code_imports_is_a_failure_of_the_code(tmp_path: Path) -> None:
    path = write_job(tmp_path, "import no_such_package\ndef run():\n    return None\n")
    assert "ModuleNotFoundError: No module named 'no_such_package'" in failure(
        work(tmp_path, path), WorkflowFailedError
    )
