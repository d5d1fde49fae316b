"""Addresses of storages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from feed_assets.entities.maps import EMPTY, FrozenMap


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """The address of a filesystem: an fsspec URL and its options, hashable so that each store is opened once."""

    url: str
    options: FrozenMap[str, object] = field(default=EMPTY, repr=False)


def endpoint_of(address: StoreAddress) -> str:
    """Return what a store is reached by: its option `endpoint_url`, or scheme and host or bucket of its URL; for
    a local directory, the whole URL.

    >>> endpoint_of(StoreAddress(url="thrift://metastore:9083/web/clicks"))
    'thrift://metastore:9083'
    """
    client = address.options.get("client_kwargs")
    url = address.options.get("endpoint_url") or (client.get("endpoint_url") if isinstance(client, Mapping) else None)
    if url:
        return str(url)
    scheme, _, rest = address.url.partition("://")
    host = rest.partition("/")[0]
    return f"{scheme}://{host}" if host else address.url
