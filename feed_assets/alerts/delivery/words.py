"""The words of letters for people: what happened to what and when, why, where to look, and the command to type."""

import re
from datetime import datetime
from typing import NamedTuple, assert_never

from feed_assets.command_lines import command_line
from feed_assets.entities.common import Kind
from feed_assets.log.messages import payloads
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.masking import mask
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime

TEST = "test"
"""The key of a message that only tries a receiver."""

RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # 4a1c9bd2-7f5e-4d0c-8a27-d1c0c5a0e1f2
_NOUNS = {
    payloads.InstanceOperation.REPLICATE: "replication ",
    payloads.InstanceOperation.IMPORT: "import ",
    payloads.InstanceOperation.EXPORT: "export ",
    payloads.InstanceOperation.DELETE: "eviction ",
}


class Words(NamedTuple):
    """What has happened, why, and the command that tells more."""

    what: str
    why: str | None = None
    command: str | None = None


def write_subject(message: OutboxMessage) -> str:
    """Return what has happened, in one line."""
    return _line(_tell(message.payload).what)


def write_lines(message: OutboxMessage, webserver: str | None) -> list[tuple[str, str]]:
    """Return the names and texts of what else is said; of a run in Dagster its link, if the webserver is known."""
    payload, words = message.payload, _tell(message.payload)
    run = payload.run_id if isinstance(payload, payloads.RetryPayload) else getattr(payload, "workflow_id", None)
    if webserver and RUN.fullmatch(run or ""):
        run = f"{webserver.rstrip('/')}/runs/{run}"
    path = getattr(payload, "feed_instance_paths", None)
    said = (("when", render_datetime(message.recorded_at)), ("why", words.why), ("path", path), ("run", run))
    lines = (*said, ("to see more", words.command))
    return [(name, _line(text)) for name, text in lines if text and text != payloads.NONE]


def _line(text: str) -> str:
    return " ".join(mask(text.partition("\n")[0]).split())


def _tell(payload: payloads.MessagePayload) -> Words:
    kind, name = payload.subject
    if payload.others.get(TEST):
        return Words("a test of this receiver: nothing has happened")
    match payload:
        case payloads.InstancePayload():
            end = _NOUNS.get(payload.operation, "") + payload.status.value.lower()
            again = "" if payload.final else ", and is tried again"
            return _tell_instances(payload, payload.nominal_time, end + again, payload.error)
        case payloads.RetryPayload():
            return _tell_instances(payload, payload.nominal_time, "failed, all retries are used up", payload.error)
        case payloads.SlaPayload():
            end = f"{payload.sla.value} deadline {payload.event.value}"
            return _tell_instances(payload, payload.oldest, end, payload.reason)
        case payloads.ArrivalPayload():
            end = "arrived" if payload.kind is Kind.FEED else "cut from its queue"
            return _tell_instances(payload, payload.oldest, end, None)
        case payloads.LineagePayload():
            work = payload.process or payload.sweep or "data without a run"
            return Words(f"{kind} {name}: {payload.happening.value} of {work} on {payload.cluster}", payload.reason)
        case payloads.EvictionPayload():
            what = f"feed {name}: {payload.path} on {payload.cluster} {payload.operation.value.lower()}d"
            return Words(what, payload.rule, command_line("retention", "show", payload.sweep))
        case payloads.SweepPayload():
            what = f"feed {name}: a sweep on {payload.cluster} of {counted(payload.instances, 'instance')} asks"
            return Words(what, payload.reason, command_line("retention", "show", payload.sweep))
        case payloads.EntityPayload():
            on = f" on {', '.join(payload.clusters)}" if payload.clusters else ""
            what = f"{kind} {name}: {payload.action.value}{on} by {payload.author}"
            return Words(what, None, command_line("entity", "history", kind, name))
        case payloads.MetadataPayload():
            what = f"{payload.entity}: metadata changed by {payload.author}"
            return Words(what, None, command_line("metadata", "history", payload.entity))
        case payloads.HealthPayload():
            what = f"ticks: {counted(payload.count, 'thing')} failing" if payload.count else "ticks: all works again"
            return Words(what, "; ".join((*payload.failing, *payload.recovered)))
        case _:
            assert_never(payload)


def _tell_instances(
    payload: payloads.InstancePayload | payloads.RetryPayload | payloads.SlaPayload | payloads.ArrivalPayload,
    oldest: datetime,
    end: str,
    why: str | None,
) -> Words:
    kind, name = payload.subject
    which = f"instance {render_datetime(oldest)}"
    if payload.newest is not None and payload.newest != oldest:
        which = f"{payload.count:,} instances, {render_datetime(oldest)} to {render_datetime(payload.newest)},"
    what = f"{kind} {name}: {which} on {payload.cluster.replace(',', ' from ')}: {end}"  # of a copy: target,source
    return Words(what, why, command_line("why", name, oldest, kind=kind))
