"""Every name that Dagster sees but those of assets: op, pool, sensor and resource names, tags and metadata keys."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import dagster as dg

from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.timing.dates import render_datetime

PREFIX = "feed_assets/"

TAG_RUN = PREFIX.rstrip("/")
"""The first of our tags, by which Dagster sorts them."""
TAG_PROCESS = PREFIX + "process"
TAG_CLUSTER = PREFIX + "cluster"
RESUMED = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
"""Tags of Dagster: the run does again what has failed in another run."""
ROOT_RUN = "dagster/root_run_id"
TAG_REQUEST = PREFIX + "request"
TAG_QUEUE = PREFIX + "queue"
TAG_BATCH = PREFIX + "batch"
TAG_LATE = PREFIX + "late"
TAG_USER = PREFIX + "user"

META_FEED = PREFIX + "feed"
META_PROCESS = PREFIX + "process"
META_CLUSTER = PREFIX + "cluster"
META_FREQUENCY = PREFIX + "frequency"
META_VALIDITY = PREFIX + "validity"
META_TIMEZONE = PREFIX + "timezone"
META_FLAG = PREFIX + "flag"
META_LATE = PREFIX + "late_cut_off"
META_RETENTION = PREFIX + "retention"
META_SLA = PREFIX + "sla"
META_SLA_LATE = PREFIX + "late_instances"
META_TEMPLATE = PREFIX + "path"
META_FORMAT = PREFIX + "format"
META_WORKFLOW = PREFIX + "workflow"
META_PARALLEL = PREFIX + "parallel"
META_ORDER = PREFIX + "order"
META_CATCH_UP = PREFIX + "catch_up"
META_TIMEOUT = PREFIX + "timeout"
META_RETRY = PREFIX + "retry"
META_BYTES = PREFIX + "bytes"
META_ROWS = PREFIX + "rows"
META_PREVIEW = PREFIX + "preview"
META_FILES = PREFIX + "files"
META_NOMINAL = PREFIX + "nominal_time"
META_INPUTS = PREFIX + "inputs"
META_MISSING = PREFIX + "missing_inputs"
META_MADE_BY = PREFIX + "made_by"
META_LATE_DATA = PREFIX + "late_data"
META_ATTEMPT = PREFIX + "attempt"
META_SECONDS = PREFIX + "seconds"
META_EVENTS = PREFIX + "events"
META_EVENT_COUNT = PREFIX + "event_count"
META_EVENT = PREFIX + "event"
META_PAYLOAD = PREFIX + "payload"
META_MARKING = PREFIX + "marking"
META_WHY = PREFIX + "why"
META_STATUS = PREFIX + "status"
META_SWEEP = PREFIX + "sweep"
META_DIGEST = PREFIX + "digest"
META_PAGE = PREFIX + "page"

# Names that others have given follow these: without our prefix they do not run over their values.
META_INPUT = "input/"
META_OUTPUT = "output/"
META_QUALITY = "quality/"
META_DETAIL = "detail/"
META_FACT = "fact/"
META_USER = "user/"

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
PRIORITY = "dagster/priority"
TAG_AUTOMATED = "dagster/from_automation_condition"

FEED_IO_MANAGER = "feed_io_manager"
"""The resource that loads instances of feeds as inputs of users' assets."""

DATA_VERSION = "dagster/data_version"
ROW_COUNT = "dagster/partition_row_count"

NOTIFY_SENSOR = "notify"

OPERATE_JOB, OPERATE_OP = "operate", "operation"

LOCATION_CHECK = "entities_are_valid"
ON_TIME_CHECK = "on_time"
IN_SYNC_CHECK = "in_sync"

_LATE_NAMED = 5
_NOT_WORD = re.compile(r"[^A-Za-z0-9_]+")  # "a-b c" → "a_b_c"
_NOT_TAG = re.compile(r"[^A-Za-z0-9_.-]")


def location_key(namespace: str | None) -> dg.AssetKey:
    """Return the asset key of a location itself. Locations that share a Dagster instance differ by their namespaces."""
    return dg.AssetKey(["feed_assets", *([namespace] if namespace else []), "definitions"])


def op_names(plan: Plan) -> dict[Key, str]:
    """Return the op name of each process, `cluster__process` in letters, digits and `_`, as Dagster names its own.

    Processes that would have one name, such as `a-b` and `a--b`, get a digest at their end.
    """
    plain = {key: word(f"{cluster}__{process}") for key in plan.processes for process, cluster in [key]}
    shared = {name for name, count in Counter(plain.values()).items() if count > 1}
    return {key: f"{name}_{_digest(key)}" if name in shared else name for key, name in plain.items()}


def possible_steps(key: Key) -> set[str]:
    """Return the steps in which instances of a process can run: its own, by either name, and those of listed ones."""
    process, cluster = key
    plain = word(f"{cluster}__{process}")
    return {plain, f"{plain}_{_digest(key)}", OfCluster.INSTANCES_OP.of(cluster), OfCluster.REPLICATION_OP.of(cluster)}


def _digest(key: Key) -> str:
    return hashlib.sha256("/".join(key).encode()).hexdigest()[:8]


def pool_name(process: ProcessRecord) -> str:
    """Return the pool whose limit is the process's `parallel`."""
    return f"process/{process.cluster}/{process.process}"


class OfCluster(StrEnum):
    """What Dagster has of each cluster, by how its name begins. A job is named as its sensor or schedule is."""

    SPARK = "spark"
    """The resource with the Spark session."""
    ARRIVAL_SENSOR = "arrival"
    LATE_SENSOR = "late_data"
    SLA_SENSOR = "sla"
    INSTANCES_JOB = "instances"
    """Runs listed instances."""
    INSTANCES_OP = "run_instances"
    REPLICATION_JOB = "replication"
    REPLICATION_OP = "replicate_to"
    RETENTION_JOB = "retention"
    ON_TIME_OP = "check_on_time"
    """Checks whether the instances of feeds are late."""
    IN_SYNC_OP = "check_in_sync"
    """Checks whether replicas are behind."""

    def of(self, cluster: str) -> str:
        """Return the name of it of a cluster."""
        return f"{self}_{word(cluster)}"


def retention_op(step: str, cluster: str) -> str:
    """Return the name of an op of the job for retention for a step, such as `plan`."""
    return f"{step}_retention_{word(cluster)}"


def quality_op(key: Key) -> str:
    """Return the op that judges instances of a feed from outside."""
    return f"check_quality_{word('__'.join(reversed(key)))}_{_digest(key)}"


def late_tags(late: Mapping[datetime, Sequence[str]]) -> dict[str, str]:
    """Return the tag of a run that processes late data: its late inputs by nominal time, shortened to the first few.

    >>> from datetime import UTC
    >>> late_tags({datetime(2013, 11, 3, 5, tzinfo=UTC): ["weather"]})
    {'feed_assets/late': '2013-11-03T05:00Z: weather'}
    """
    if not late:
        return {}
    texts = [f"{render_datetime(time)}: {', '.join(inputs)}" for time, inputs in sorted(late.items())]
    more = [f"and {len(texts) - _LATE_NAMED} more"] if len(texts) > _LATE_NAMED else []
    return {TAG_LATE: "; ".join([*texts[:_LATE_NAMED], *more])}


def word(text: str) -> str:
    """Replace everything but letters, digits and `_` in `text` by `_`."""
    return _NOT_WORD.sub("_", text)


def tag_text(text: str) -> str:
    """Convert `text` to the form that Dagster allows in asset tags: at most 63 letters, digits, `_`, `-` and `.`."""
    return _NOT_TAG.sub("_", text)[:63]
