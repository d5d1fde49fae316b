"""Name datasets by the address of their storage, as OpenLineage does: https://openlineage.io/docs/spec/naming.

A dataset is a feed on a cluster; which of its instances were read or written is told beside the name.
"""

import re

from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import FeedRecord

_TIME = re.compile(r"([\w.-]+=)?(\$\{(YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)\}[-_.:T]*)+")  # dt=${YEAR}-${MONTH}
_ALIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss"}
_KEYED = ("s3", "gs")  # names are keys there; elsewhere paths, which begin with a slash


def name_feed(record: FeedRecord) -> tuple[str, str]:
    """Return namespace and name of a feed: of the folder of its instances, or of its table (`hive://host`, `web.a`)."""
    table = record.table
    if table is None:
        return name_path(record.store, trim_times(record.template.text))
    host = table.catalog.partition(",")[0].removeprefix("thrift://")
    return f"hive://{host}", f"{table.database}.{table.name}"


def name_path(store: StoreAddress, path: str) -> tuple[str, str]:
    """Return namespace and name of a path below a store.

    >>> name_path(StoreAddress(url="s3a://lake/raw/"), "/clicks"), name_path(StoreAddress(url="/d"), "a")
    (('s3://lake', 'raw/clicks'), ('file', '/d/a'))
    """
    scheme, _, rest = store.url.rpartition("://")
    host, _, root = rest.partition("/")
    scheme = _ALIKE.get(scheme, scheme) or "file"
    whole = "/".join(part for part in (root.strip("/"), path.strip("/")) if part)
    if scheme == "abfss" and "@" not in host:
        host = f"{host}@{store.options.get('account_name', '')}.dfs.core.windows.net"
    elif scheme != "abfss":
        host = host.rpartition("@")[2]  # no user, and no password
    namespace = "file" if scheme == "file" and not host else f"{scheme}://{host}"
    return namespace, whole if scheme in _KEYED else f"/{whole}"


def locate_path(store: StoreAddress, path: str) -> str:
    """Return the address of a path below a store: `file:///data/clicks/01`."""
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
