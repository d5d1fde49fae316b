"""Locate the Spark inside the installed pyspark package, and set up the environment for programs that start it."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

_OF_THIS_PROCESS = (
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_REMOTE",
    "SPARK_LOCAL_REMOTE",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
)


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which contains a complete Spark, without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def spark_environment() -> dict[str, str]:
    """Return the environment for a Spark program: that of this process, without the variables of its own Spark
    connection.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_THIS_PROCESS}
    interpreter = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**interpreter, **inherited, "SPARK_HOME": str(spark_home())}
