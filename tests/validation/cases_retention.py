"""The rules about retention; see `cases`."""

from tests.entities.samples import REMOVED
from tests.validation.cases import BACKUP, PRIMARY, Case

LIMIT = "retention.policy.agebaseddelete.limit"
STAGE = {"retention_stage": {"properties": {LIMIT: "days(20)"}}}
HOURLY = "/${YEAR}/${MONTH}/${DAY}/${HOUR}"
ARCHIVE = {"limit": "days(90)", "action": "archive"}
SUMMARY = "feed summary/clusters/primary"
KEEP = f"{PRIMARY}/retention"


def archived(to: str) -> dict[str, object]:
    return {f"{BACKUP}/retention": {**ARCHIVE, "archive_to": to}}


RETENTION_CASES = (
    Case(
        code="retention-limit",
        name="size",
        good={KEEP: {"max_bytes": "10GiB"}},
        bad={KEEP: {"keep_newest": 3}},
        text="feed 'clicks': the retention on primary has no limit: nothing would ever be removed. "
        "Write limit, max_instances or max_bytes, or remove retention.",
    ),
    Case(
        code="retention-limit",
        name="stage",
        good={KEEP: {"keep_newest": 3}, f"{PRIMARY}/lifecycle": STAGE},
        bad={KEEP: {"trash": "days(3)"}},
        text="feed 'clicks': the retention on primary has no limit: nothing would ever be removed. "
        "Write limit, max_instances or max_bytes, or remove retention.",
    ),
    Case(
        code="retention-late-arrival",
        good={"feed clicks/late_arrival/cut_off": "days(30)"},
        bad={"feed clicks/late_arrival/cut_off": "hours(72)", f"{KEEP}/limit": "days(2)"},
        text="feed 'clicks': retention days(2) is shorter than late arrival hours(72): late data would be deleted "
        "before it is processed. Raise retention.limit to at least hours(72).",
    ),
    Case(
        code="retention-late-arrival",
        name="count",
        good={f"{BACKUP}/retention": {"max_instances": 6}},
        bad={f"{BACKUP}/retention": {"limit": "days(2)", "max_instances": 3}},
        text="feed 'clicks': retention 3 instances is shorter than late arrival hours(6): late data would be deleted "
        "before it is processed. Raise retention.max_instances to at least 6.",
    ),
    Case(
        code="feed-sla",
        name="count",
        good={f"{BACKUP}/sla": {"low": "hours(3)", "high": "hours(9)"}, f"{BACKUP}/retention": {"max_instances": 9}},
        bad={f"{BACKUP}/sla": {"low": "hours(3)", "high": "hours(10)"}, f"{BACKUP}/retention": {"max_instances": 9}},
        text="feed 'clicks': sla.high hours(10) is longer than retention 9 instances on backup: an instance could be "
        "evicted before it is late. Lower sla.high, or raise retention.max_instances to at least 10.",
    ),
    Case(
        code="window-retention",
        name="count",
        good={f"{KEEP}/max_instances": 39},
        bad={f"{KEEP}/max_instances": 20},
        text="process 'daily': inputs.clicks.start yesterday(0,0) reaches up to 1 days back, but feed 'clicks' on "
        "primary keeps 20 instances. Start the window later, raise retention.max_instances of the feed, or write "
        "until_read_by: [daily] there.",
    ),
    Case(
        code="window-retention",
        name="until-read",
        good={f"{KEEP}/limit": "hours(20)", f"{KEEP}/until_read_by": ["daily"]},
        bad={f"{KEEP}/limit": "hours(20)"},
        text="process 'daily': inputs.clicks.start yesterday(0,0) reaches up to 1 days back, but feed 'clicks' on "
        "primary keeps hours(20). Start the window later, raise retention.limit of the feed, or write "
        "until_read_by: [daily] there.",
    ),
    Case(
        code="retention-newest",
        name="age",
        good={f"{KEEP}/keep_newest": 719},
        bad={f"{KEEP}/keep_newest": 720},
        text="feed 'clicks': the 720 newest instances on primary always stay, so limit days(30) removes nothing if "
        "all instances arrive. Lower keep_newest, or raise limit.",
    ),
    Case(
        code="retention-newest",
        name="count",
        good={f"{KEEP}/keep_newest": 99, f"{KEEP}/max_instances": 100},
        bad={f"{KEEP}/keep_newest": 100, f"{KEEP}/max_instances": 100},
        text="feed 'clicks': the 100 newest instances on primary always stay, so max_instances 100 removes nothing "
        "if all instances arrive. Lower keep_newest, or raise max_instances.",
    ),
    Case(
        code="retention-frequency",
        good={f"{KEEP}/frequency": "minutes(60)"},
        bad={f"{KEEP}/frequency": "minutes(59)"},
        text="feed 'clicks': retention.frequency minutes(59) on primary is more frequent than the feed, hours(1). "
        "Write at least hours(1).",
    ),
    Case(
        code="retention-readers",
        name="unknown",
        good={f"{KEEP}/until_read_by": ["daily"]},
        bad={f"{KEEP}/until_read_by": ["dayly"]},
        text="feed 'clicks': there is no process 'dayly'. Did you mean 'daily'?",
    ),
    Case(
        code="retention-readers",
        name="another",
        bad={f"{SUMMARY}/retention": {"limit": "days(9)", "until_read_by": ["daily"]}},
        text="feed 'summary': process 'daily' does not read the feed on primary: its instances would be kept for ever. "
        "Name a process that reads it, or remove the name.",
    ),
    Case(
        code="retention-readers",
        name="elsewhere",
        bad={f"{BACKUP}/retention/until_read_by": ["daily"]},
        text="feed 'clicks': process 'daily' does not read the feed on backup: its instances would be kept for ever. "
        "Name a process that reads it, or remove the name.",
    ),
    Case(
        code="retention-replicas",
        name="unknown",
        good={f"{KEEP}/until_replicated_to": ["backup"]},
        bad={f"{KEEP}/until_replicated_to": ["third"]},
        text="feed 'clicks': 'third' is not a cluster of the feed: instances on primary would be kept for ever. "
        "Name clusters with type: target.",
    ),
    Case(
        code="retention-replicas",
        name="source",
        bad={f"{BACKUP}/retention/until_replicated_to": ["primary"]},
        text="feed 'clicks': 'primary' is not a target of its replication: instances on backup would be kept for ever. "
        "Name clusters with type: target.",
    ),
    Case(
        code="retention-replicas",
        name="itself",
        bad={f"{BACKUP}/retention/until_replicated_to": ["backup"]},
        text="feed 'clicks': 'backup' is the same cluster: instances on backup would be kept for ever. "
        "Name clusters with type: target.",
    ),
    Case(
        code="retention-replication",
        name="source",
        good={f"{PRIMARY}/delay": "days(30)", KEEP: {"limit": "days(30)", "until_replicated_to": ["backup"]}},
        bad={f"{PRIMARY}/delay": "days(30)"},
        text="feed 'clicks': instances on primary are kept days(30), but their copy to backup is due days(30) and "
        "hours(1) after their time: they could be removed before. Keep them longer on primary, or shorten the delay.",
    ),
    Case(
        code="retention-replication",
        name="target",
        good={f"{PRIMARY}/delay": "hours(10)", f"{BACKUP}/retention": {"max_instances": 11}},
        bad={f"{PRIMARY}/delay": "hours(10)", f"{BACKUP}/retention": {"max_instances": 10}},
        text="feed 'clicks': instances on backup are kept 10 instances, but they arrive from primary hours(10) and "
        "hours(1) after their time: they could be removed before. Keep them longer on backup, or shorten the delay.",
    ),
    Case(
        code="retention-replication",
        name="stage",
        bad={
            "feed clicks/late_arrival": REMOVED,
            f"{BACKUP}/lifecycle": {"retention_stage": {"properties": {LIMIT: "minutes(59)"}}},
        },
        text="feed 'clicks': instances on backup are kept minutes(59), but they arrive from primary hours(1) after "
        "their time: they could be removed before. Keep them longer on backup, or shorten the delay.",
    ),
    Case(
        code="retention-place",
        name="year",
        good={f"{SUMMARY}/retention": {"limit": "days(9)"}, "feed summary/locations/stats": "/stats"},
        bad={f"{SUMMARY}/retention": {"limit": "days(9)"}, "feed summary/locations/stats": "/stats/${MONTH}"},
        text="feed 'summary': on primary retention removes nothing at locations.stats: it has no ${YEAR}, so it does "
        "not say how old it is. Use a separate path with ${YEAR}, unless this is intended.",
    ),
    Case(
        code="retention-place",
        name="inside",
        good={
            "feed summary/locations/data": "/clicks/summary/${YEAR}/${MONTH}/${DAY}",
            f"{SUMMARY}/retention": {"limit": "days(3)"},
        },
        bad={
            "feed summary/locations/data": f"/clicks{HOURLY}/${{MINUTE}}",
            f"{SUMMARY}/retention": {"limit": "days(3)"},
            f"{PRIMARY}/retention": REMOVED,
        },
        text="feed 'summary': on primary retention removes nothing at locations.data: it is inside the data of "
        "feed 'clicks' on primary. Use a separate path with ${YEAR}, unless this is intended.",
    ),
    Case(
        code="retention-place",
        name="cluster",
        good={f"{BACKUP}/locations": {"data": f"/clicks{HOURLY}", "tmp": "/tmp/${YEAR}"}},
        bad={f"{BACKUP}/locations": {"data": f"/clicks{HOURLY}", "tmp": f"/clicks{HOURLY}/_tmp"}},
        text="feed 'clicks': on backup retention removes nothing at locations.tmp: it is inside the data of the "
        "feed, and is removed with them. Use a separate path with ${YEAR}, unless this is intended.",
    ),
    Case(
        code="archive-missing",
        good={f"{BACKUP}/retention": {**ARCHIVE, "archive_to": f"/old{HOURLY}"}},
        bad={f"{BACKUP}/retention": ARCHIVE},
        text="feed 'clicks': the action on backup is archive, but archive_to is missing: nothing is removed. "
        "Write archive_to, or action: delete.",
    ),
    Case(
        code="archive-place",
        name="data",
        good=archived(f"s3://cold/old{HOURLY}"),
        bad={**archived(f"/clicks{HOURLY}/"), KEEP: REMOVED},
        text="feed 'clicks': the archive on backup overlaps other data: it is at the data of the feed. "
        "Use another path in archive_to.",
    ),
    Case(
        code="archive-place",
        name="another",
        good=archived(f"/summary/old{HOURLY}"),
        bad=archived(f"file:///data/summary{HOURLY}"),
        text="feed 'clicks': the archive on backup overlaps other data: it is inside the data of feed "
        "'summary' on primary. Use another path in archive_to.",
    ),
    Case(
        code="path-segment",
        name="archive",
        bad=archived(f"/.feed-assets/old{HOURLY}"),
        text=f"feed 'clicks': clusters.backup.retention.archive_to '/.feed-assets/old{HOURLY}' has the segment "
        "'.feed-assets', which no store accepts. Write the path without it.",
    ),
    Case(
        code="archive-place",
        name="granularity",
        bad=archived("/old/${YEAR}/${MONTH}/${DAY}"),
        text="feed 'clicks': the archive on backup does not keep instances apart: without ${HOUR} several instances of "
        "hours(1) have the same path. Add the missing variable to archive_to.",
    ),
    Case(
        code="archive-place",
        name="static",
        bad=archived("/old"),
        text="feed 'clicks': the archive on backup does not keep instances apart: it has no time variable, so all "
        "instances would share a path. Add the missing variable to archive_to.",
    ),
    Case(
        code="no-effect",
        name="queue",
        bad={"feed clicks/lifecycle": {"retention_stage": {**STAGE["retention_stage"], "queue": "etl"}}},
        text="feed 'clicks': lifecycle.retention_stage.queue has no effect yet: the retention of a cluster's feeds is "
        "one run. Keep it for a later release, or remove it.",
    ),
)
