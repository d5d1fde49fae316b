"""What a cluster is: a storage and a Spark."""

from typing import ClassVar, Self

from pydantic import field_validator, model_validator

from feed_assets.entities.common import Entity, EntityModel, Kind
from feed_assets.entities.fields import FilledText, Name, PropertyName, Text, refuse
from feed_assets.entities.maps import EMPTY, Map

LOCAL_MASTER = "local[*]"


class SparkConfig(EntityModel):
    """How to reach Spark: a `master` for sessions of our own, or a `remote` Spark Connect server; never both.

    Without either, `master` is `local[*]`. `submit` are options of spark-submit, such as `deploy-mode: cluster`.
    """

    master: FilledText | None = None
    remote: FilledText | None = None
    conf: Map[PropertyName, Text] = EMPTY
    submit: Map[PropertyName, Text] = EMPTY

    @model_validator(mode="before")
    @classmethod
    def _local_by_default(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("master") is None and values.get("remote") is None:
            return {**values, "master": LOCAL_MASTER}
        return values

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if self.master is not None and self.remote is not None:
            raise refuse(
                "spark", f"both master {self.master!r} and remote {self.remote!r} are written", "Remove one of them."
            )
        if self.remote is not None and not self.remote.startswith("sc://"):
            raise refuse("spark", f"remote {self.remote!r} is not a Spark Connect address", "Write sc://host:port.")
        return self


class ClusterLocations(EntityModel):
    """Folders below the cluster's storage for work of our own; each has a default place if left out."""

    staging: FilledText | None = None
    working: FilledText | None = None
    temp: FilledText | None = None


class Cluster(Entity):
    """A storage (an fsspec URL and its options) and a Spark; `colo` is the name of the data centre.

    Differs from Falcon: one storage instead of `readonly` and `write` endpoints, and no job tracker, workflow engine or
    message broker.
    """

    kind: ClassVar[Kind] = Kind.CLUSTER

    colo: Name = "default"
    storage: FilledText
    storage_options: Map[Text, object] = EMPTY
    spark: SparkConfig = SparkConfig()
    catalog: FilledText | None = None
    locations: ClusterLocations = ClusterLocations()

    @field_validator("storage")
    @classmethod
    def _is_url(cls, value: str) -> str:
        scheme, found, _ = value.partition("://")
        if not found or not scheme.replace("+", "").isalnum():
            remedy = (
                f"Write file://{value}." if value.startswith("/") else "Write for example file:///data or s3://bucket."
            )
            raise refuse("storage", f"{value!r} is not a URL", remedy)
        return value

    @field_validator("catalog")
    @classmethod
    def _is_thrift(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("thrift://"):
            raise refuse("catalog", f"{value!r} is not a thrift address", "Write thrift://host:9083.")
        return value
