"""Make the due checks for late data.

A check scans storage outside of any transaction and applies its results in one transaction. It has no effect if the
instance was run again meanwhile.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.tick_records import TickStep
from feed_assets.instances.late.check_batches import CheckBatch
from feed_assets.instances.late.contents import Content, RecordedContents, record_contents, scan_contents
from feed_assets.instances.late.lateness import CheckDecision, LateVerdict, decide_later
from feed_assets.instances.late.store import LateCheck, LateChecks, LateKey
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool

CHECKS_A_STEP = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCheckResult:
    """The results of one tick's checks.

    `changed` has the external feed instances with new content. `refused` has the process instances that cannot be
    rerun, with the reasons.
    """

    verdicts: tuple[LateVerdict, ...]
    changed: frozenset[FeedKey]
    refused: Mapping[ProcessKey, str]
    is_complete: bool


def apply_late_checks(
    database: Database,
    stores: StorePool,
    timeline: ReleaseTimeline,
    cluster: str,
    as_of: datetime,
    real_now: datetime,
    budget: TimeBudget,
    bulkheads: Bulkheads,
    *,
    is_safe_mode: bool = False,
) -> LateCheckResult:
    """Make the due checks of a cluster; make instances with changed inputs READY for a rerun, with the reason.

    Costs one query if no check is due. `real_now` is the real time. In safe mode all checks are put off. A feed whose
    contents cannot be read fails in `bulkheads`, and so does an entity whose checks cannot be decided; the checks are
    put off until the next try.
    """

    def make(checks: Sequence[Sequence[LateCheck]]) -> list[tuple[Mapping[LateKey, CheckDecision], frozenset[FeedKey]]]:
        with database.read() as connection:
            timeline.refresh(connection, as_of)
            due = [check for each in checks for check in each]
            batch = CheckBatch.of(connection, timeline, due, as_of, is_safe_mode=is_safe_mode)
        contents = scan_contents(database, stores, batch.to_scan(), real_now, bulkheads)
        _note_failures(contents.values(), bulkheads)
        with database.begin() as connection:
            recorded = record_contents(connection, contents.values(), as_of)
            decisions = batch.apply(connection, contents, recorded, bulkheads)
        return [(decisions, recorded.changed)]

    verdicts: list[LateVerdict] = []
    changed: set[FeedKey] = set()
    refused: dict[ProcessKey, str] = {}
    is_complete = False
    while True:
        with database.read() as connection:
            due = LateChecks(connection).due(cluster, as_of, CHECKS_A_STEP)
        if not due:
            is_complete = True
            break
        units: dict[str, list[LateCheck]] = defaultdict(list)
        for check in due:
            units[f"{check.kind} {check.name}"].append(check)
        made = bulkheads.run_apart(TickStep.LATE_DATA, units, make)
        decisions = {key: decision for made_now, _ in made for key, decision in made_now.items()}
        decisions |= _put_off_failed(database, TickStep.LATE_DATA, units, as_of, bulkheads)
        verdicts += [decision.verdict for decision in decisions.values()]
        changed.update(*(changed_now for _, changed_now in made))
        refused |= {
            ProcessKey(*key[1:]): decision.reason
            for key, decision in decisions.items()
            if decision.verdict is LateVerdict.REFUSED and decision.reason is not None
        }
        if budget.is_spent:
            break
        if len(due) < CHECKS_A_STEP and len(decisions) == len(due):
            is_complete = True
            break
    return LateCheckResult(
        verdicts=tuple(verdicts), changed=frozenset(changed), refused=refused, is_complete=is_complete
    )


def apply_updates(
    database: Database,
    timeline: ReleaseTimeline,
    cluster: str,
    as_of: datetime,
    budget: TimeBudget,
    bulkheads: Bulkheads,
    *,
    is_held: bool = False,
) -> int:
    """Make ended instances READY that have read other content than the record has now; return how many.

    It compares what the log has told (`instances/updates.py`), and looks at no storage. While the cluster `is_held`
    (safe mode, a state that was restored), all are put off.
    """
    if not timeline.plan.follows_updates(cluster):
        return 0

    def decide(checks: Sequence[Sequence[LateCheck]]) -> list[LateVerdict]:
        nothing = RecordedContents(digests={}, changed=frozenset())
        with database.begin() as connection:
            due = [check for each in checks for check in each]
            batch = CheckBatch.of(connection, timeline, due, as_of, is_safe_mode=is_held)
            return [each.verdict for each in batch.apply(connection, {}, nothing, bulkheads).values()]

    again = 0
    while True:
        with database.read() as connection:
            due = LateChecks(connection).due(cluster, as_of, CHECKS_A_STEP, updates=True)
        units: dict[str, list[LateCheck]] = defaultdict(list)
        for check in due:
            units[check.name].append(check)
        again += bulkheads.run_apart(TickStep.UPDATES, units, decide).count(LateVerdict.RERUN)
        _put_off_failed(database, TickStep.UPDATES, units, as_of, bulkheads)
        if len(due) < CHECKS_A_STEP or budget.is_spent:
            return again


def _put_off_failed(
    database: Database,
    step: TickStep,
    units: Mapping[str, Sequence[LateCheck]],
    as_of: datetime,
    bulkheads: Bulkheads,
) -> dict[LateKey, CheckDecision]:
    """Put off the checks of the entities that failed until the next try."""
    later = {
        check.key: decide_later(check, as_of, bulkheads.pause(step, unit))
        for unit, checks in units.items()
        if bulkheads.has_failed(step, unit)
        for check in checks
    }
    if later:
        with database.begin() as connection:
            LateChecks(connection).put([each.check for each in later.values() if each.check is not None])
    return later


def _note_failures(contents: Iterable[Content], bulkheads: Bulkheads) -> None:
    errors: dict[str, Exception | None] = {}
    for content in contents:
        feed = content.record.feed
        errors[feed] = errors.get(feed) or content.error
    for feed, error in errors.items():
        if error is not None:
            bulkheads.fail(TickStep.LATE_DATA, feed, error)
        elif not bulkheads.is_put_off(TickStep.LATE_DATA, feed):  # what has failed of it is not due yet
            bulkheads.succeed(TickStep.LATE_DATA, feed)
