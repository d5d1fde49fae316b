"""Whatever a program does: an output column that another value of an input's column changes has it in its lineage.

The same is tried on Spark Connect beside the other tests of a server.
"""

import pytest
from pyspark.sql import SparkSession

from tests.drills import drill_seed, sized
from tests.engines.random_lineage import check_programs

pytestmark = pytest.mark.spark


@pytest.mark.sample
def test_what_changes_a_column_is_in_its_lineage(spark: SparkSession) -> None:
    check_programs(spark, drill_seed(), sized(3, 300))
