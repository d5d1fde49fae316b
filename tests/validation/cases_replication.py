"""The rules about replication; see `cases`."""

from tests.entities.samples import REMOVED
from tests.validation.cases import BACKUP, PRIMARY, Case, another
from tests.validation.cases_tables import tables

EARLY = {"start": "2015-01-01T00:00Z", "end": "2015-02-01T00:00Z"}
FEBRUARY = {"start": "2015-02-01T00:00Z", "end": "2015-03-01T00:00Z"}
POLICY = "feed clicks/replication"
MONTHLY = {
    "feed clicks/frequency": "months(1)",
    "feed clicks/locations": {"data": "/clicks/${YEAR}/${MONTH}"},
    "feed clicks/late_arrival": REMOVED,
    f"{PRIMARY}/retention": REMOVED,
    f"{BACKUP}/retention": REMOVED,
    "process daily/inputs": REMOVED,
}


def valid(source: dict[str, str], target: dict[str, str], **more: object) -> dict[str, object]:
    """The feed `clicks`, read by nobody, with other validities."""
    return {
        f"{PRIMARY}/validity": source,
        f"{BACKUP}/validity": target,
        "process daily/inputs": REMOVED,
        **{f"{PRIMARY}/{name}": value for name, value in more.items()},
    }


def since(start: str) -> dict[str, str]:
    return {"start": f"{start}Z"}


