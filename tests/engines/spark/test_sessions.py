import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from feed_assets.engines.spark.sessions import map_on_executors, session_conf, tag_session, with_settings


def test_what_the_cluster_says_wins_over_the_defaults() -> None:
    conf = session_conf(master="yarn", conf={"spark.ui.enabled": "true", "spark.executor.cores": "4"})
    assert (conf["spark.ui.enabled"], conf["spark.executor.cores"], conf["spark.master"]) == ("true", "4", "yarn")
    assert "spark.driver.host" not in conf


def test_blocks_of_two_threads_leave_no_setting_behind(spark: SparkSession) -> None:
    one, other = (with_settings(spark, {"spark.of.nobody": "1"}) for _ in range(2))
    one.__enter__()
    other.__enter__()
    assert spark.conf.get("spark.of.nobody") == "1"
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert spark.conf.get("spark.of.nobody", None) is None


def test_a_local_session_stays_on_loopback_and_knows_the_project(tmp_path: Path) -> None:
    conf = session_conf(master="local[2]", root=tmp_path)
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.executorEnv.PYTHONPATH"] == str(tmp_path)


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("sc://host:15002", "sc://host:15002/;session_id=5f0c"),
        ("sc://host:15002/", "sc://host:15002/;session_id=5f0c"),
        ("sc://host/;use_ssl=true;token=x", "sc://host/;use_ssl=true;token=x;session_id=5f0c"),
    ],
)
def test_a_remote_session_gets_only_what_a_client_may_set_and_the_run_as_its_id(remote: str, url: str) -> None:
    conf = session_conf(remote=remote, conf={"spark.sql.shuffle.partitions": "8"}, run_id="5f0c")
    assert conf.pop("spark.remote") == url
    assert all(name.startswith("spark.sql.") for name in conf)


@pytest.mark.parametrize("where", [{}, {"master": "local", "remote": "sc://host"}])
def test_a_session_is_local_or_remote(where: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either master or remote"):
        session_conf(**where)  # type: ignore[arg-type]


@pytest.mark.spark
def test_operations_of_a_run_carry_its_tag(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:  # tags are those of a thread
        pool.submit(tag_session, spark, "long-run").result()
        assert list(pool.submit(spark.sparkContext.getJobTags).result()) == ["feed-assets-run-long-run"]


@pytest.mark.spark
def test_functions_run_on_this_python_whatever_the_path_has(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "the-python-of-somebody-else")
    assert map_on_executors(spark, _python_of, [1, 2, 3]) == [(task, sys.executable) for task in (1, 2, 3)]
    assert map_on_executors(spark, _python_of, []) == []

    monkeypatch.setenv("PYSPARK_PYTHON", "the-python-of-the-environment")
    conf = SparkConf(loadDefaults=False).set("spark.pyspark.python", sys.executable)
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    assert map_on_executors(spark, _python_of, [4]) == [(4, sys.executable)]


def _python_of(task: int) -> tuple[int, str]:
    return task, sys.executable
