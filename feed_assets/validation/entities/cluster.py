"""Rules about single clusters and datasources."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from feed_assets.entities.cluster import ICEBERG, STORAGE_SCHEMES, Cluster, InterfaceType
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.graph import iter_datasources
from feed_assets.entities.locations.overlaps import FixedPlace
from feed_assets.issues import FieldPath, Severity
from feed_assets.validation.scope import Complaint, Scope

_BUILT_IN = ("name", "colo")
_WITH_SCHEME = (InterfaceType.READONLY, InterfaceType.WRITE, InterfaceType.WORKFLOW, InterfaceType.MESSAGING)
_LOCAL_WORKFLOWS = "localoozie"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://|\().+")  # hdfs://host:8020, failover:(tcp://host:61616)
_THRIFT = re.compile(r"(?:thrift://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")  # thrift://host:9083, other:9083
_LAKE = re.compile(
    r"iceberg\+(?:sqlite:////(?:[^?]*/)?[^/?]+|(?:postgresql|thrift|https?)://[^/]+.*)"
)  # iceberg+https://host/api
_HOST = r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])"
_MASTER = re.compile(
    r"local(?:\[(?:[0-9]+|\*)(?:\s*,\s*[0-9]+)?\])?"  # local[2]
    r"|local-cluster\[[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\]"
    r"|yarn"
    rf"|spark://{_HOST}:[0-9]+(?:,{_HOST}:[0-9]+)*"
    rf"|k8s://(?:https?://)?{_HOST}(?::[0-9]+)?/?"  # k8s://https://host:6443
)
_REMOTE = re.compile(rf"sc://{_HOST}(?::[0-9]{{1,5}})?(?:/;.*)?/?")  # sc://host:15002/;token=x


def check_interface_addresses(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """C1: endpoints must be addresses with a scheme, and each metastore of a list must have a host.

    Of several metastores, separated by commas, only the first needs a scheme. `workflow` may be `localoozie`. An
    Iceberg catalog is a file, a database, a metastore or a REST service.
    """
    for kind in _WITH_SCHEME:
        interface = cluster.interfaces.get(kind)
        if interface is None or (kind is InterfaceType.WORKFLOW and interface.endpoint == _LOCAL_WORKFLOWS):
            continue
        if _SCHEME.fullmatch(interface.endpoint) is None:
            yield Complaint(
                path=("interfaces", kind.value, "endpoint"),
                message=f"the {kind.value} interface has no valid scheme: {interface.endpoint!r}",
                remedy="Write an address with its scheme, for example hdfs://host:8020.",
            )
    registry = cluster.interfaces.get(InterfaceType.REGISTRY)
    places: list[tuple[FieldPath, str]] = [(("catalog",), cluster.catalog or "")]
    if registry is not None and registry.endpoint != cluster.catalog:
        places.append((("interfaces", "registry", "endpoint"), registry.endpoint))
    for path, text in places:
        if text.startswith(ICEBERG):
            if _LAKE.fullmatch(text) is None:
                yield Complaint(
                    path=path,
                    message="it is not the address of an Iceberg catalog",
                    remedy="Write iceberg+sqlite:////folder/catalog.db (the whole path), "
                    "iceberg+postgresql://host/database, iceberg+thrift://host:9083 or iceberg+https://host.",
                )
            continue
        for address in text.split(",") if text else ():
            if _THRIFT.fullmatch(address.strip()) is None:
                yield Complaint(
                    path=path,
                    message=f"{address.strip()!r} is not the address of a metastore",
                    remedy="Write thrift://host:9083; separate several metastores by commas.",
                )


def check_catalog_options(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """Only an Iceberg catalog has options."""
    if cluster.catalog_options and not cluster.is_lake:
        yield Complaint(
            path=("catalog_options",),
            message="catalog_options are those of an Iceberg catalog, and the cluster has none",
            remedy="Write catalog: iceberg+https://…, or remove catalog_options.",
        )


def check_spark_address(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """C14: the address of Spark must be one that this Spark supports.

    Differs from Falcon: all masters of Spark besides `yarn` and `local`, and Spark Connect, are accepted.
    """
    remote = cluster.spark.remote
    for name, remedy in (("master", MASTER_REMEDY), ("connect", "Write local or local[2].")):
        master = getattr(cluster.spark, name)
        if master is not None and not is_spark_master(master):
            yield Complaint(path=("spark", name), message=f"{master!r} is not a master of Spark", remedy=remedy)
    if remote is not None and _REMOTE.fullmatch(remote) is None:
        yield Complaint(
            path=("spark", "remote"),
            message=f"{remote!r} is not a Spark Connect address",
            remedy="Write sc://host:15002.",
        )


MASTER_REMEDY = "Write local[2], yarn, spark://host:7077 or k8s://https://host:6443."


def is_spark_master(text: str) -> bool:
    """Return whether a text is a master URL of Spark.

    >>> is_spark_master("local[*]"), is_spark_master("spark://a:7077,b:7077"), is_spark_master("yarn-cluster")
    (True, True, False)
    """
    return _MASTER.fullmatch(text) is not None


_OF_HADOOP = ("dfs.", "fs.", "hadoop.", "hive.", "io.", "javax.", "mapred.", "mapreduce.", "parquet.", "yarn.")


def check_conf(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """The configuration must be one that Spark reads."""
    yield from iter_unread_conf(("spark", "conf"), cluster.spark.conf)


def iter_unread_conf(path: FieldPath, conf: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield a complaint about each key without the prefix of Spark.

    spark-submit and servers of Spark leave such a key out; Spark hands keys to Hadoop and Hive by `spark.hadoop.`.
    """
    for name in conf:
        if not name.startswith("spark."):
            prefix = "spark.hadoop." if name.startswith(_OF_HADOOP) else "spark."
            is_taken = name.startswith("hive.")
            who, leave = ("spark-submit and Spark Connect", "leave") if is_taken else ("Spark", "leaves")
            yield Complaint(
                path=(*path, name),
                message=f"{'.'.join(map(str, path))}: {who} {leave} {name!r} out: keys of Spark begin with 'spark.'",
                remedy=f"Write {prefix}{name}.",
                severity=Severity.WARNING if is_taken else Severity.ERROR,
            )


