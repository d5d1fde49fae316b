"""Name datasets as OpenLineage does: by the address of their storage, so that all who tell of one mean the same.

Source: https://openlineage.io/docs/spec/naming. A dataset is a feed on a cluster; which of its instances were read or
written is told beside the name.
"""

import re
from typing import NamedTuple

from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.records import FeedRecord, TableRecord

_TIME = re.compile(r"([\w.-]+=)?(\$\{(YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)\}[-_.:T]*)+")  # dt=${YEAR}-${MONTH}
_ALIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss"}
_KEYED = ("s3", "gs")
"""Storages whose names are keys; the others have paths, which begin with a slash."""


class DatasetName(NamedTuple):
    """A dataset: where it is, and what it is called there."""

    namespace: str
    name: str


def name_feed(record: FeedRecord) -> DatasetName:
    """Return the name of a feed's data: the folder of its instances, or its table."""
    if record.table is not None:
        return name_table(record.table)
    return name_path(record.store, trim_times(record.template.text))


def name_table(table: TableRecord) -> DatasetName:
    """Return the name of a table.

    >>> tuple(name_table(TableRecord(catalog="thrift://one:9083,thrift://two:9083", database="web", name="clicks")))
    ('hive://one:9083', 'web.clicks')
    """
    host = table.catalog.partition(",")[0].removeprefix("thrift://")
    return DatasetName(f"hive://{host}", f"{table.database}.{table.name}")


def name_path(store: StoreAddress, path: str) -> DatasetName:
    """Return the name of a path below a store.

    >>> tuple(name_path(StoreAddress(url="s3a://lake/raw/"), "/clicks")), name_path(StoreAddress(url="/d"), "a").name
    (('s3://lake', 'raw/clicks'), '/d/a')
    >>> name_path(StoreAddress(url="abfs://box@one.dfs.core.windows.net/in"), "clicks").namespace
    'abfss://box@one.dfs.core.windows.net'
    """
    scheme, separator, rest = store.url.partition("://")
    if not separator:
        scheme, rest = "file", store.url
    host, _, root = rest.partition("/")
    whole = "/".join(part for part in (root.strip("/"), path.strip("/")) if part)
    scheme = _ALIKE.get(scheme, scheme)
    if scheme == "abfss" and "@" not in host:
        host = f"{host}@{store.options.get('account_name', '')}.dfs.core.windows.net"
    elif scheme != "abfss":
        host = host.rpartition("@")[2]  # no user, and no password
    namespace = "file" if scheme == "file" and not host else f"{scheme}://{host}"
    return DatasetName(namespace, whole if scheme in _KEYED else f"/{whole}")


def locate_path(store: StoreAddress, path: str) -> str:
    """Return the address of a path below a store.

    >>> locate_path(StoreAddress(url="s3://lake/raw"), "a/b"), locate_path(StoreAddress(url="/data"), "a")
    ('s3://lake/raw/a/b', 'file:///data/a')
    """
    namespace, name = name_path(store, path)
    return f"{'file://' if namespace == 'file' else namespace}/{name.lstrip('/')}"


def trim_times(template: str) -> str:
    """Return a path without the folders at its end that only say the time. Others stay as they were written.

    >>> trim_times("/clicks/year=${YEAR}/${MONTH}-${DAY}"), trim_times("/clicks-${YEAR}"), trim_times("/${YEAR}/a")
    ('/clicks', '/clicks-${YEAR}', '/${YEAR}/a')
    """
    parts = template.rstrip("/").split("/")
    while len(parts) > 1 and _TIME.fullmatch(parts[-1]):
        parts.pop()
    return "/".join(parts)
