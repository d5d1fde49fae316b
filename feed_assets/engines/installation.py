"""The Spark that the installed pyspark package brings along, as other programs start it."""

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
    """The folder of the installed pyspark, which is a whole Spark; found without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def spark_environment() -> dict[str, str]:
    """The environment for a Spark program: this process's, without what says how *this* process speaks to Spark."""
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_THIS_PROCESS}
    interpreter = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**interpreter, **inherited, "SPARK_HOME": str(spark_home())}
