"""Judge the rows of instances from outside, each by its own, before anybody reads them; and find what rows are compared
with, also those that a process writes.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from feed_assets.context.operation import AttemptContext
from feed_assets.engines.port import InputData, Judged
from feed_assets.entities.common import Kind
from feed_assets.instances.arrival.polling import (
    decide_poll_result,
    fingerprint,
    record_poll_results,
    wait_until_settled,
)
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances
from feed_assets.instances.attempts.attempt_inputs import InstanceAddresses
from feed_assets.instances.attempts.verdicts import Verdict
from feed_assets.instances.attempts.work_data import feed_data
from feed_assets.instances.errors import NothingToCompareError
from feed_assets.instances.late.contents import Content, note_content, scan_held, with_content
from feed_assets.instances.late.quality_checks import QualityCheck, QualityChecks, digest_rules, let_in
from feed_assets.instances.leasing import Leased
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import InstanceEnd, InstanceOperation, InstancePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.database import lock_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOMENT = timedelta(microseconds=1)
LOOK = "look:"  # before the digest of what a poll has seen


def find_others(
    context: AttemptContext, record: FeedRecord, nominal_time: datetime, addresses: InstanceAddresses
) -> dict[str, InputData]:
    """Return what the rows of an instance are compared with: earlier instances by `latest(n)`, if there are so many,
    and the newest instance of each feed whose keys they may have, by its name.

    Raises:
        NothingToCompareError: a feed has no instance.
    """
    quality = record.quality
    if quality is None or not (quality.compare or quality.in_feed):
        return {}
    found: dict[str, tuple[FeedRecord, datetime]] = {}
    with context.database.read() as connection:
        instances = FeedInstances(connection)
        for each in quality.compare.values():
            times = instances.latest_available(*record.key, nominal_time - _MOMENT, each.back)
            if len(times) == each.back:
                found[each.to] = (record, times[-1])
        for key in quality.keys.values():
            other = context.declared.feeds.get((key.feed, record.cluster))
            times = [] if other is None else instances.latest_available(*other.key, context.clock.now(), 1)
            if other is None or not times:
                raise NothingToCompareError(feed=record.feed, other=key.feed, cluster=record.cluster)
            found[key.feed] = (other, times[0])
    return {name: _read(each, time, f"{name} of {record.feed}", addresses) for name, (each, time) in found.items()}


def _read(record: FeedRecord, nominal_time: datetime, name: str, addresses: InstanceAddresses) -> InputData:
    return feed_data(name, record, addresses.find(name, record, [nominal_time]))


def judge_instance(
    context: AttemptContext, record: FeedRecord, nominal_time: datetime, session: "Callable[[], SparkSession]"
) -> Verdict | None:
    """Judge an instance that is held back, and let it in if its rows are good enough; None if nothing is to be judged.

    The content is looked at before and after: what has changed meanwhile is judged by another run.

    Raises:
        LeaseHeldError: another run judges it.
        EngineError: Spark cannot read it, or does not understand a rule.
        NothingToCompareError: a feed has no instance whose keys its rows may have.
        StorageError: storage cannot be read.
    """
    from feed_assets.engines.data.frames import judge_input

    key = FeedKey(*record.key, nominal_time)
    with Leased(context.database, context.real_clock, holder=context.run_id, cluster=record.cluster) as leased:
        leased.acquire(f"feed/{record.feed}", nominal_time)
        check = _find_open(context, key)
        if check is None or record.quality is None or not _is_same(context, record, check):
            return None
        content = scan_held(context, record, key)
        with closing(InstanceAddresses(context)) as addresses:
            data = _read(record, nominal_time, record.feed, addresses)
            others = find_others(context, record, nominal_time, addresses)
            judged = judge_input(session(), data, record.quality, others)
        verdict = Verdict(
            output=record.feed,
            feed_key=record.key,
            nominal_time=nominal_time,
            quality=record.quality,
            judged=judged,
        )
        if not _is_same(context, record, check):
            return None
        with context.database.begin() as connection:
            lock_log(connection)
            leased.check_in(connection)
            _conclude(connection, context, record, check, verdict, content)
        return verdict


def conclude_unread(context: AttemptContext, record: FeedRecord, nominal_time: datetime) -> None:
    """Let in an instance as if its rows were good, where there are none: in a simulation."""
    check = _find_open(context, FeedKey(*record.key, nominal_time))
    if check is not None and record.quality is not None:
        content = scan_held(context, record, check.feed_key)
        judged = Judged(rows=0, bad=0, broken={})
        good = record.quality.model_copy(update={"min_rows": None})
        verdict = Verdict(
            output=record.feed, feed_key=record.key, nominal_time=nominal_time, quality=good, judged=judged
        )
        with context.database.begin() as connection:
            lock_log(connection)
            _conclude(connection, context, record, check, verdict, content)


def _find_open(context: AttemptContext, key: FeedKey) -> QualityCheck | None:
    with context.database.read() as connection:
        check = QualityChecks(connection).of_instances([key]).get(key)
    return check if check is not None and check.due_at is not None else None


def _is_same(context: AttemptContext, record: FeedRecord, check: QualityCheck) -> bool:
    """Return whether the content is still that of the check; else record what is there now."""
    if not check.content.startswith(LOOK):
        content = scan_held(context, record, check.feed_key)
        return content is None or (content.scan is not None and content.scan.digest == check.content)
    candidate = Candidate(record=record, nominal_time=check.nominal_time)
    (look,) = poll_instances(context.stores, [candidate])
    if look.obstacle is None and fingerprint(look) == check.content:
        return True
    look = wait_until_settled(record, look, context.real_clock.now())
    seen = decide_poll_result(candidate, look, context.clock.now(), str(check.event["origin"]))
    with context.database.begin() as connection:
        record_poll_results(connection, [seen])
    return False


def _conclude(
    connection: Connection,
    context: AttemptContext,
    record: FeedRecord,
    check: QualityCheck,
    verdict: Verdict,
    content: Content | None = None,
) -> None:
    """Record a verdict if it is still asked for. Let the instance in, or tell that it is held back."""
    store, key, now = QualityChecks(connection), check.feed_key, context.clock.now()
    row = FeedInstances(connection).get(*key)
    standing = store.of_instances([key]).get(key)
    is_open = standing is not None and standing.due_at is not None and standing.content == check.content
    if row is None or row.status is not FeedInstanceStatus.PARTIAL or not is_open:
        return
    judged = replace(
        check,
        rules=digest_rules(verdict.quality),
        due_at=None,
        error=None,
        facts=verdict.facts,
        summary=verdict.summary,
        has_passed=verdict.has_passed,
        planned_at=now,
    )
    if verdict.is_published:
        let_in(connection, record, with_content(row, content), judged, now)
        note_content(connection, content, now)
        return
    store.put([judged])
    Outbox(connection).append_many([_message(context, record, row, judged, now)])


def _message(
    context: AttemptContext, record: FeedRecord, row: FeedInstance, check: QualityCheck, now: datetime
) -> OutboxMessage:
    payload = InstancePayload(
        cluster=record.cluster,
        entity_name=record.feed,
        entity_type=Kind.FEED,
        nominal_time=row.nominal_time,
        operation=InstanceOperation.GENERATE,
        feed_names=record.feed,
        feed_instance_paths=f"{record.store.url.rstrip('/')}/{record.path(row.nominal_time)}",
        workflow_id=context.run_id,
        status=InstanceEnd.FAILED,
        time_stamp=now,
        error=check.sentence,
    )
    key = f"quality/{'/'.join(record.key)}/{row.nominal_time.isoformat()}/{check.content}/{check.rules}"
    return OutboxMessage(recorded_at=now, payload=payload, idempotency_key=key)


def note_fault(context: AttemptContext, record: FeedRecord, nominal_time: datetime, reason: str) -> None:
    """Record why an instance could not be judged; its check stays due."""
    key = FeedKey(*record.key, nominal_time)
    with context.database.begin() as connection:
        store = QualityChecks(connection)
        store.put(replace(each, error=reason) for each in store.of_instances([key]).values() if each.due_at is not None)
