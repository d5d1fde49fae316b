"""The forms in which instances of a feed are handed to other people's code, and the reading into each."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, cast

from upath import UPath

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.engines.data.frames import read_input
from feed_assets.plan.records import FeedRecord
from feed_assets.programs.reading import find_instances, require_instances

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class Form(StrEnum):
    """A form of instances: a DataFrame of Spark or pandas, a table of Arrow, or where they are."""

    SPARK = "spark"
    PANDAS = "pandas"
    ARROW = "arrow"
    PATH = "path"
    PATHS = "paths"
    URL = "url"
    URLS = "urls"


_BY_TYPE = {
    ("pyspark", "DataFrame"): Form.SPARK,
    ("pandas", "DataFrame"): Form.PANDAS,
    ("pyarrow", "Table"): Form.ARROW,
}


def form_of(annotation: object) -> Form | None:
    """Return the form that a type asks for; None if it leaves the choice.

    >>> form_of(str).value, form_of(Path).value, form_of(object)
    ('url', 'path', None)
    """
    if annotation is str:
        return Form.URL
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Path | UPath):
        return Form.PATH
    return _BY_TYPE.get((annotation.__module__.partition(".")[0], annotation.__name__))


def read_form(
    context: OperationContext,
    record: FeedRecord,
    times: Sequence[datetime],
    form: Form | None,
    session: "SparkSession | None",
    open_spark: "Callable[[], SparkSession]",
) -> Any:
    """Return instances in a form; without one, as a DataFrame of Spark if there is a session, else of pandas."""
    match form or (Form.SPARK if session is not None else Form.PANDAS):
        case Form.SPARK:
            spark = session or open_spark()
            return read_input(spark, find_instances(context, record, times, is_spark=True))
        case Form.PANDAS:
            return _read_arrow(context, record, times, session).to_pandas()
        case Form.ARROW:
            return _read_arrow(context, record, times, session)
        case Form.PATH | Form.PATHS | Form.URL | Form.URLS as place:
            require_instances(context, record, times)
            return locate_form(context, record, times, place)
        case _ as unknown:
            assert_never(unknown)


def locate_form(context: OperationContext, record: FeedRecord, times: Sequence[datetime], form: Form) -> Any:
    """Return where instances are, whether they are there or not."""
    if record.table is not None:
        raise _refuse(record, "it is in a table, which has no paths", "Read it with as_='spark'.")
    urls = [context.feed_url(record, time) for time in times]
    if form in (Form.PATH, Form.URL) and len(urls) != 1:
        raise _refuse(record, f"{len(urls)} instances have no single {form.value}", f"Ask for as_='{form.value}s'.")
    if form in (Form.URL, Form.URLS):
        return urls[0] if form is Form.URL else urls
    paths = [_path(context, record, time, url) for time, url in zip(times, urls, strict=True)]
    return paths[0] if form is Form.PATH else paths


def find_session() -> "SparkSession | None":
    """Return the Spark session of this thread or process, without loading Spark."""
    sql = sys.modules.get("pyspark.sql")
    session: SparkSession | None = None if sql is None else sql.SparkSession.getActiveSession()
    return session


def _read_arrow(
    context: OperationContext, record: FeedRecord, times: Sequence[datetime], session: "SparkSession | None"
) -> Any:
    from feed_assets.engines.data.arrow_frames import read_table  # it loads pyarrow

    data = find_instances(context, record, times, is_spark=session is not None)
    return read_table(data) if session is None else read_input(session, data).toArrow()


def _path(context: OperationContext, record: FeedRecord, nominal_time: datetime, url: str) -> UPath:
    local = context.stores.get(record.store).local_path(record.path(nominal_time))
    options: dict[str, Any] = {} if local is not None else dict(record.store.options)
    path: UPath = cast(Any, UPath)(url if local is None else local, **_for_fsspec(options))
    return path


def _for_fsspec(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a storage as fsspec's filesystems take them: s3fs has its region among the client's.

    >>> _for_fsspec({"region": "eu-central-1", "anon": True})
    {'anon': True, 'client_kwargs': {'region_name': 'eu-central-1'}}
    """
    given = dict(options)
    region = given.pop("region", None)
    if region is not None:
        given["client_kwargs"] = {"region_name": region, **given.get("client_kwargs", {})}
    return given


def _refuse(record: FeedRecord, reason: str, next_step: str) -> InstanceQueryError:
    return InstanceQueryError(subject=f"feed {record.feed!r} on {record.cluster}", reason=reason, next_step=next_step)
