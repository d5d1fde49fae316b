"""For every rule: changes of the sample entities that it accepts, and changes that it refuses with this text."""

from dataclasses import dataclass, field
from typing import Any

from tests.entities.samples import BASE, REMOVED

Changes = dict[str, Any]
PRIMARY = "feed clicks/clusters/primary"
BACKUP = "feed clicks/clusters/backup"
DAILY = "process daily"
SUMMARY = "feed summary/clusters/primary/validity"
ONLY_PRIMARY = {"primary": {"validity": {"start": "2015-01-01T00:00Z", "end": "2016-01-01T00:00Z"}}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One rule on two bundles; `text` is the complaint about the bad one, without the place."""

    code: str
    good: Changes = field(default_factory=dict)
    bad: Changes
    text: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.code}{'-' if self.name else ''}{self.name}"


def another(label: str, **changes: Any) -> dict[str, Any]:
    """A copy of a sample with other values."""
    return {**BASE[label], **changes}


BERLIN = {
    f"{DAILY}/timezone": "Europe/Berlin",
    f"{DAILY}/clusters/primary/validity": {"start": "2015-01-05T23:00Z", "end": "2015-12-30T23:00Z"},
}
"""The process of the samples with days of another zone."""

STEPS: dict[str, Any] = {
    "steps": {
        "extract": {"path": "jobs:extract"},
        "clean": {"engine": "sql", "path": "there.sql", "after": ["extract"]},
    }
}

ORDERS = {"name": "orders", "signal": True, "clusters": ONLY_PRIMARY}
ELSEWHERE: dict[str, Any] = {
    "name": "load",
    "clusters": ONLY_PRIMARY,
    "inputs": {"orders": {"feed": "orders", "take": "new"}},
    "trigger": {},
    "workflow": {"engine": "external", "steps": {"extract": {}, "load": {"after": ["extract"]}}},
}
"""A process whose batches somebody's program takes."""

CASES = (
    Case(
        code="day-in-another-zone",
        name="output",
        good={**BERLIN, "feed summary/timezone": "Europe/Berlin", f"{SUMMARY}/start": "2014-12-31T23:00Z"},
        bad=BERLIN,
        text="process 'daily': outputs.summary.instance: the day of Europe/Berlin that begins at 2015-01-04T23:00Z is "
        "written as the day of feed 'summary' in UTC, from 2015-01-04T00:00Z to 2015-01-05T00:00Z: 23 hours too early. "
        "Write timezone: UTC at the process, or timezone: Europe/Berlin at the feed.",
    ),
    Case(
        code="day-in-another-zone",
        name="input",
        good={
            f"{DAILY}/inputs/past": {"feed": "summary", "start": "today(-24,0)", "end": "today(-24,0)"},
            f"{DAILY}/outputs": REMOVED,
        },
        bad={
            **BERLIN,
            f"{DAILY}/inputs/past": {"feed": "summary", "start": "today(-48,0)", "end": "today(-48,0)"},
            f"{DAILY}/outputs": REMOVED,
        },
        text="process 'daily': inputs.past.start: for the day of Europe/Berlin that begins at 2015-01-03T23:00Z it "
        "reads the day of feed 'summary' in UTC, from 2015-01-03T00:00Z to 2015-01-04T00:00Z: the first 23 hours of "
        "that are before it, and its own last 23 hours, from 2015-01-04T00:00Z on, fall out. Write timezone: UTC at "
        "the process, or timezone: Europe/Berlin at the feed, or read a feed of hours, whose instances are the same in "
        "all zones.",
    ),
    Case(
        code="feed-schema",
        name="type",
        good={
            "feed clicks/schema": "a string, b array<struct<c: int, d: decimal(10,2)>> NOT NULL, e map<date,time(6)>"
        },
        bad={"feed clicks/schema": "a string, b array<struct<c: integr>>"},
        text="feed 'clicks': its column 'b' has a type that Spark does not know: 'integr'. Did you mean 'integer'?",
    ),
    Case(
        code="cluster-folders",
        good={"cluster primary/locations": {"staging": "/staging", "working": "/working"}},
        bad={"cluster primary/locations": {"staging": "/apps", "working": "/apps/"}},
        text="cluster 'primary': locations.working is the folder of locations.staging, '/apps/'. "
        "Give each a folder of its own.",
    ),
    Case(
        code="cluster-root",
        bad={"cluster backup/storage": "file:///data/clicks/2015/01/02/03/inner"},
        text="cluster 'backup': the storage file:///data/clicks/2015/01/02/03/inner would be removed with an instance: "
        "it is inside the data of feed 'clicks' on primary. Use a folder of its own.",
    ),
    Case(
        code="no-effect",
        good={f"{DAILY}/sla": {"should_end_in": "hours(2)"}},
        bad={
            f"{DAILY}/sla": {"should_end_in": "hours(2)"},
            f"{DAILY}/trigger": {"when": "clicks"},
            f"{DAILY}/frequency": REMOVED,
            f"{DAILY}/outputs": REMOVED,
        },
        text="process 'daily': sla has no effect yet: batches are made of what has come, and none is expected at a "
        "time. Keep it for a later release, or remove it.",
    ),
    Case(
        code="no-effect",
        name="update",
        good={"process daily/trigger": {"on_update": "rerun"}},
        bad={
            "process daily/trigger": {"on_update": "rerun"},
            "process daily/inputs": {"clicks": {"feed": "clicks", "start": "latest(0)", "end": "latest(0)"}},
        },
        text="process 'daily': trigger.on_update has no effect yet: which instances have read what follows from no "
        "window. Keep it for a later release, or remove it.",
    ),
    Case(
        code="no-effect",
        name="property",
        bad={"feed clicks/properties": {"catalog.table": "web.clicks"}},
        text="feed 'clicks': properties.catalog.table has no effect yet: no data are imported into a table of the "
        "catalog. Keep it for a later release, or remove it.",
    ),
    Case(
        code="clear-text-credential",
        bad={"cluster primary/properties": {"fs.s3a.secret.key": "wJalrXUtnFEMI"}},
        text="cluster 'primary': properties.fs.s3a.secret.key is a credential in clear text: whoever reads the file or "
        "the record of definitions sees it. Write ${env:NAME} and export NAME.",
    ),
    Case(
        code="notification-address",
        bad={f"{DAILY}/notification": {"to": ["ops@example.com", "not-an-address"]}},
        text="process 'daily': notification.to 'not-an-address': it is no address of electronic mail like "
        "ops@example.com. Write it like ops@example.com.",
    ),
    Case(
        code="notification-address",
        name="url",
        good={f"{DAILY}/notification": {"type": "webhook", "to": ["https://example.com/hook"]}},
        bad={f"{DAILY}/notification": {"type": "webhook", "to": ["ftp://example.com"]}},
        text="process 'daily': notification.to 'ftp://example.com': it is no URL like https://example.com/hook. Write "
        "it like https://example.com/hook.",
    ),
    Case(
        code="notification-address",
        name="scheme",
        good={f"{DAILY}/notification": {"type": "chat", "to": ["json://localhost/chat"]}},
        bad={f"{DAILY}/notification": {"type": "chat", "to": ["slakc://T0/B0/XX"]}},
        text="process 'daily': notification.to 'slakc://T0/B0/XX': apprise knows no such URL. Write a URL of apprise: "
        "https://github.com/caronc/apprise/wiki lists them.",
    ),
    Case(
        code="hidden-property",
        good={"cluster primary/properties": {"region": "east"}},
        bad={"cluster primary/properties": {"colo": "x"}},
        text="cluster 'primary': the property 'colo' is hidden: ${cluster.colo} is the cluster's own colo. "
        "Rename the property.",
    ),
    Case(
        code="datasource-interface",
        bad={"datasource shop/driver": REMOVED},
        text="datasource 'shop': interfaces.readonly has no driver, and neither has the datasource. "
        "Add driver to one of them.",
    ),
    Case(
        code="unknown-reference",
        name="feed",
        bad={f"{DAILY}/inputs/clicks/feed": "cliks"},
        text="process 'daily': there is no feed 'cliks'. Did you mean 'clicks'?",
    ),
    Case(
        code="unknown-reference",
        name="cluster",
        bad={"feed summary/clusters/elsewhere": {"validity": {"start": "2015-01-01T00:00Z"}}},
        text="feed 'summary': there is no cluster 'elsewhere'. Declare it, or refer to another cluster.",
    ),
    Case(
        code="cluster-version",
        good={"cluster primary/version": 2, f"{PRIMARY}/version": 2},
        bad={"cluster primary/version": 2, f"{PRIMARY}/version": 3},
        text="feed 'clicks': version 3 of cluster 'primary' does not exist; the current one is 2. "
        "Leave the version out, or correct it.",
    ),
    Case(
        code="feed-validity",
        good={f"{BACKUP}/validity": {"start": "2015-01-01T00:00Z", "end": "2015-01-01T00:00Z"}},
        bad={f"{BACKUP}/validity": {"start": "2015-01-01T00:00Z", "end": "2014-01-01T00:00Z"}},
        text="feed 'clicks': the validity on backup ends at 2014-01-01T00:00Z, before its start 2015-01-01T00:00Z. "
        "Move the end after the start.",
    ),
    Case(
        code="feed-sla",
        name="order",
        good={"feed clicks/sla": {"low": "hours(3)", "high": "hours(3)"}},
        bad={"feed clicks/sla": {"low": "hours(4)", "high": "hours(3)"}, BACKUP: REMOVED},
        text="feed 'clicks': sla.low hours(4) is longer than sla.high hours(3). Lower sla.low, or raise sla.high.",
    ),
    Case(
        code="feed-sla",
        name="retention",
        good={f"{PRIMARY}/sla": {"low": "hours(3)", "high": "days(30)"}},
        bad={f"{PRIMARY}/sla": {"low": "hours(3)", "high": "days(31)"}},
        text="feed 'clicks': sla.high days(31) is longer than retention days(30) on primary: an instance could be "
        "evicted before it is late. Lower sla.high, or raise retention.limit to at least days(31).",
    ),
    Case(
        code="feed-schema",
        good={"feed clicks/schema": "id bigint, at timestamp"},
        bad={"feed clicks/schema": "id, at timestamp"},
        text="feed 'clicks': its schema cannot be read: 'id' is not a name and a type. "
        "Write columns as Spark does: name type, name type.",
    ),
    Case(
        code="job-priority",
        good={"feed clicks/properties": {"jobPriority": "very_high"}},
        bad={"feed clicks/properties": {"jobPriority": "urgent"}},
        text="feed 'clicks': jobPriority 'urgent' is not a priority; NORMAL is used. "
        "Write one of VERY_HIGH, HIGH, NORMAL, LOW, VERY_LOW.",
    ),
    Case(
        code="job-priority",
        name="process",
        good={"process daily/properties": {"jobPriority": "LOW"}},
        bad={"process daily/properties": {"jobPriority": ""}},
        text="process 'daily': jobPriority '' is not a priority; NORMAL is used. "
        "Write one of VERY_HIGH, HIGH, NORMAL, LOW, VERY_LOW.",
    ),
    Case(
        code="produced-by",
        good={"feed clicks/clusters/primary/produced_by": {"asset": ["team", "clicks"]}},
        bad={"feed summary/clusters/primary/produced_by": {"asset": "team/summary"}},
        text="feed 'summary': asset team/summary produces the feed on primary, but process 'daily' writes it there, "
        "too. Remove produced_by, or give each a feed of its own.",
    ),
    Case(
        code="feed-instances",
        name="too-fine",
        bad={
            "feed fine": {
                "name": "fine",
                "frequency": "seconds(30)",
                "clusters": ONLY_PRIMARY,
                "locations": {"data": "/fine/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"},
            }
        },
        text="feed 'fine': seconds(30) is too fine for instances on schedule. Write at least minutes(1), or instances: "
        "as-they-come.",
    ),
    Case(
        code="feed-instances",
        name="as-they-come",
        bad={"feed summary/instances": "as-they-come", "feed summary/late_arrival": {"cut_off": "hours(1)"}},
        text="feed 'summary': late_arrival has no meaning: its instances come as they come. Remove it, or write "
        "instances: on-schedule.",
    ),
    Case(
        code="feed-watch",
        name="written",
        good={
            "feed landed": {
                "name": "landed",
                "instances": "as-they-come",
                "watch": "minutes(1)",
                "clusters": ONLY_PRIMARY,
                "locations": {"data": "/landed/${YEAR}${MONTH}${DAY}/${HOUR}${MINUTE}${SECOND}"},
            }
        },
        bad={"feed summary/instances": "as-they-come", "feed summary/watch": "minutes(1)"},
        text="feed 'summary': watch has no meaning: process 'daily' writes it, and each publication is an event by "
        "itself. Remove it.",
    ),
    Case(
        code="feed-instances",
        name="signal",
        good={"feed approval": {"name": "approval", "signal": True, "clusters": ONLY_PRIMARY}},
        bad={
            "feed approval": {
                "name": "approval",
                "signal": True,
                "clusters": ONLY_PRIMARY,
                "locations": {"data": "/a/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"},
            }
        },
        text="feed 'approval': locations has no meaning: the feed is a signal, without data of its own. Remove it, or "
        "remove signal and asset.",
    ),
    Case(
        code="window-as-they-come",
        good={
            "feed orders": {"name": "orders", "signal": True, "clusters": ONLY_PRIMARY},
            f"{DAILY}/inputs/orders": {"feed": "orders", "start": "latest(0)", "end": "latest(0)"},
        },
        bad={
            "feed orders": {"name": "orders", "signal": True, "clusters": ONLY_PRIMARY},
            f"{DAILY}/inputs/orders": {"feed": "orders", "start": "today(0,0)", "end": "today(0,0)"},
        },
        text="process 'daily': inputs.orders reads a window of feed 'orders', whose instances come as they come: "
        "nobody knows which are due. Write take: new for each instance once, or latest(0) for the newest.",
    ),
    Case(
        code="batch-output",
        bad={
            "feed orders": {"name": "orders", "signal": True, "clusters": ONLY_PRIMARY},
            "feed sums": {
                "name": "sums",
                "frequency": "days(1)",
                "clusters": ONLY_PRIMARY,
                "locations": {"data": "/sums/${YEAR}${MONTH}${DAY}"},
            },
            "process load": {
                "name": "load",
                "clusters": ONLY_PRIMARY,
                "trigger": {"when": "orders"},
                "inputs": {"orders": {"feed": "orders", "take": "new"}},
                "outputs": {"sums": {"feed": "sums", "instance": "now(0,0)"}},
                "workflow": {"path": "jobs:load"},
            },
        },
        text="process 'load': outputs.sums writes feed 'sums', whose instances are on schedule: batches that come "
        "within one of them would replace each other. Write a feed with instances: as-they-come.",
    ),
    Case(
        code="availability-flag",
        good={"feed clicks/availability_flag": "_SUCCESS"},
        bad={"feed clicks/availability_flag": "../_SUCCESS"},
        text="feed 'clicks': availability_flag '../_SUCCESS' is not the name of a file in the instance. "
        "Write a name without slashes, for example _SUCCESS.",
    ),
    Case(
        code="partition-names",
        bad={"feed clicks/partitions": ["country", "country"]},
        text="feed 'clicks': the partition 'country' is declared twice. Give each level its own name.",
    ),
    Case(
        code="path-template",
        name="variable",
        good={"feed summary/locations/stats": "/stats/${YEAR}"},
        bad={"feed summary/locations/stats": "/stats/${YEER}"},
        text="feed 'summary': locations.stats: template '/stats/${YEER}': ${YEER} is not a variable of paths. "
        "Did you mean ${YEAR}?",
    ),
    Case(
        code="path-template",
        name="cluster-property",
        good={
            "feed summary/locations/data": "/${cluster.zone}/${YEAR}/${MONTH}/${DAY}",
            "cluster primary/properties": {"zone": "a"},
        },
        bad={"feed summary/locations/data": "/${cluster.zone}/${YEAR}/${MONTH}/${DAY}"},
        text="feed 'summary': locations.data: template '/${cluster.zone}/${YEAR}/${MONTH}/${DAY}': the cluster has no "
        "property 'zone'. Known are colo, name.",
    ),
    Case(
        code="path-segment",
        name="up",
        good={"feed summary/locations/data": "/a/..b/${YEAR}/${MONTH}/${DAY}"},
        bad={"feed summary/locations/data": "/a/../summary/${YEAR}/${MONTH}/${DAY}"},
        text="feed 'summary': locations.data '/a/../summary/${YEAR}/${MONTH}/${DAY}' has the segment '..', which no "
        "store accepts. Write the path without it.",
    ),
    Case(
        code="path-segment",
        name="hidden",
        bad={"feed summary/locations/stats": "/.feed-assets/${YEAR}"},
        text="feed 'summary': locations.stats '/.feed-assets/${YEAR}' has the segment '.feed-assets', which no store "
        "accepts. Write the path without it.",
    ),
    Case(
        code="path-without-time",
        bad={"feed summary/locations/data": "/summary"},
        text="feed 'summary': locations.data '/summary' has no time variable: all instances have the same path. "
        "Add ${YEAR} and as many of ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE} as the frequency needs.",
    ),
    Case(
        code="path-granularity",
        name="coarse",
        good={"feed summary/frequency": "hours(24)"},
        bad={"feed summary/frequency": "hours(12)"},
        text="feed 'summary': locations.data is too coarse: without ${HOUR} several instances of hours(12) have the "
        "same "
        ""
        "path. Add the missing variable to the path.",
    ),
    Case(
        code="path-granularity",
        name="clocks-go-back",
        good={"feed clicks/timezone": "Asia/Kolkata"},
        bad={"feed clicks/timezone": "America/New_York", BACKUP: REMOVED},
        text="feed 'clicks': locations.data is too coarse: 2015-11-01T05:00Z and 2015-11-01T06:00Z have the same path, "
        "because local time in America/New_York repeats when the clocks go back. Set the time zone of the feed to UTC.",
    ),
    Case(
        code="path-granularity",
        name="paths-in-another-zone",
        good={"feed clicks/path_timezone": "Asia/Kolkata"},
        bad={"feed clicks/path_timezone": "America/New_York", BACKUP: REMOVED},
        text="feed 'clicks': locations.data is too coarse: 2015-11-01T05:00Z and 2015-11-01T06:00Z have the same path, "
        "because local time in America/New_York repeats when the clocks go back. Set path_timezone to UTC.",
    ),
    Case(
        code="path-variables",
        good={f"{BACKUP}/locations": {"data": "/copies/${YEAR}-${MONTH}-${DAY}-${HOUR}"}},
        bad={f"{BACKUP}/locations": {"data": "/copies/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"}},
        text="feed 'clicks': the data path on backup has the variables ${YEAR}, ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE}, "
        "the feed's has ${YEAR}, ${MONTH}, ${DAY}, ${HOUR}. Use the same variables in both.",
    ),
    Case(
        code="path-shared",
        bad={
            BACKUP: REMOVED,
            f"{PRIMARY}/retention": REMOVED,
            "feed other": another("feed clicks", name="other", clusters=ONLY_PRIMARY),
        },
        text="feed 'other': on primary the data share a location with feed 'clicks' on primary: retention and "
        "publications would conflict. Give each its own path.",
    ),
    Case(
        code="path-written",
        bad={"feed other": another("feed summary", name="other")},
        text="feed 'summary': a process or a copy writes the data of feed 'summary' on primary, at the data of feed "
        "'other' on primary: its publications would remove data of both. Give each its own path.",
    ),
    Case(
        code="path-written",
        name="around",
        bad={"feed summary/locations/data": "/clicks/${YEAR}/${MONTH}/${DAY}", f"{PRIMARY}/retention": REMOVED},
        text="feed 'summary': a process or a copy writes the data of feed 'summary' on primary, around the data of "
        "feed 'clicks' on primary: its publications would remove data of both. Give each its own path.",
    ),
    Case(
        code="feed-group",
        name="frequency",
        good={"feed summary/groups": ["daily"]},
        bad={
            "feed summary/groups": ["web"],
            "feed summary/locations/data": "/summary/${YEAR}/${MONTH}/${DAY}/${HOUR}",
        },
        text="feed 'summary': group 'web' has feeds of frequency hours(1) (such as 'clicks'), this one has days(1). "
        "Write the same frequency, or leave the group.",
    ),
    Case(
        code="feed-group",
        name="variables",
        bad={
            "feed views": another(
                "feed clicks", name="views", locations={"data": "/v/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"}
            )
        },
        text="feed 'views': group 'web' has feeds with the path variables ${YEAR}, ${MONTH}, ${DAY}, ${HOUR} (such as "
        "'clicks'), this one has ${YEAR}, ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE}. Use the same variables, or leave the "
        "group.",
    ),
    Case(
        code="feed-not-on-cluster",
        bad={f"{DAILY}/clusters/backup": {"validity": {"start": "2015-01-02T00:00Z", "end": "2015-12-31T00:00Z"}}},
        text="process 'daily': feed 'summary' is not defined on cluster backup, only on primary. "
        "Add the cluster to the feed, or remove it from the process.",
    ),
    Case(
        code="process-validity",
        bad={f"{DAILY}/clusters/primary/validity/end": "2015-01-02T00:00Z"},
        text="process 'daily': the validity on primary ends at 2015-01-02T00:00Z, not after its start "
        "2015-01-02T00:00Z. Move the end after the start.",
    ),
    Case(
        code="input-output-names",
        name="both",
        bad={
            f"{DAILY}/outputs/clicks": {"feed": "other", "instance": "now(0,0)"},
            "feed other": another("feed summary", name="other", locations={"data": "/other/${YEAR}/${MONTH}/${DAY}"}),
        },
        text="process 'daily': 'clicks' is the name of an input and of an output. Rename one of them.",
    ),
    Case(
        code="input-output-names",
        name="parameter",
        good={f"{DAILY}/inputs/late-clicks": {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}},
        bad={f"{DAILY}/inputs/spark": {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}},
        text="process 'daily': the input 'spark' cannot be a parameter of a function: spark is reserved. "
        "Rename the input.",
    ),
    Case(
        code="expression",
        name="unknown",
        bad={f"{DAILY}/inputs/clicks/start": "yesteday(0,0)"},
        text="process 'daily': inputs.clicks.start: expression 'yesteday(0,0)', character 1: yesteday is not a time "
        "function. Did you mean yesterday?",
    ),
    Case(
        code="expression",
        name="mixed",
        good={f"{DAILY}/inputs/clicks": {"feed": "clicks", "start": "latest(-3)", "end": "latest(0)"}},
        bad={f"{DAILY}/inputs/clicks": {"feed": "clicks", "start": "latest(-3)", "end": "now(0,0)"}},
        text="process 'daily': inputs.clicks: window from latest(-3) to now(0,0): latest and future can only be "
        "combined with themselves. Write both ends with the same function.",
    ),
    Case(
        code="expression",
        name="output",
        bad={f"{DAILY}/outputs/summary/instance": "latest(0)"},
        text="process 'daily': outputs.summary.instance 'latest(0)' depends on available data. "
        "Write a function of the nominal time, for example now(0,0).",
    ),
    Case(
        code="window-range",
        name="before-feed",
        bad={f"{DAILY}/inputs/clicks/start": "yesterday(-1,0)"},
        text="process 'daily': the first instance on primary, 2015-01-02T00:00Z, reads feed 'clicks' from "
        "2014-12-31T23:00Z, before the start of the feed at 2015-01-01T00:00Z. "
        "Start the process later, the window later, or the feed earlier.",
    ),
    Case(
        code="window-range",
        name="backwards",
        good={f"{DAILY}/inputs/clicks/end": "yesterday(0,0)"},
        bad={f"{DAILY}/inputs/clicks/start": "today(0,0)"},
        text="process 'daily': the first instance on primary, 2015-01-02T00:00Z, reads feed 'clicks' from "
        "2015-01-02T00:00Z to 2015-01-01T23:00Z: the end is before the start. "
        "Swap start and end, or correct them.",
    ),
    Case(
        code="window-range",
        name="after-feed",
        bad={f"{PRIMARY}/validity/end": "2015-01-01T12:00Z"},
        text="process 'daily': the first instance on primary, 2015-01-02T00:00Z, reads feed 'clicks' to "
        "2015-01-01T23:00Z, after the end of the feed at 2015-01-01T12:00Z. "
        "End the window earlier, start the process earlier, or extend the feed's validity.",
    ),
    Case(
        code="window-retention",
        good={f"{DAILY}/inputs/clicks": {"feed": "clicks", "start": "latest(-9000)", "end": "latest(0)"}},
        bad={f"{PRIMARY}/retention/limit": "hours(20)"},
        text="process 'daily': inputs.clicks.start yesterday(0,0) reaches up to 1 days back, but feed 'clicks' on "
        "primary keeps hours(20). Start the window later, raise retention.limit of the feed, or write "
        "until_read_by: [daily] there.",
    ),
    Case(
        code="window-too-small",
        good={f"{DAILY}/inputs/clicks/at_least": 24},
        bad={f"{DAILY}/inputs/clicks/at_least": 25},
        text="process 'daily': inputs.clicks waits for 25 instances of feed 'clicks' on primary, but its window has 24 "
        "at most. Lower at_least, or widen the window.",
    ),
    Case(
        code="window-outlives-feed",
        good={f"{PRIMARY}/validity/end": REMOVED, f"{DAILY}/clusters/primary/validity/end": REMOVED},
        bad={f"{DAILY}/clusters/primary/validity/end": REMOVED},
        text="process 'daily': on primary feed 'clicks' ends at 2016-01-01T00:00Z, before the process: its later "
        "instances read less and less of it, then nothing. "
        "End the process with the feed, or extend the feed's validity.",
    ),
    Case(
        code="output-range",
        bad={f"{DAILY}/outputs/summary/instance": "yesterday(-24,0)"},
        text="process 'daily': the first instance on primary, 2015-01-02T00:00Z, writes 2014-12-31T00:00Z, before the "
        "start of feed 'summary' at 2015-01-01T00:00Z. "
        "Correct the instance expression, or the validity of the process or the feed.",
    ),
    Case(
        code="output-replicated",
        good={"feed summary/clusters/primary/type": "source"},
        bad={
            "feed summary/clusters/primary/type": "target",
            "feed summary/clusters/backup": {"type": "source", "validity": {"start": "2015-01-01T00:00Z"}},
        },
        text="process 'daily': feed 'summary' is replicated to primary, but the process also writes it there. "
        "Write it at a source, or remove type: target.",
    ),
    Case(
        code="several-writers",
        good={
            "process second": another(
                DAILY,
                name="second",
                clusters={"primary": {"validity": {"start": "2015-12-31T00:00Z", "end": "2016-01-01T00:00Z"}}},
            )
        },
        bad={"process second": another(DAILY, name="second")},
        text="process 'second': output 'summary' of process 'daily' writes the same instances of feed 'summary' on "
        "primary, such as 2015-01-01T00:00Z. "
        "Give each instance one writer: another instance expression, validity, feed or cluster.",
    ),
    Case(
        code="waits-for-itself",
        name="own-output",
        good={
            f"{DAILY}/inputs/before": {"feed": "summary", "start": "yesterday(-24,0)", "end": "yesterday(-24,0)"},
            f"{DAILY}/clusters/primary/validity/start": "2015-01-03T00:00Z",
        },
        bad={f"{DAILY}/inputs/before": {"feed": "summary", "start": "yesterday(0,0)", "end": "yesterday(0,0)"}},
        text="process 'daily': on primary an instance waits for itself: daily 2015-01-02T00:00Z reads feed 'summary' "
        "of "
        ""
        "daily 2015-01-02T00:00Z. "
        "End a window of this cycle earlier, for example at now(0,-60) or yesterday(0,0).",
    ),
    Case(
        code="input-partition",
        good={f"{DAILY}/inputs/clicks/partition": "*/nyc"},
        bad={f"{DAILY}/inputs/clicks/partition": "us/nyc/1"},
        text="process 'daily': inputs.clicks.partition 'us/nyc/1' is 3 levels deep, but feed 'clicks' declares "
        "country/colo. Shorten it, or declare the levels under partitions of the feed.",
    ),
    Case(
        code="process-sla",
        name="order",
        good={f"{DAILY}/sla": {"should_start_in": "hours(2)", "should_end_in": "hours(2)"}},
        bad={f"{DAILY}/sla": {"should_start_in": "hours(3)", "should_end_in": "hours(2)"}},
        text="process 'daily': sla.should_start_in hours(3) is longer than should_end_in hours(2). "
        "Lower should_start_in, or raise should_end_in.",
    ),
    Case(
        code="process-sla",
        name="timeout",
        bad={f"{DAILY}/clusters/primary/sla": {"should_start_in": "hours(13)", "should_end_in": "hours(14)"}},
        text="process 'daily': clusters.primary.sla.should_start_in hours(13) is longer than the timeout hours(12): an "
        "instance would be given up before it is late. Lower should_start_in, or raise timeout.",
    ),
    Case(
        code="process-sla",
        name="end",
        good={f"{DAILY}/sla": {"should_end_in": "hours(2)", "since": "2015-01-01T00:00Z", "warn_at": 0.8}},
        bad={f"{DAILY}/sla": {"should_start_in": "hours(2)"}},
        text="process 'daily': sla has no should_end_in, so that nothing tells when an instance is late. Add "
        "should_end_in, or remove sla.",
    ),
    Case(
        code="late-input",
        name="feed",
        good={f"{DAILY}/late_process": {"policy": "final", "delay": "hours(1)", "inputs": ["clicks"]}},
        bad={
            f"{DAILY}/late_process": {"policy": "final", "delay": "hours(1)", "inputs": ["clicks"]},
            "feed clicks/late_arrival": REMOVED,
        },
        text="process 'daily': late_process watches the input 'clicks', but feed 'clicks' has no late_arrival. "
        "Write late_arrival: {cut_off: hours(6)} at the feed, or remove the input from late_process.",
    ),
    Case(
        code="late-input",
        name="name",
        bad={f"{DAILY}/late_process": {"policy": "final", "delay": "hours(1)", "inputs": ["views"]}},
        text="process 'daily': late_process refers to a missing input 'views'. The inputs are clicks.",
    ),
    Case(
        code="text",
        good={f"{DAILY}/properties": {"day": "${formatTime(instanceTime(), 'yyyy-MM-dd')}-${cluster.colo}"}},
        bad={f"{DAILY}/properties": {"day": "${cluster.zone}"}},
        text="process 'daily': properties.day: expression '${cluster.zone}', character 3: cluster.zone is not a known "
        "variable (known: YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, "
        "cluster.colo, cluster.name, day). Did you mean cluster.name?",
    ),
    Case(
        code="workflow-path",
        name="python",
        good={f"{DAILY}/workflow/path": "jobs/daily.py:summarize"},
        bad={f"{DAILY}/workflow/path": "jobs.daily"},
        text="process 'daily': workflow.path 'jobs.daily' does not match engine python: it names no function. "
        "Write package.module:function or folder/file.py:function.",
    ),
    Case(
        code="workflow-path",
        name="jar",
        good={f"{DAILY}/workflow": {"engine": "spark-submit", "path": "a.jar", "main_class": "a.B"}},
        bad={f"{DAILY}/workflow": {"engine": "spark-submit", "path": "a.jar"}},
        text="process 'daily': workflow.path 'a.jar' does not match engine spark-submit: a jar needs its main class. "
        "Write main_class.",
    ),
    Case(
        code="workflow-submit",
        bad={f"{DAILY}/workflow/args": ["x"]},
        text="process 'daily': args has no effect with engine python. Remove it, or write engine: spark-submit.",
    ),
    Case(
        code="workflow-steps",
        good={f"{DAILY}/workflow": STEPS},
        bad={f"{DAILY}/workflow": {"steps": {**STEPS["steps"], "load": {"path": "jobs:load", "after": ["cleans"]}}}},
        text="process 'daily': step 'load' comes after 'cleans', which is no step. Did you mean 'clean'?",
    ),
    Case(
        code="workflow-steps",
        name="ring",
        bad={
            f"{DAILY}/workflow": {
                "steps": {"a": {"path": "jobs:a", "after": ["b"]}, "b": {"path": "jobs:b", "after": ["a"]}}
            }
        },
        text="process 'daily': these steps wait for one another: a → b → a. Remove one from after.",
    ),
    Case(
        code="workflow-steps",
        name="input",
        bad={f"{DAILY}/workflow": {"steps": {"clicks": {"path": "jobs:a"}}}},
        text="process 'daily': the frame of step 'clicks' cannot be passed to the steps behind it: 'clicks' is an "
        "input. Rename the step.",
    ),
    Case(
        code="workflow-steps",
        name="argument",
        bad={f"{DAILY}/workflow": {"steps": {"context": {"path": "jobs:a"}}}},
        text="process 'daily': the frame of step 'context' cannot be passed to the steps behind it: functions have "
        "another argument of this name. Rename the step.",
    ),
    Case(
        code="work-elsewhere",
        good={"feed orders": ORDERS, "process load": ELSEWHERE},
        bad={f"{DAILY}/workflow": {"engine": "external"}},
        text="process 'daily': work elsewhere takes batches of what has come, but this process has a frequency. "
        "Write a trigger instead of the frequency, for example trigger: {or_every: hours(1)}.",
    ),
    Case(
        code="work-elsewhere",
        name="retry",
        bad={
            "feed orders": ORDERS,
            "process load": {**ELSEWHERE, "retry": {"policy": "periodic", "delay": "minutes(1)", "attempts": 3}},
        },
        text="process 'load': retry has no effect: a batch that failed elsewhere is the next one that is taken there. "
        "Remove retry.",
    ),
    Case(
        code="work-elsewhere",
        name="order",
        bad={"feed orders": ORDERS, "process load": {**ELSEWHERE, "order": "LIFO"}},
        text="process 'load': order LIFO has no effect: whoever works elsewhere takes the oldest batch first. "
        "Remove order.",
    ),
    Case(
        code="work-elsewhere",
        name="late",
        bad={
            f"{DAILY}/late_process": {
                "policy": "final",
                "delay": "hours(1)",
                "inputs": {"clicks": {"engine": "external"}},
            },
            "feed clicks/late_arrival": {"cut_off": "hours(6)"},
        },
        text="process 'daily': late_process.inputs.clicks: late data are processed here, not elsewhere. "
        "Write another engine.",
    ),
    Case(
        code="workflow-file",
        good={f"{DAILY}/workflow": {"engine": "sql", "path": "there.sql"}},
        bad={f"{DAILY}/workflow": {"engine": "sql", "path": "nowhere.sql"}},
        text="process 'daily': the file 'nowhere.sql' does not exist in <root>. "
        "Correct the path; it is relative to the folder of feed_assets.yaml.",
    ),
)
