"""The Python processes of the example: plain functions from DataFrames to DataFrames."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from feed_assets import Context


def daily_delays(flights: DataFrame, weather: DataFrame, context: Context) -> DataFrame:
    """Return the delays of each airline on one local day, with the mean weather in the hours of departure."""
    hours = weather.groupBy("origin", "time_hour").agg(
        f.avg("temp").alias("temp"), f.avg("wind_speed").alias("wind_speed")
    )
    return (
        flights.join(hours, ["origin", "time_hour"], "left")
        .groupBy("carrier")
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
            f.avg("dep_delay").alias("mean_departure_delay"),
            f.avg("arr_delay").alias("mean_arrival_delay"),
            f.avg("temp").alias("mean_temperature"),
            f.avg("wind_speed").alias("mean_wind_speed"),
        )
        .select(
            f.lit(context.local_time.date()).alias("day"),
            "*",
            f.lit(len(context.input_instances["weather"])).cast("bigint").alias("weather_hours"),
        )
    )


def route_summary(flights: DataFrame) -> DataFrame:
    """Return the number of flights, the distance and the delay of each route in a month."""
    return flights.groupBy("origin", "dest").agg(
        f.count("*").alias("flights"),
        f.avg("distance").alias("mean_distance"),
        f.avg("arr_delay").alias("mean_arrival_delay"),
    )
