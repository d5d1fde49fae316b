"""Tell other programs how instances end, in the transaction in which they do: one message for each output path, with
Falcon's keys. Source: Falcon's `WorkflowExecutionContext` and its messages.

Differs from Falcon: a time-out, and a kill of a running instance, are FAILED with their reason in `error`; several
instances of a process that end alike in one transaction are one message.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.instances.gates.decide_retries import decide_retry
from feed_assets.issues import EntityKey
from feed_assets.log.instances.process_instances import ENDED
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import (
    NONE,
    InstanceEnd,
    InstanceOperation,
    InstancePayload,
    InstanceRange,
    RetryPayload,
)
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.plan.edges import Key
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.transfers import ExportRecord
from feed_assets.releases.timeline import ReleaseTimeline

_NO_FACTS = EntityFacts()
_OPERATIONS = {
    "replication": InstanceOperation.REPLICATE,
    "import": InstanceOperation.IMPORT,
    "export": InstanceOperation.EXPORT,
}
"""By engine; all other work generates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An instance as it was before its end, the status of the end, and why it did not succeed.

    `published` are the URLs of the outputs that were published, by name, if that is known. Whether the attempt was the
    last one `is_final`; None leaves that to the retry policy.
    """

    row: ProcessInstance
    status: ProcessInstanceStatus
    error: str | None = None
    published: Mapping[str, str] | None = None
    is_final: bool | None = None


def tell_ends(
    connection: Connection,
    plan: Plan,
    process: ProcessRecord | None,
    ended: Iterable[Ended],
    now: datetime,
    declared: Plan | None = None,
) -> None:
    """Write the messages about ends of instances of a process; `plan` has its feeds, and `declared` says what users say
    now. A process that is not declared any more has no outputs.

    Takes the lock of the log.
    """
    alike: dict[tuple[ProcessInstanceStatus, bool], list[Ended]] = defaultdict(list)
    for each in sorted(ended, key=lambda each: each.row.nominal_time):
        is_final = each.status is ProcessInstanceStatus.SUCCEEDED or _is_final(process, each, now)
        alike[each.status, is_final].append(each)
    messages = [_messages(plan, declared or plan, process, found, now) for found in alike.values()]
    Outbox(connection).append_many(list(chain.from_iterable(messages)))


def tell_all_ends(connection: Connection, timeline: ReleaseTimeline, ended: Iterable[Ended], now: datetime) -> None:
    """Write the messages about ends of instances of any processes. Takes the lock of the log."""
    by_process: dict[Key, list[Ended]] = defaultdict(list)
    for each in ended:
        by_process[each.row.process, each.row.cluster].append(each)
    for key, found in by_process.items():
        active = timeline.find_or_declared(connection, key, found[0].row.nominal_time)
        plan, process = (timeline.plan, None) if active is None else (active.plan, active.record)
        tell_ends(connection, plan, process, found, now, timeline.plan)


def tell_exhausted(
    connection: Connection, process: ProcessRecord | None, rows: Sequence[ProcessInstance], now: datetime
) -> None:
    """Write the message about instances of a process that have failed in their last attempt. Takes the lock of the
    log.
    """
    rows = sorted(rows, key=lambda row: row.nominal_time)
    row = rows[0]
    kind, name = _entity_of(process, row)
    payload = RetryPayload(
        kind=Kind(kind),
        entity=name,
        cluster=row.cluster,
        nominal_time=row.nominal_time,
        attempts=row.attempt,
        run_id=row.run_id,
        error=row.reason,
        **_range_of(rows),
    )
    key = f"retry/{row.process}/{row.cluster}/{row.nominal_time.isoformat()}/{row.attempt}/{now.isoformat()}"
    Outbox(connection).append_many([OutboxMessage(recorded_at=now, payload=payload, idempotency_key=key)])


def keys_of_end(process: ProcessRecord | None, row: ProcessInstance | None) -> list[str]:
    """Return the keys that the messages about the end of an instance have: one for each output, one without, and one of
    those that ended together; none if it has not ended.
    """
    if row is None or row.status not in ENDED:
        return []
    outputs = [edge.name for edge in process.outputs] if process is not None else []
    ended_at = row.ended_at or row.updated_at
    keys = [_key_of(row, row.status, output, ended_at) for output in ("", *outputs)]
    return [*keys, *(_key_of_many(row, row.status, ended_at, is_final=is_final) for is_final in (True, False))]


def user_topic_of(name: str, facts: EntityFacts) -> str | None:
    """Return Falcon's topic of an entity; None if a property switches it off."""
    return f"FALCON.{name}" if facts.has_user_topic else None


