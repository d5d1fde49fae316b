"""Records of metrics: families, and their samples at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PREFIX = "feed_assets"
"""The beginning of the names of all families."""


class MetricType(StrEnum):
    """What the samples of a family mean: a value now, a number that only grows, or a sum with its number of values."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


class Label(StrEnum):
    """The labels of samples."""

    CLUSTER = "cluster"
    PIPELINE = "pipeline"
    ENTITY = "entity"
    STATUS = "status"
    CAUSE = "cause"
    KIND = "kind"
    SOURCE = "source"
    STEP = "step"
    STATE = "state"
    LEVEL = "level"
    WAY = "way"
    VERSION = "version"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one meaning. `name` has no prefix, and none of the suffixes `_total`, `_sum` and `_count`."""

    name: str
    type: MetricType
    labels: tuple[Label, ...]
    meaning: str

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names of its samples, as Prometheus shows them."""
        match self.type:
            case MetricType.GAUGE:
                suffixes: tuple[str, ...] = ("",)
            case MetricType.COUNTER:
                suffixes = ("_total",)
            case MetricType.SUMMARY:
                suffixes = ("_count", "_sum")
        return tuple(f"{PREFIX}_{self.name}{suffix}" for suffix in suffixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A value of a family, in the order of its labels. For a summary `value` is the sum of `occurrences` values."""

    labels: tuple[str, ...]
    value: float
    occurrences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The samples of all families at one moment, in real time. `left_out` series were more than `limit`."""

    as_of: datetime
    families: Mapping[Family, tuple[Sample, ...]]
    limit: int
    left_out: int