REPLICATION_CASES = (
    Case(
        code="replication-source",
        name="none",
        good={f"{PRIMARY}/type": REMOVED, f"{BACKUP}/type": REMOVED},
        bad={f"{PRIMARY}/type": REMOVED},
        text="feed 'clicks': cluster backup is a target of replication, but no cluster is a source. "
        "Write type: source at the cluster that has the data.",
    ),
    Case(
        code="replication-source",
        name="several",
        good={
            "cluster third": another("cluster primary", name="third", storage="file:///third"),
            f"{PRIMARY}/partition": "${cluster.colo}",
            "feed clicks/clusters/third": {
                "type": "source",
                "partition": "${cluster.name}",
                "validity": {"start": "2015-01-01T00:00Z"},
            },
        },
        bad={
            "cluster third": another("cluster primary", name="third", storage="file:///third"),
            f"{PRIMARY}/partition": "${cluster.colo}",
            "feed clicks/clusters/third": {
                "type": "source",
                "partition": "east",
                "validity": {"start": "2015-01-01T00:00Z"},
            },
        },
        text="feed 'clicks': there are 2 sources, and the partition of third does not differ by cluster: they would "
        'overwrite each other at the target. Write for example partition: "${cluster.colo}" at every source.',
    ),
    Case(
        code="replication-target-slice",
        good={
            "cluster third": another("cluster primary", name="third", storage="file:///third"),
            f"{BACKUP}/partition": "${cluster.colo}",
            "feed clicks/clusters/third": {"type": "target", "validity": {"start": "2015-01-01T00:00Z"}},
        },
        bad={
            "cluster third": another("cluster primary", name="third", storage="file:///third"),
            f"{BACKUP}/partition": "east",
            "feed clicks/clusters/third": {"type": "target", "validity": {"start": "2015-01-01T00:00Z"}},
        },
        text="feed 'clicks': there are 2 targets, and the partition 'east' of backup does not differ by cluster. "
        "Use ${cluster.colo} or another cluster variable in it, or leave it out for a full copy.",
    ),
    Case(
        code="replication-slice-depth",
        good={f"{PRIMARY}/partition": "a", f"{BACKUP}/partition": "b"},
        bad={f"{PRIMARY}/partition": "a/b", f"{BACKUP}/partition": "c"},
        text="feed 'clicks': the partitions of source primary and target backup, a/b/c, are 3 levels deep, but the "
        "feed declares 2. Declare the levels under partitions, or shorten the partition.",
    ),
    Case(
        code="replication-delay",
        good={f"{PRIMARY}/delay": "hours(1)"},
        bad={f"{BACKUP}/delay": "hours(1)"},
        text="feed 'clicks': the delay on backup has no effect: only replication from a source is delayed. "
        "Remove it, or write type: source.",
    ),
    Case(
        code="replication-overlap",
        good=valid(EARLY, {"start": "2015-01-31T23:00Z"}),
        bad=valid({"start": "2021-11-01T00:00Z", "end": "2021-12-31T00:00Z"}, EARLY),
        text="feed 'clicks': source primary (2021-11-01T00:00Z to 2021-12-31T00:00Z) and target backup "
        "(2015-01-01T00:00Z to 2015-02-01T00:00Z) do not have overlapping dates for replication. "
        "Move a validity, or shorten the delay, so that both are valid at the same time.",
    ),
    Case(
        code="replication-overlap",
        name="delay",
        good=valid(EARLY, EARLY, delay="days(2)"),
        bad=valid(EARLY, EARLY, delay="days(32)", retention={"limit": "days(40)"}),
        text="feed 'clicks': source primary (2015-01-01T00:00Z to 2015-02-01T00:00Z), days(32) later, and "
        "target backup (2015-01-01T00:00Z to 2015-02-01T00:00Z) do not have overlapping dates for replication. "
        "Move a validity, or shorten the delay, so that both are valid at the same time.",
    ),
    Case(
        code="replication-nothing",
        name="touching",
        good=valid(EARLY, {"start": "2015-02-01T00:00Z", "end": "2015-02-01T00:00Z"}),
        bad=valid(EARLY, FEBRUARY),
        text="feed 'clicks': source primary (2015-01-01T00:00Z to 2015-02-01T00:00Z) and target backup "
        "(2015-02-01T00:00Z to 2015-03-01T00:00Z) have no instance in common: nothing will ever be copied. "
        "Move a validity, or shorten the delay, unless this is intended.",
    ),
    Case(
        code="replication-nothing",
        name="delay",
        bad=valid(EARLY, EARLY, delay="days(31)", retention={"limit": "days(40)"}),
        text="feed 'clicks': source primary (2015-01-01T00:00Z to 2015-02-01T00:00Z), days(31) later, and "
        "target backup (2015-01-01T00:00Z to 2015-02-01T00:00Z) have no instance in common: nothing will ever be "
        "copied. Move a validity, or shorten the delay, unless this is intended.",
    ),
    Case(
        code="replication-grid",
        name="minutes",
        good=valid(since("2015-01-01T00:00"), since("2015-03-01T05:00")),
        bad=valid(since("2015-01-01T00:00"), since("2015-03-01T05:10")),
        text="feed 'clicks': the instances of hours(1) from 2015-01-01T00:00Z at source primary and from "
        "2015-03-01T05:10Z at target backup have different times. Start both at the same time.",
    ),
    Case(
        code="replication-grid",
        name="months",
        good={**MONTHLY, **valid(since("2015-02-15T00:00"), since("2015-01-15T00:00"))},
        bad={**MONTHLY, **valid(since("2015-02-01T00:00"), since("2015-01-31T00:00"))},
        text="feed 'clicks': the instances of months(1) from 2015-02-01T00:00Z at source primary and from "
        "2015-01-31T00:00Z at target backup have different times. Start both at the same time.",
    ),
    Case(
        code="replication-table",
        good=tables(),
        bad=tables(**{f"{BACKUP}/type": "target"}),
        text="feed 'clicks': the feed is a table on primary, backup: tables are not replicated, so nothing is copied "
        "to backup. Write the table with a process on the target, or store the data at locations.",
    ),
    Case(
        code="replication-options",
        name="target",
        good={POLICY: {"parallel": 2}},
        bad={POLICY: {"parallel": 2}, f"{BACKUP}/type": REMOVED},
        text="feed 'clicks': replication has no effect: no cluster of the feed is a target. "
        "Write type: target at the cluster that receives the copies, or remove it.",
    ),
    Case(
        code="replication-options",
        name="bandwidth",
        good={POLICY: {"bandwidth": "2GB", "task_bandwidth": "2GB"}},
        bad={POLICY: {"bandwidth": "1GB", "task_bandwidth": "1GiB"}},
        text="feed 'clicks': task_bandwidth 1GiB has no effect: bandwidth, of all tasks, is 1GB. "
        "Lower task_bandwidth, or raise bandwidth.",
    ),
    Case(
        code="replication-options",
        name="exclude",
        good={POLICY: {"include": ["**.csv"], "exclude": ["tmp/**.csv"]}},
        bad={POLICY: {"include": ["**.csv"], "exclude": ["**.csv"]}},
        text="feed 'clicks': include '**.csv' has no effect: exclude contains it, too. Remove one of them.",
    ),
    Case(
        code="replication-options",
        name="hidden",
        good={POLICY: {"include": ["**/_metadata", ".crc/*"], "hidden": True}},
        bad={POLICY: {"include": ["_day=*/**", "**/_metadata"]}},
        text="feed 'clicks': include '**/_metadata' has no effect: hidden files are not copied. "
        "Write hidden: true, or remove it.",
    ),
    Case(
        code="replication-pattern",
        name="include",
        good={POLICY: {"include": ["{a,b}*", "a}", "[!0-9]", "[]]", "\\[", "**/x?"]}},
        bad={POLICY: {"include": ["**.csv", "{a,b"]}},
        text="feed 'clicks': replication.include.1 '{a,b' is not a glob: its '{' is not closed. "
        "Write globs such as day=*, {a,b} or [a-z], and a backslash before a literal character.",
    ),
    Case(
        code="replication-pattern",
        name="backslash",
        good={POLICY: {"exclude": ["a\\\\"]}},
        bad={POLICY: {"exclude": ["a\\"]}},
        text="feed 'clicks': replication.exclude.0 'a\\\\' is not a glob: it ends with a lone backslash. "
        "Write globs such as day=*, {a,b} or [a-z], and a backslash before a literal character.",
    ),
    Case(
        code="replication-pattern",
        name="partition",
        good={f"{PRIMARY}/partition": "{us,eu}/*"},
        bad={f"{PRIMARY}/partition": "[eu"},
        text="feed 'clicks': clusters.primary.partition '[eu' is not a glob: its '[' is not closed. "
        "Write globs such as day=*, {a,b} or [a-z], and a backslash before a literal character.",
    ),
    Case(
        code="replication-pattern",
        name="time",
        good={f"{PRIMARY}/partition": "${cluster.name}"},
        bad={f"{PRIMARY}/partition": "day=${DAY}"},
        text="feed 'clicks': clusters.primary.partition 'day=${DAY}' contains ${DAY}, but its path is the same in all "
        "instances. Write variables of the cluster only, or globs.",
    ),
    Case(
        code="path-template",
        name="partition",
        good={"cluster primary/properties": {"region": "us"}, f"{PRIMARY}/partition": "${cluster.region}"},
        bad={"cluster backup/properties": {"region": "us"}, f"{PRIMARY}/partition": "${cluster.region}"},
        text="feed 'clicks': clusters.primary.partition: template '${cluster.region}': the cluster has no property "
        "'region'. Known are colo, name.",
    ),
    Case(
        code="replication-property",
        name="timeout",
        good={"feed clicks/properties": {"timeout": "hours(3)", "overwrite": "yes", "maxMaps": " 20 "}},
        bad={"feed clicks/properties": {"timeout": "abc"}},
        text="feed 'clicks': the property timeout 'abc' is invalid: hours(6) is used. "
        "Correct it, or write replication.timeout.",
    ),
    Case(
        code="replication-property",
        name="order",
        good={"feed clicks/properties": {"order": "RANDOM"}, f"{BACKUP}/type": REMOVED},
        bad={"feed clicks/properties": {"order": "RANDOM"}},
        text="feed 'clicks': the property order 'RANDOM' is invalid: FIFO is used. "
        "Correct it, or write replication.order.",
    ),
    Case(
        code="replication-property",
        name="declared",
        bad={"feed clicks/properties": {"maxMaps": "0"}, POLICY: {"max_tasks": 7}},
        text="feed 'clicks': the property maxMaps '0' is invalid: 7 is used. "
        "Correct it, or write replication.max_tasks.",
    ),
    Case(
        code="replication-property",
        name="preserve",
        good={"feed clicks/properties": {"preserveUser": "false", "preserveTimes": "true", "job.counter": "true"}},
        bad={"feed clicks/properties": {"preserveAcl": "true"}},
        text="feed 'clicks': the property preserveAcl has no effect: access lists are not copied. Remove it.",
    ),
    Case(
        code="replication-property",
        name="other",
        good={"feed clicks/properties": {"parallel": "2", "preserveTimes": "true"}, POLICY: {"parallel": 2}},
        bad={"feed clicks/properties": {"removeDeletedFiles": "true"}, POLICY: {"removed_files": "keep"}},
        text="feed 'clicks': the property removeDeletedFiles 'true' is not used: replication.removed_files "
        "overrides it. Remove one of them.",
    ),
)