def check_staging(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """C9: a cluster that is declared by interfaces must have a staging folder.

    Differs from Falcon: a cluster that is declared by its storage has a default folder.
    """
    if cluster.interfaces and cluster.locations.staging is None:
        yield Complaint(
            path=("locations",),
            message="the mandatory location staging is missing",
            remedy="Write locations: {staging: /apps/staging}.",
        )


def check_folders(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """C11: staging, working and temporary files must have different folders. Falcon does not ask this of the last."""
    seen: dict[str, str] = {}
    for name, folder in (
        ("staging", cluster.locations.staging),
        ("working", cluster.locations.working),
        ("temp", cluster.locations.temp),
    ):
        if folder is None:
            continue
        other = seen.setdefault(folder.rstrip("/"), name)
        if other != name:
            yield Complaint(
                path=("locations", name),
                message=f"locations.{name} is the folder of locations.{other}, {folder!r}",
                remedy="Give each a folder of its own.",
                severity=Severity.WARNING if name == "temp" else Severity.ERROR,
            )


def check_storage_scheme(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """The scheme of the storage must be supported."""
    scheme = cluster.storage.partition("://")[0]
    if scheme not in STORAGE_SCHEMES:
        yield Complaint(
            path=("storage",),
            message=f"{scheme} storage is not supported: {cluster.storage} can be neither read nor written",
            remedy=f"Use a storage of one of {', '.join(STORAGE_SCHEMES)}.",
            severity=Severity.WARNING,
        )


def check_hidden_properties(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """A property must not have the name of a predefined variable of clusters."""
    for name in _BUILT_IN:
        if name in cluster.properties:
            yield Complaint(
                path=("properties", name),
                message=f"the property {name!r} is hidden: ${{cluster.{name}}} is the cluster's own {name}",
                remedy="Rename the property.",
                severity=Severity.WARNING,
            )


def check_interfaces(_: Scope, datasource: Datasource) -> Iterator[Complaint]:
    """Every interface of a datasource must have a driver and a credential, its own or the datasource's."""
    for name in ("readonly", "write"):
        interface = getattr(datasource.interfaces, name)
        if interface is None:
            continue
        for part in ("driver", "credential"):
            if getattr(interface, part) is None and getattr(datasource, part) is None:
                yield Complaint(
                    path=("interfaces", name),
                    message=f"interfaces.{name} has no {part}, and neither has the datasource",
                    remedy=f"Add {part} to one of them.",
                )
        if not interface.endpoint.startswith("jdbc:"):
            yield Complaint(
                path=("interfaces", name, "endpoint"),
                message=f"interfaces.{name}.endpoint {interface.endpoint!r} is not a JDBC URL",
                remedy="Write for example jdbc:postgresql://host:5432/database.",
            )


def check_drivers(scope: Scope, datasource: Datasource) -> Iterator[Complaint]:
    """The datasources of a cluster must name a jar in common for a class, of which a session has one version."""
    used: dict[str, set[str]] = {}
    for feed in scope.bundle.feeds:
        for cluster, name in iter_datasources(feed):
            used.setdefault(cluster, set()).add(name)
    for cluster in sorted(name for name, found in used.items() if datasource.name in found):
        for other in filter(None, map(scope.bundle.find_datasource, sorted(used[cluster]))):
            if other.name > datasource.name:  # which says it
                break
            for name, jars in _drivers(datasource):
                clash = next((its for of, its in _drivers(other) if of == name and its.isdisjoint(jars)), None)
                if clash is not None:
                    yield Complaint(
                        path=(),
                        message=f"the class {name} is in {', '.join(sorted(jars))}, and that of datasource "
                        f"{other.name!r}, which cluster {cluster!r} has, too, in {', '.join(sorted(clash))}",
                        remedy="Name the same jars: a Spark session has one version of a class.",
                    )
                    return


def _drivers(datasource: Datasource) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the classes of a datasource's drivers, each with the names of its jars."""
    for each in (datasource.interfaces.readonly, datasource.interfaces.write):
        if each is not None and (driver := each.driver or datasource.driver) is not None:
            yield driver.driver_class, frozenset(PurePath(jar).name for jar in driver.jars)


def check_root(scope: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """The storage of a cluster must not be in an instance of a feed, with which it would be removed, nor in a trash."""
    if scope.places.is_hidden(cluster.storage):
        yield Complaint(
            path=("storage",),
            message=f"the storage {cluster.storage} lies in the hidden folder of a store, which is emptied",
            remedy="Use a folder of its own.",
        )
    overlap = scope.overlaps.get((cluster.name, cluster.name, FixedPlace.STORAGE))
    if overlap is not None:
        yield Complaint(
            path=("storage",),
            message=f"the storage {cluster.storage} would be removed with an instance: {overlap}",
            remedy="Use a folder of its own.",
        )
