"""What changed definitions mean for what has been done already: where the walks along instances go on.

Once for each plan that is new to the database the releases go on, the walks are set right, instances that no
definition has any more are taken back, and processes whose gates may open now are noted for the next tick.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.lifecycle.errors import ReleaseError
from feed_assets.lifecycle.governance import BEGINNING, REVISION, Governance, first_at_or_after
from feed_assets.lifecycle.releases import (
    ReleaseDecision,
    Wanted,
    decide_releases,
    decide_touch,
    load_standing,
    put_releases,
)
from feed_assets.plan.records import Key, Plan
from feed_assets.plan.signs import Step
from feed_assets.settings import DefinitionChanges
from feed_assets.state.beginnings import Beginnings
from feed_assets.state.database import Database, lock_definitions
from feed_assets.state.definition_records import Member
from feed_assets.state.definitions import Definitions
from feed_assets.state.errors import StateError
from feed_assets.state.event_log import Cursors
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.records import Frontier, FrontierKind
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.frequency import parse_frequency
from feed_assets.timing.grids import is_same_grid
from feed_assets.timing.sequence import InstanceSequence

_APPLIED = "definitions/applied"
_WALKED = "definitions/walked"
_VERSION = 2
_FIRST_VERSION = 1
_MOMENT = timedelta(microseconds=1)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """The instances that a frontier of a feed walks along, and whether the feed was declared last."""

    start: str
    end: str | None
    frequency: str
    timezone: str
    is_present: bool = True

    @property
    def sequence(self) -> InstanceSequence:
        """The instances."""
        return InstanceSequence(
            start=datetime.fromisoformat(self.start),
            end=datetime.fromisoformat(self.end) if self.end else None,
            frequency=parse_frequency(self.frequency),
            timezone=parse_timezone(self.timezone),
        )


def decide_frontier(frontier: Frontier, walked: InstanceSequence, declared: InstanceSequence) -> Frontier:
    """Where the walk along a feed goes on under a definition that may be another than the one it has followed.

    It goes on where it stood, also where it had ended and the validity was extended. Where the start moved to an
    earlier instance of the same grid it begins anew, and what has been done is not done again. Instances of another
    grid (another frequency, time zone or phase) are new from where the walk stood, not in the past.
    """
    stood_at = frontier.next_time or walked.at(frontier.next_index)
    is_earlier = declared.start < walked.start and is_same_grid(declared, walked)
    index = 0 if is_earlier else max(0, declared.index_at_or_after(stood_at))
    is_over = declared.size is not None and index >= declared.size
    return replace(frontier, next_index=index, next_time=None if is_over else declared.at(index))


def is_applied(connection: Connection, governance: Governance) -> bool:
    """Whether a plan is the one that was applied last, and its view of the releases is current; costs one read."""
    found = Cursors(connection).get_many((_APPLIED, REVISION))
    return found.get(_APPLIED) == governance.plan.digest and governance.is_current(found.get(REVISION))


def apply_plan(
    database: Database,
    governance: Governance,
    as_of: datetime,
    policy: DefinitionChanges = DefinitionChanges.FROM_NOW,
    record: Callable[[], bool] = lambda: True,
) -> tuple[ReleaseDecision, ...]:
    """Make the state follow a plan: releases, walks, and what waits. At the beginning of a tick, and after a change.

    A plan that was applied last costs one read. One that is not what was recorded is not applied: somebody knows
    better, and the releases say what to do meanwhile. What is not declared any more is kept in mind, so that it can
    come back.

    Args:
        database: the state.
        governance: has the plan; its view of the releases is current afterwards.
        as_of: the present.
        policy: which instances a changed definition governs.
        record: called for a plan that is new, to record its definitions; whether the plan is what was recorded.
    """
    with database.read() as connection:
        if is_applied(connection, governance):
            return ()
        governance.refresh(connection, as_of)
        if is_applied(connection, governance):
            return ()
    is_recorded = record()
    with database.begin() as connection:
        lock_definitions(connection)
        decisions = decide_releases(connection, governance.plan, governance, as_of, policy) if is_recorded else None
        if decisions is None:
            _logger.info("what is declared here is not what was recorded last, and takes effect when it is loaded anew")
            return ()
        put_releases(connection, decisions)
        with _rereading(governance):
            governance.refresh(connection, as_of)
            _follow(connection, governance, decisions)
            Cursors(connection).put(_APPLIED, governance.plan.digest)
    for decision in decisions:
        _logger.info("%s", decision.render())
    return decisions


def touch_process(
    database: Database, governance: Governance, key: Key, as_of: datetime, effective_from: datetime | None = None
) -> ReleaseDecision:
    """Begin a new release of a process with the definition that it has.

    What was begun is left alone; instances before the effective time stay with the release they have.

    Args:
        database: where the releases are; the plan must have been applied to it.
        governance: has the plan in which the process is.
        key: process and cluster.
        as_of: the present.
        effective_from: from when; by default from the first instance that is three minutes or more ahead.

    Raises:
        ReleaseError: the process is not declared there, or has no instance left.
    """
    record = governance.plan.processes.get(key)
    if record is None:
        raise ReleaseError(process=key[0], cluster=key[1], reason="it is not declared there, or cannot run there")
    with database.begin() as connection:
        lock_definitions(connection)
        numbers = Definitions(connection).declared_versions()
        members = tuple(
            Member(kind=kind, name=name, version=numbers.get((kind, name), 0)) for kind, name in record.members
        )
        standing = load_standing(connection, [key])[key]
        decision = decide_touch(Wanted(record=record, members=members), standing, as_of, effective_from)
        if decision is None:
            raise ReleaseError(process=key[0], cluster=key[1], reason="its validity has no instance left")
        put_releases(connection, [decision])
        with _rereading(governance):
            governance.refresh(connection, as_of)
            _set_right(connection, governance, [decision])
    return decision


@contextmanager
def _rereading(governance: Governance) -> Iterator[None]:
    """Where a transaction fails, what was read in it is read again."""
    try:
        yield
    except BaseException:
        governance.forget()
        raise


def _set_right(
    connection: Connection,
    governance: Governance,
    decisions: Sequence[ReleaseDecision],
    returned: Sequence[Key] = (),
) -> None:
    """Follow releases that went on, and processes that came back: what waits, the walks, and the gates."""
    _take_back(connection, governance, decisions)
    _set_process_frontiers(connection, governance, {each.key: each for each in decisions}, returned)
    note_changed(connection, [*(each.key for each in decisions if each.before is not None), *returned])


def _follow(connection: Connection, governance: Governance, decisions: Sequence[ReleaseDecision]) -> None:
    plan = governance.plan
    known, present = _load_walked(connection)
    returned = [key for key in plan.processes if key not in present]
    now = {key: _walk_of(record.sequence) for key, record in plan.feeds.items() if record.is_external}
    _set_feed_frontiers(connection, known, now)
    _set_right(connection, governance, decisions, returned)
    absent = {key: replace(walk, is_present=False) for key, walk in known.items()}
    _store_walked(connection, {**absent, **now}, plan)


def find_changed(connection: Connection, cluster: str) -> frozenset[str]:
    """The processes of a cluster whose gates may stand otherwise since their definition, or that of a feed, changed."""
    text = Cursors(connection).get(_changed_on(cluster))
    return frozenset(json.loads(text)["processes"] if text else ())


def forget_changed(connection: Connection, cluster: str) -> None:
    """All of `find_changed` have been looked at."""
    _store_changed(connection, cluster, frozenset())


def _set_feed_frontiers(connection: Connection, before: Mapping[Key, Walked], now: Mapping[Key, Walked]) -> None:
    """Put the frontiers that are missing, and those of changed instances where they differ; the others are not read."""
    frontiers = Frontiers(connection)
    kind = FrontierKind.FEED
    missing = frozenset((key.entity, key.cluster) for key in frontiers.missing(kind, list(now)))
    rows = []
    for key, walk in now.items():
        was = before.get(key, walk)
        if key in missing:
            found = Frontier(kind=kind, entity=key[0], cluster=key[1], next_index=0, next_time=walk.sequence.start)
            rows.append(decide_frontier(found, walk.sequence, walk.sequence))
        elif was != walk and (standing := frontiers.get(kind, *key)) is not None:
            rows.append(decide_frontier(standing, was.sequence, walk.sequence))
    frontiers.put(rows)


def _set_process_frontiers(
    connection: Connection, governance: Governance, decisions: Mapping[Key, ReleaseDecision], returned: Iterable[Key]
) -> None:
    """Put the frontiers of processes that are new, came back, or whose releases went on."""
    frontiers = Frontiers(connection)
    kind = FrontierKind.PROCESS
    missing = frozenset((key.entity, key.cluster) for key in frontiers.missing(kind, list(governance.plan.processes)))
    rows = []
    for key in sorted({*missing, *decisions, *returned}):
        moment = BEGINNING if key in missing else _stood_at(connection, key)
        decision = decisions.get(key)
        if decision is not None and decision.step is not Step.IN_PLACE:
            moment = min(moment, *(row.effective_from for row in decision.rows))
        stretches = governance.stretches(connection, key, since=moment)
        found = first_at_or_after(stretches, moment)
        rows.append(
            Frontier(
                kind=kind,
                entity=key[0],
                cluster=key[1],
                next_index=found[0].record.sequence.index(found[1]) if found else 0,
                next_time=found[1] if found else None,
                delay=found[0].record.delay if found else timedelta(0),
            )
        )
    frontiers.put(rows)


def _stood_at(connection: Connection, key: Key) -> datetime:
    """Up to which nominal time all instances of a process have come into being."""
    standing = Frontiers(connection).get(FrontierKind.PROCESS, *key)
    if standing is not None and standing.next_time is not None:
        return standing.next_time
    newest = Beginnings(connection, *key).newest_time()
    return BEGINNING if newest is None else newest + _MOMENT


def _take_back(connection: Connection, governance: Governance, decisions: Sequence[ReleaseDecision]) -> None:
    """Remove instances that nothing was begun for, and that no release has any more."""
    for decision in decisions:
        beginnings = Beginnings(connection, *decision.key)
        beginnings.forget(
            [time for time in beginnings.unbegun() if governance.find(connection, decision.key, time) is None]
        )


def _walk_of(sequence: InstanceSequence) -> Walked:
    return Walked(
        start=sequence.start.isoformat(),
        end=sequence.end.isoformat() if sequence.end else None,
        frequency=sequence.frequency.render(),
        timezone=sequence.timezone.key,
    )


def _changed_on(cluster: str) -> str:
    return f"definitions/changed/{cluster}"


def note_changed(connection: Connection, changed: Iterable[Key]) -> None:
    by_cluster: dict[str, set[str]] = defaultdict(set)
    for process, cluster in changed:
        by_cluster[cluster].add(process)
    for cluster, names in by_cluster.items():
        _store_changed(connection, cluster, find_changed(connection, cluster) | names)


def _store_changed(connection: Connection, cluster: str, names: frozenset[str]) -> None:
    text = json.dumps({"version": _FIRST_VERSION, "processes": sorted(names)})
    Cursors(connection).put(_changed_on(cluster), text)


def _load_walked(connection: Connection) -> tuple[dict[Key, Walked], frozenset[Key]]:
    """The walks of all feeds that were declared once, and the processes that were declared last."""
    text = Cursors(connection).get(_WALKED)
    if text is None:
        return {}, frozenset()
    document = json.loads(text)
    if document["version"] > _VERSION:
        raise StateError(
            reason=f"walks are noted in version {document['version']}, and this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote them.",
        )
    if document["version"] == _FIRST_VERSION:
        rows = [[*row[1:-1], bool(row[-1])] for row in document["walks"] if row[0] == FrontierKind.FEED.value]
        present = [(row[1], row[2]) for row in document["walks"] if row[0] == FrontierKind.PROCESS.value and row[-1]]
    else:
        rows, present = document["feeds"], [(name, cluster) for name, cluster in document["processes"]]
    walks = {
        (feed, cluster): Walked(start=start, end=end, frequency=frequency, timezone=timezone, is_present=is_present)
        for feed, cluster, start, end, frequency, timezone, is_present in rows
    }
    return walks, frozenset(present)


def _store_walked(connection: Connection, walks: Mapping[Key, Walked], plan: Plan) -> None:
    document = {
        "version": _VERSION,
        "feeds": [[*key, *astuple(walk)] for key, walk in walks.items()],
        "processes": sorted(map(list, plan.processes)),
    }
    Cursors(connection).put(_WALKED, json.dumps(document, separators=(",", ":")))