def _messages(
    plan: Plan, declared: Plan, process: ProcessRecord | None, alike: Sequence[Ended], now: datetime
) -> Iterator[OutboxMessage]:
    ended, is_one = alike[0], len(alike) == 1
    row = ended.row
    key = _entity_of(process, row)
    facts = declared.facts.get(key, _NO_FACTS)
    copy = process.copied if process is not None and process.is_flow else None
    succeeded = ended.status is ProcessInstanceStatus.SUCCEEDED
    is_final = succeeded or _is_final(process, ended, now)
    for output, feed, url in _outputs(plan, process, ended) if is_one else [("", NONE, NONE)]:
        yield OutboxMessage(
            recorded_at=now,
            payload=InstancePayload(
                cluster=row.cluster if copy is None else f"{row.cluster},{copy.source}",
                entity_name=key[1],
                entity_type=Kind(key[0]),
                nominal_time=row.nominal_time,
                operation=_OPERATIONS.get(process.engine if process is not None else "", InstanceOperation.GENERATE),
                feed_names=feed,
                feed_instance_paths=url,
                workflow_id=row.run_id or NONE,
                workflow_user=facts.owner or NONE,
                run_id=str(row.attempt),
                status=InstanceEnd.SUCCEEDED if succeeded else InstanceEnd.FAILED,
                time_stamp=now,
                final=is_final,
                error=ended.error,
                **_range_of([each.row for each in alike]),
            ),
            idempotency_key=(
                _key_of(row, ended.status, output, now)
                if is_one
                else _key_of_many(row, ended.status, now, is_final=is_final)
            ),
            user_topic=user_topic_of(key[1], facts),
        )


def _range_of(rows: Sequence[ProcessInstance]) -> InstanceRange:
    """Return what a message says of several instances, oldest first."""
    if len(rows) == 1:
        return {}
    return {"count": len(rows), "oldest": rows[0].nominal_time, "newest": rows[-1].nominal_time}


def _outputs(plan: Plan, process: ProcessRecord | None, ended: Ended) -> Iterator[tuple[str, str, str]]:
    """Yield name, feed and URL of each output; of a success only of what was published. An export has its feed, and the
    table that it writes.
    """
    if process is not None and isinstance(process.work, ExportRecord):
        yield "", process.entity[1], process.places[1][0]
        return
    found = False
    for edge in process.outputs if process is not None else ():
        time = plan.output_time(edge, ended.row.nominal_time)
        if ended.published is not None:
            url = ended.published.get(edge.name)
        elif time is None or edge.quarantine_of is not None:
            url = None
        else:
            record = plan.feeds[edge.feed_key]
            url = f"{record.store.url.rstrip('/')}/{record.path(time)}"
        if url is not None:
            found = True
            yield edge.name, edge.feed, url
    if not found:
        yield "", NONE, NONE


def _is_final(process: ProcessRecord | None, ended: Ended, now: datetime) -> bool:
    if ended.is_final is not None:
        return ended.is_final
    retry = process.retry if process is not None else None
    return decide_retry(retry, ended.status, ended.row.retries, now).retry_at is None


def _entity_of(process: ProcessRecord | None, row: ProcessInstance) -> EntityKey:
    return process.entity if process is not None else (Kind.PROCESS.value, row.process)


def _key_of(row: ProcessInstance, status: ProcessInstanceStatus, output: str, now: datetime) -> str:
    """Return the key of a message. The same attempt number may time out again, after a rerun."""
    again = f"/{now.isoformat()}" if status is ProcessInstanceStatus.TIMEDOUT else ""
    instance = f"{row.process}/{row.cluster}/{row.nominal_time.isoformat()}"
    return f"instance/{instance}/{row.attempt}{again}/{status.value}/{output}"


def _key_of_many(row: ProcessInstance, status: ProcessInstanceStatus, now: datetime, *, is_final: bool) -> str:
    again = "" if is_final else "/again"
    return f"instances/{row.process}/{row.cluster}/{now.isoformat()}/{status.value}{again}"
