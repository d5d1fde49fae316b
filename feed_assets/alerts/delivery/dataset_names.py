"""Name datasets by the address of their storage, as OpenLineage does: https://openlineage.io/docs/spec/naming.

A dataset is a feed on a cluster; which of its instances were read or written is told beside the name.
"""

import re
from urllib.parse import urlsplit

from feed_assets.masking import mask
from feed_assets.plan.copy_records import StoreAddress, endpoint_of
from feed_assets.plan.records import FeedRecord

_TIME = re.compile(r"([\w.-]+=)?(\$\{(YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)\}[-_.:T]*)+")  # dt=${YEAR}-${MONTH}
_URL = re.compile(r"(?:([A-Za-z][\w+.-]*):(?://([^/]*))?)?(.*)", re.DOTALL)  # s3://lake/raw, file:/data, /data
_ALIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss", "wasb": "wasbs"}
_KEYED = ("s3", "gs")  # names are keys there; elsewhere paths, which begin with a slash
_IN_CLOUD = (".amazonaws.com", ".googleapis.com", ".windows.net")


def name_feed(record: FeedRecord) -> tuple[str, str]:
    """Return namespace and name of a feed: of the folder of its instances, or of its table (`hive://host`, `web.a`).

    An Iceberg table is in the namespace of its catalog, `iceberg+https://host`.
    """
    table = record.table
    if table is None:
        return name_path(record.store, trim_times(record.template.text))
    name = f"{table.database}.{table.name}"
    scheme, _, host = table.catalog.partition(",")[0].partition("://")
    return (f"hive://{host}" if scheme == "thrift" else table.catalog), name


def name_path(store: StoreAddress, path: str) -> tuple[str, str]:
    """Return namespace and name of a path below a store.

    >>> name_path(StoreAddress(url="s3a://lake/raw/"), "/clicks"), name_path(StoreAddress(url="/d"), "a")
    (('s3://lake', 'raw/clicks'), ('file', '/d/a'))
    """
    found = _URL.fullmatch(mask(store.url))
    assert found is not None
    scheme, host, root = found[1] or "file", found[2] or "", found[3]
    scheme = _ALIKE.get(scheme, scheme)
    endpoint = urlsplit(endpoint_of(store))
    whole = "/".join(part for part in (root.strip("/"), path.strip("/")) if part)
    if scheme == "abfss":
        container, _, server = host.partition("@")
        known = re.search(r"AccountName=([^;]+)", str(store.options.get("connection_string", "")))
        account = store.options.get("account_name") or (known[1] if known else server.partition(".")[0])
        suffix = server.partition(".")[2].replace("blob.", "dfs.", 1) or "dfs.core.windows.net"
        host = f"{container}@{account}.{suffix}"
    elif scheme != "wasbs":
        host = host.rpartition("@")[2]  # no user, and no password
    if endpoint.scheme in ("http", "https") and not (endpoint.hostname or "").endswith(_IN_CLOUD):
        host = f"{host}@{endpoint.netloc.rpartition('@')[2]}"  # a bucket of this name is in the cloud, too
    namespace = f"{scheme}://{host}" if host else scheme
    return namespace, whole if scheme in _KEYED else f"/{whole}"


def locate_path(store: StoreAddress, path: str) -> str:
    """Return the address of a path below a store: `file:///data/clicks/01`."""
    namespace, name = name_path(store, path)
    return f"{namespace if '://' in namespace else f'{namespace}://'}/{name.lstrip('/')}"


def trim_times(template: str) -> str:
    """Return a path without the folders at its end that only say the time. Others stay as they were written.

    >>> trim_times("/clicks/year=${YEAR}/${MONTH}-${DAY}"), trim_times("/clicks-${YEAR}"), trim_times("/${YEAR}/a")
    ('/clicks', '/clicks-${YEAR}', '/${YEAR}/a')
    """
    parts = template.rstrip("/").split("/")
    while len(parts) > 1 and _TIME.fullmatch(parts[-1]):
        parts.pop()
    return "/".join(parts)
