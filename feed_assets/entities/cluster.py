"""Clusters: a storage and a Spark."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Self

from pydantic import field_validator, model_validator

from feed_assets.entities.common import Entity, EntityModel, Kind
from feed_assets.entities.fields import Colo, FilledText, PropertyName, Text, refuse
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.issues import FieldPath
from feed_assets.timing.templates import PathTemplate

LOCAL_MASTER = "local[*]"
_NAME_NODE = re.compile(r"(?:[^:]*|\[[^]]*])(?::[0-9]{1,5})?")  # namenode:8020, or a name service
_ADDRESSES = ("master", "remote", "connect")
STORAGE_SCHEMES = ("abfs", "abfss", "az", "file", "gcs", "gs", "hdfs", "memory", "s3", "s3a", "sftp", "viewfs")
"""The schemes of storages that can be opened."""
ICEBERG = "iceberg+"
"""What addresses of Iceberg catalogs begin with."""
_MASTERS: Mapping[str, Mapping[str, object]] = {
    "local": {"master": LOCAL_MASTER},
    "yarn-client": {"master": "yarn", "submit": {"deploy-mode": "client"}},
    "yarn-cluster": {"master": "yarn", "submit": {"deploy-mode": "cluster"}},
}
"""The values of Falcon's spark interface, as fields of `SparkConfig`."""


def is_hdfs(storage: str) -> bool:
    """Return whether a storage is on HDFS."""
    return storage.startswith(("hdfs://", "viewfs://"))


class SparkConfig(EntityModel):
    """The address of Spark: a `master` for sessions of this program, a `remote` Spark Connect server, or the local
    master of a Spark Connect server that is kept for the cluster (`connect`); never two of them.

    Without any, `master` is `local[*]`. `submit` contains options of spark-submit, such as `deploy-mode: cluster`.
    """

    master: FilledText | None = None
    remote: FilledText | None = None
    connect: FilledText | None = None
    conf: Map[PropertyName, Text] = EMPTY
    submit: Map[PropertyName, Text] = EMPTY

    @model_validator(mode="before")
    @classmethod
    def _local_by_default(cls, values: object) -> object:
        if isinstance(values, dict) and all(values.get(name) is None for name in _ADDRESSES):
            return {**values, "master": LOCAL_MASTER}
        return values

    @property
    def local_master(self) -> str | None:
        """The master of the server that is kept; `local` is every processor, as everywhere in this program.

        >>> SparkConfig(connect="local").local_master, SparkConfig(connect="local[2]").local_master
        ('local[*]', 'local[2]')
        """
        return LOCAL_MASTER if self.connect == "local" else self.connect

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        written = [f"{name} {text!r}" for name in _ADDRESSES if (text := getattr(self, name)) is not None]
        if len(written) > 1:
            raise refuse("spark", f"both {' and '.join(written[:2])} are written", "Remove one of them.")
        if self.connect is not None and not self.connect.startswith("local"):
            remedy = "Write local or local[2]; another server is a remote."
            raise refuse("spark", f"connect {self.connect!r} is not a local master", remedy)
        return self


class ClusterLocations(EntityModel):
    """Folders below the cluster's storage for work files; each has a default."""

    staging: FilledText | None = None
    working: FilledText | None = None
    temp: FilledText | None = None


class InterfaceType(StrEnum):
    """The services of a cluster that Falcon knows."""

    READONLY = "readonly"
    WRITE = "write"
    EXECUTE = "execute"
    WORKFLOW = "workflow"
    MESSAGING = "messaging"
    REGISTRY = "registry"
    SPARK = "spark"


class ClusterInterface(EntityModel):
    """The address and version of a service, as Falcon declares them."""

    endpoint: FilledText
    version: Text


