"""The Spark work of the benchmarks: one day's flights by airline, the same for both sides; and what is never run."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from feed_assets import Context

COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int, "
    "sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time double, distance double, hour int, minute int, time_hour timestamp"
)


def by_airline(flights: DataFrame) -> DataFrame:
    """Count flights and cancellations of each airline, and average the delays."""
    return flights.groupBy("carrier").agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
        f.avg("dep_delay").alias("mean_departure_delay"),
        f.avg("arr_delay").alias("mean_arrival_delay"),
    )


def take(context: Context) -> None:
    """Do nothing: the work of the processes that wait for signals."""


def count_source(source: DataFrame) -> DataFrame:
    """Count rows: the work of the processes that are only loaded and explained."""
    return source.groupBy().count()
