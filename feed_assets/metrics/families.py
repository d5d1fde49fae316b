"""The families of metrics: names, types, labels and meanings. docs/metrics.md lists the same; a test compares them."""

from feed_assets.metrics.records import Family, Label, MetricType

_CLUSTER, _STATUS, _KIND, _LEVEL = Label.CLUSTER, Label.STATUS, Label.KIND, Label.LEVEL
_PROCESS = (Label.CLUSTER, Label.PIPELINE, Label.ENTITY)
_FEED = (Label.CLUSTER, Label.ENTITY)
_GAUGE, _COUNTER, _SUMMARY = MetricType.GAUGE, MetricType.COUNTER, MetricType.SUMMARY


BUILD = Family("build_info", _GAUGE, (Label.VERSION,), "Always 1; the label has the version of feed-assets.")
INVALID = Family("invalid_entities", _GAUGE, (Label.FILE,), "Entities in a file that are left out because of errors.")
TICK_AGE = Family(
    "tick_age_seconds", _GAUGE, (_CLUSTER,), "Time since the arrival sensor of a cluster last ticked, to the minute."
)
TICK_FAILURES = Family(
    "tick_failures", _GAUGE, (_CLUSTER, Label.STEP), "Units of work that fail in the ticks and jobs of a cluster now."
)
CHECK_FAILURES = Family(
    "check_failures",
    _GAUGE,
    (Label.CAUSE,),
    "What the check entities_are_valid finds wrong now, by cause; it passes at 0.",
)
SWEEPS = Family("sweeps", _GAUGE, (_CLUSTER, Label.STATE), "Sweeps of retention that have not ended, by state.")
SWEEP_ENDS = Family("sweep_ends", _COUNTER, (_CLUSTER, Label.STATE), "Ended, purged and undone sweeps, by state.")
UNDELIVERED = Family(
    "outbox_messages", _GAUGE, (Label.WAY,), "Messages of the outbox that have not reached a receiver."
)
OLDEST_MESSAGE = Family("oldest_outbox_message_age_seconds", _GAUGE, (Label.WAY,), "Age of the oldest of these, or 0.")
DEAD_LETTERS = Family("dead_letters", _GAUGE, (Label.WAY,), "Messages that are not tried again for a receiver.")

INSTANCES = Family(
    "instances", _GAUGE, (*_PROCESS, _STATUS), "Process instances that are unfinished, failed or timed out now."
)
OLDEST_INSTANCE = Family(
    "oldest_instance_age_seconds", _GAUGE, (*_PROCESS, _STATUS), "Age of the oldest of these, from its nominal time."
)
INSTANCE_ENDS = Family("instance_ends", _COUNTER, (*_PROCESS, _STATUS), "Ends of process instances, by status.")
ATTEMPTS = Family(
    "attempts", _COUNTER, (*_PROCESS, Label.CAUSE), "Attempts that have begun, by cause; those of RETRY are retries."
)
PROCESSING = Family(
    "processing_seconds", _SUMMARY, (*_PROCESS, _STATUS), "Time from the beginning to the end of attempts, by status."
)
START_DELAY = Family(
    "start_delay_seconds", _SUMMARY, _PROCESS, "Time from the nominal time of an instance to its first attempt."
)
LAUNCH_DELAY = Family(
    "launch_delay_seconds", _SUMMARY, _PROCESS, "Time from the moment when an instance was READY to its attempt."
)
PENDING_EVENTS = Family(
    "pending_events", _GAUGE, _PROCESS, "Events in the queue of a triggered process, which no batch has taken."
)
OLDEST_EVENT = Family("oldest_pending_event_age_seconds", _GAUGE, _PROCESS, "Age of the oldest of these events.")

MISSING = Family("missing_instances", _GAUGE, _FEED, "Instances of an external feed that are due and have not arrived.")
OLDEST_MISSING = Family(
    "oldest_missing_instance_age_seconds", _GAUGE, _FEED, "Lateness: age of the oldest of these, from its nominal time."
)
OBSTRUCTED = Family(
    "unreadable_instances", _GAUGE, _FEED, "Those of the missing instances for which storage could not be read."
)
FEED_EVENTS = Family("feed_events", _COUNTER, (*_FEED, _KIND), "Events of the instances of a feed, by kind.")
FEED_BYTES = Family(
    "feed_event_bytes", _COUNTER, (*_FEED, _KIND), "Bytes of the instances in these events, where they are known."
)
ARRIVAL_DELAY = Family(
    "arrival_delay_seconds", _SUMMARY, _FEED, "Time from the nominal time of an instance to its arrival."
)
COPY_BYTES = Family("copy_bytes", _COUNTER, (*_FEED, Label.SOURCE), "Bytes that copies of a feed have transferred.")
COPY_SECONDS = Family(
    "copy_seconds", _SUMMARY, (*_FEED, Label.SOURCE), "Time of the copies of a feed to a cluster, by source cluster."
)

BEHIND = Family(
    "behind_copies", _GAUGE, _PROCESS, "Instances of a replication whose source has had other content for ten minutes."
)

LATE_FEEDS = Family(
    "late_feed_instances", _GAUGE, (*_FEED, _LEVEL), "Instances of a feed that have missed a deadline and are late."
)
FEED_MISSES = Family(
    "feed_sla_misses", _COUNTER, (*_FEED, _LEVEL), "Deadlines that instances of a feed have missed, by level."
)
LATE_PROCESSES = Family(
    "late_process_instances",
    _GAUGE,
    (*_PROCESS, _LEVEL),
    "Instances of a process that have missed a deadline and are late.",
)
PROCESS_MISSES = Family(
    "process_sla_misses", _COUNTER, (*_PROCESS, _LEVEL), "Deadlines that instances of a process have missed, by level."
)
BACKLOG = Family(
    "backlog_seconds", _GAUGE, _PROCESS, "Sum of the ages of the late instances of a process, from the nominal times."
)

LIMIT = Family("series_limit", _GAUGE, (), "The most series that this exposition has.")
LEFT_OUT = Family("series_left_out", _GAUGE, (), "Series that are left out because of the limit.")

FAMILIES = tuple(each for each in vars().values() if isinstance(each, Family))
"""All families, in the order of expositions."""
