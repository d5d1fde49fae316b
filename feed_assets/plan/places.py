"""Locations of paths of entities on a cluster's storage: a store, and a template below it."""

from zoneinfo import ZoneInfo

from feed_assets.entities.cluster import Cluster, plain_address
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.entities.maps import EMPTY, FrozenMap
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import TableRecord
from feed_assets.timing.templates import PathTemplate, parse_path_template, parse_table_address

_UTC = ZoneInfo("UTC")


def address_of(cluster: Cluster, url: str) -> StoreAddress:
    """Return the address of a store as the cluster reaches it.

    The cluster's options apply to its own kind of storage only.
    """
    is_alike = url.partition("://")[0] == cluster.storage.partition("://")[0]
    return StoreAddress(url=url, options=FrozenMap(cluster.storage_options) if is_alike else EMPTY)


def locate(cluster: Cluster, location: str, zone: ZoneInfo = _UTC) -> tuple[StoreAddress, PathTemplate]:
    """Split a location into a store and a template below it, of paths that go by a time zone.

    Absolute paths, and URLs below the cluster's storage, belong to that storage. Other URLs have a store of their own:
    the bucket or host that they name, or for local files the folder above the first variable, so that nothing is staged
    outside it. Doubled and trailing slashes are left out, as in Falcon.
    """
    url, text = _split(cluster, location)
    return address_of(cluster, url), parse_path_template(text).in_zone(zone)


def _split(cluster: Cluster, location: str) -> tuple[str, str]:
    template = _plain(cluster.fill(parse_path_template(location)))
    own = cluster.storage.rstrip("/") + "/"
    if "://" not in template.text:
        return cluster.storage, template.text
    if template.text.startswith(own):
        return cluster.storage, "/" + template.text.removeprefix(own)
    scheme, _, rest = template.text.partition("://")
    host, _, path = rest.partition("/")
    if host:
        return f"{scheme}://{host}", "/" + path
    folder = template.base.rpartition("/")[0] if template.is_static else template.base
    if folder.endswith("://"):
        folder += "/"
    return folder, template.text.removeprefix(folder)


def _plain(template: PathTemplate) -> PathTemplate:
    """Return a template without doubled and trailing slashes."""
    scheme, separator, rest = template.text.rpartition("://")
    first, *following = rest.split("/")
    return parse_path_template(scheme + separator + "/".join([first, *filter(None, following)]))


def lake_of(cluster: Cluster) -> StoreAddress | None:
    """Return the Iceberg catalog of a cluster, with what opens it; None if it has none."""
    if not cluster.is_lake:
        return None
    options: dict[str, object] = {"catalog": cluster.catalog, "catalog_options": cluster.catalog_options}
    options |= {"storage": cluster.storage, "storage_options": cluster.storage_options}
    return StoreAddress(url=plain_address(cluster.catalog or ""), options=FrozenMap(options))


def locate_table(feed: Feed, cluster: Cluster, text: str) -> tuple[StoreAddress, PathTemplate, TableRecord]:
    """Return a table, `catalog:database:table#partition`, as a store of partitions and their template in it."""
    address = parse_table_address(text)
    options: dict[str, object] = {"storage": cluster.storage, "storage_options": cluster.storage_options}
    is_target, lake = feed.clusters[cluster.name].type is ClusterRole.TARGET, lake_of(cluster)
    if lake is not None:
        catalog = url = lake.url
        options = {**lake.options, "columns": feed.columns.value, **({"is_received": True} if is_target else {})}
    else:
        hosts = cluster.metastores
        catalog, url = ",".join(f"thrift://{host}" for host in hosts), f"thrift://{','.join(hosts)}"
        options |= {"is_received": True, "columns": feed.columns.value} if is_target else {}
    table = TableRecord(catalog=catalog, database=address.database, name=address.table)
    store = StoreAddress(url=f"{url}/{address.database}/{address.table}", options=FrozenMap(options))
    return store, cluster.fill(address.template).in_zone(feed.path_zone), table
