"""The families of metrics: names, types, labels and meanings. docs/metrics.md lists the same; a test compares them."""

from feed_assets.metrics.records import Family, Label, MetricType

_CLUSTER, _STATUS, _KIND, _LEVEL = Label.CLUSTER, Label.STATUS, Label.KIND, Label.LEVEL
_PROCESS = (Label.CLUSTER, Label.PIPELINE, Label.ENTITY)
_FEED = (Label.CLUSTER, Label.ENTITY)
_GAUGE, _COUNTER, _SUMMARY = MetricType.GAUGE, MetricType.COUNTER, MetricType.SUMMARY


def _family(name: str, kind: MetricType, labels: tuple[Label, ...], meaning: str) -> Family:
    return Family(name=name, type=kind, labels=labels, meaning=meaning)


BUILD = _family("build_info", _GAUGE, (Label.VERSION,), "Always 1; the label has the version of feed-assets.")
INVALID = _family("invalid_entities", _GAUGE, (Label.FILE,), "Entities in a file that are left out because of errors.")
TICK_AGE = _family(
    "tick_age_seconds", _GAUGE, (_CLUSTER,), "Time since the arrival sensor of a cluster last ticked, to the minute."
)
TICK_FAILURES = _family(
    "tick_failures", _GAUGE, (_CLUSTER, Label.STEP), "Units of work that fail in the ticks and jobs of a cluster now."
)
CHECK_FAILURES = _family(
    "check_failures",
    _GAUGE,
    (Label.CAUSE,),
    "What the check entities_are_valid finds wrong now, by cause; it passes at 0.",
)
SWEEPS = _family("sweeps", _GAUGE, (_CLUSTER, Label.STATE), "Sweeps of retention that have not ended, by state.")
SWEEP_ENDS = _family("sweep_ends", _COUNTER, (_CLUSTER, Label.STATE), "Ended, purged and undone sweeps, by state.")
UNDELIVERED = _family(
    "outbox_messages", _GAUGE, (Label.WAY,), "Messages of the outbox that a way out has not delivered."
)
OLDEST_MESSAGE = _family("oldest_outbox_message_age_seconds", _GAUGE, (Label.WAY,), "Age of the oldest of these, or 0.")
DEAD_LETTERS = _family("dead_letters", _GAUGE, (Label.WAY,), "Messages that a way out has given up.")

INSTANCES = _family(
    "instances", _GAUGE, (*_PROCESS, _STATUS), "Process instances that are unfinished, failed or timed out now."
)
OLDEST_INSTANCE = _family(
    "oldest_instance_age_seconds", _GAUGE, (*_PROCESS, _STATUS), "Age of the oldest of these, from its nominal time."
)
INSTANCE_ENDS = _family("instance_ends", _COUNTER, (*_PROCESS, _STATUS), "Ends of process instances, by status.")
ATTEMPTS = _family(
    "attempts", _COUNTER, (*_PROCESS, Label.CAUSE), "Attempts that have begun, by cause; those of RETRY are retries."
)
PROCESSING = _family(
    "processing_seconds", _SUMMARY, (*_PROCESS, _STATUS), "Time from the beginning to the end of attempts, by status."
)
START_DELAY = _family(
    "start_delay_seconds", _SUMMARY, _PROCESS, "Time from the nominal time of an instance to its first attempt."
)
LAUNCH_DELAY = _family(
    "launch_delay_seconds", _SUMMARY, _PROCESS, "Time from the moment when an instance was READY to its attempt."
)
PENDING_EVENTS = _family(
    "pending_events", _GAUGE, _PROCESS, "Events in the queue of a triggered process, which no batch has taken."
)
OLDEST_EVENT = _family("oldest_pending_event_age_seconds", _GAUGE, _PROCESS, "Age of the oldest of these events.")

MISSING = _family(
    "missing_instances", _GAUGE, _FEED, "Instances of an external feed that are due and have not arrived."
)
OLDEST_MISSING = _family(
    "oldest_missing_instance_age_seconds", _GAUGE, _FEED, "Lateness: age of the oldest of these, from its nominal time."
)
OBSTRUCTED = _family(
    "unreadable_instances", _GAUGE, _FEED, "Those of the missing instances for which storage could not be read."
)
FEED_EVENTS = _family("feed_events", _COUNTER, (*_FEED, _KIND), "Events of the instances of a feed, by kind.")
FEED_BYTES = _family(
    "feed_event_bytes", _COUNTER, (*_FEED, _KIND), "Bytes of the instances in these events, where they are known."
)
ARRIVAL_DELAY = _family(
    "arrival_delay_seconds", _SUMMARY, _FEED, "Time from the nominal time of an instance to its arrival."
)
COPY_BYTES = _family("copy_bytes", _COUNTER, (*_FEED, Label.SOURCE), "Bytes that copies of a feed have transferred.")
COPY_SECONDS = _family(
    "copy_seconds", _SUMMARY, (*_FEED, Label.SOURCE), "Time of the copies of a feed to a cluster, by source cluster."
)

BEHIND = _family(
    "behind_copies", _GAUGE, _PROCESS, "Instances of a replication whose source has had other content for ten minutes."
)

LATE_FEEDS = _family(
    "late_feed_instances", _GAUGE, (*_FEED, _LEVEL), "Instances of a feed that have missed a deadline and are late."
)
LATE_PROCESSES = _family(
    "late_process_instances",
    _GAUGE,
    (*_PROCESS, _LEVEL),
    "Instances of a process that have missed a deadline and are late.",
)
FEED_MISSES = _family(
    "feed_sla_misses", _COUNTER, (*_FEED, _LEVEL), "Deadlines that instances of a feed have missed, by level."
)
PROCESS_MISSES = _family(
    "process_sla_misses", _COUNTER, (*_PROCESS, _LEVEL), "Deadlines that instances of a process have missed, by level."
)
BACKLOG = _family(
    "backlog_seconds", _GAUGE, _PROCESS, "Sum of the ages of the late instances of a process, from the nominal times."
)

LIMIT = _family("series_limit", _GAUGE, (), "The most series that this exposition has.")
LEFT_OUT = _family("series_left_out", _GAUGE, (), "Series that are left out because of the limit.")

FAMILIES = (
    BUILD,
    INVALID,
    TICK_AGE,
    TICK_FAILURES,
    CHECK_FAILURES,
    SWEEPS,
    SWEEP_ENDS,
    UNDELIVERED,
    OLDEST_MESSAGE,
    DEAD_LETTERS,
    INSTANCES,
    OLDEST_INSTANCE,
    INSTANCE_ENDS,
    ATTEMPTS,
    PROCESSING,
    START_DELAY,
    LAUNCH_DELAY,
    PENDING_EVENTS,
    OLDEST_EVENT,
    MISSING,
    OLDEST_MISSING,
    OBSTRUCTED,
    FEED_EVENTS,
    FEED_BYTES,
    ARRIVAL_DELAY,
    COPY_BYTES,
    COPY_SECONDS,
    BEHIND,
    LATE_FEEDS,
    FEED_MISSES,
    LATE_PROCESSES,
    PROCESS_MISSES,
    BACKLOG,
    LIMIT,
    LEFT_OUT,
)
"""All families, in the order of expositions."""
