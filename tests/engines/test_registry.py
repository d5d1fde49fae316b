import subprocess
import sys

import pytest

from feed_assets.engines.errors import UnknownEngineError
from feed_assets.engines.registry import ENGINE_NAMES, open_engine

LOADED = """
import sys
from feed_assets.engines.registry import ENGINE_NAMES, open_engine
for name in ENGINE_NAMES:
    open_engine(name)
import feed_assets.engines.spark.addresses
print(sorted({"pyspark", "py4j", "pandas", "grpc"}.intersection(sys.modules)))
"""


def test_engines_are_opened_without_loading_spark() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ENGINE_NAMES)
def test_every_engine_has_a_name(name: str) -> None:
    assert open_engine(name) is not None


def test_an_unknown_engine_is_told_which_there_are() -> None:
    with pytest.raises(UnknownEngineError) as caught:
        open_engine("pig")
    assert (
        str(caught.value)
        == "'pig' is not an engine. Use one of python, sql, spark-submit, generate as workflow.engine."
    )