class Cluster(Entity):
    """A storage (an fsspec URL and its options) and a Spark; `colo` is the name of the data centre.

    `interfaces` are Falcon's. If `storage`, `catalog` or `spark` is left out, the interface `write`, `registry` or
    `spark` replaces it. The other interfaces are only stored. `catalog` is a Hive metastore, or an Iceberg catalog,
    which alone has `catalog_options`. `catalog_table` is the table of the catalog in which the instances of each feed
    on files are partitions, where the feed names none; `{feed}` is the feed's name there, with `_` for `-`, and
    variables have no `$`.

    Differs from Falcon: one storage instead of `readonly` and `write` endpoints, and no job tracker, workflow engine or
    message broker.
    """

    kind: ClassVar[Kind] = Kind.CLUSTER
    derived_keys: ClassVar[Mapping[str, FieldPath]] = {
        "storage": ("interfaces", "write"),
        "catalog": ("interfaces", "registry"),
        "spark": ("interfaces", "spark"),
    }

    colo: Colo = "default"
    storage: FilledText
    storage_options: Map[Text, object] = EMPTY
    spark: SparkConfig = SparkConfig()
    catalog: FilledText | None = None
    catalog_options: Map[PropertyName, Text] = EMPTY
    catalog_table: FilledText | None = None
    locations: ClusterLocations = ClusterLocations()
    interfaces: Map[InterfaceType, ClusterInterface] = EMPTY

    @model_validator(mode="before")
    @classmethod
    def _from_interfaces(cls, values: object) -> object:
        if not isinstance(values, dict) or not isinstance(values.get("interfaces"), Mapping):
            return values
        filled = dict(values)
        for name, (_, interface) in cls.derived_keys.items():
            endpoint = _endpoint_of(values["interfaces"], str(interface))
            if endpoint is not None and filled.get(name) is None:
                filled[name] = dict(spark_of(endpoint)) if name == "spark" else endpoint
        return filled

    @field_validator("storage")
    @classmethod
    def _is_url(cls, value: str) -> str:
        scheme, found, _ = value.partition("://")
        if not found or not scheme.replace("+", "").isalnum():
            remedy = "Write for example file:///data or s3://bucket."
            if value.startswith("/"):
                remedy = f"Write file://{value}."
            elif ":" not in value:
                remedy = f"Write file:///…/{value} with the whole path, file://${{DATA_ROOT}}, or s3://bucket."
            raise refuse("storage", f"{value!r} is not a URL", remedy)
        if scheme not in ("file", "memory", "hdfs", "viewfs") and not value.partition("://")[2].partition("/")[0]:
            raise refuse("storage", f"{value!r} names no bucket or host", f"Write {scheme}://bucket.")
        if scheme == "hdfs" and not _NAME_NODE.fullmatch(value.partition("://")[2].partition("/")[0]):
            raise refuse("storage", f"the port in {value!r} is no number", "Write such as hdfs://namenode:8020/lake.")
        return value

    @field_validator("catalog")
    @classmethod
    def _is_catalog(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("thrift://", ICEBERG)):
            remedy = "Write thrift://host:9083, or for Iceberg such as iceberg+https://host."
            raise refuse("catalog", f"{value!r} is not a thrift address", remedy)
        return value

    @property
    def is_lake(self) -> bool:
        """Whether the catalog is one of Iceberg."""
        return (self.catalog or "").startswith(ICEBERG)

    def fill(self, template: PathTemplate) -> PathTemplate:
        """Return a template with the cluster's variables filled in; raise TemplateError for an unknown property."""
        return template.with_cluster(name=self.name, colo=self.colo, properties=self.properties)

    @property
    def metastores(self) -> tuple[str, ...]:
        """Host and port of each metastore of the catalog; the first one that answers is used.

        >>> Cluster(name="a", storage="file:///d", catalog="thrift://one:9083, two:9083").metastores
        ('one:9083', 'two:9083')
        """
        parts = (part.strip().removeprefix("thrift://").rstrip("/") for part in (self.catalog or "").split(","))
        return tuple(part for part in parts if part)


def spark_of(endpoint: str) -> Mapping[str, object]:
    """Return the fields of `SparkConfig` for the endpoint of Falcon's spark interface.

    >>> spark_of("yarn-cluster")
    {'master': 'yarn', 'submit': {'deploy-mode': 'cluster'}}
    """
    return _MASTERS.get(endpoint.lower(), {"master": endpoint})


def plain_address(address: str) -> str:
    """Return an address without user, password, query and closing slash.

    >>> plain_address("iceberg+postgresql://me:secret@host:5432/lake?sslmode=require")
    'iceberg+postgresql://host:5432/lake'
    """
    scheme, _, rest = address.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}".rstrip("/")


def _endpoint_of(interfaces: Mapping[str, object], name: str) -> str | None:
    interface = interfaces.get(name)
    if isinstance(interface, ClusterInterface):
        return interface.endpoint
    endpoint = interface.get("endpoint") if isinstance(interface, Mapping) else None
    return endpoint if isinstance(endpoint, str) else None
