"""Decide on the releases of processes when definitions change: which definition governs from which nominal time on.

The decision is made once for each plan that is new to the database. Instances before the effective time keep their
definitions; later instances follow the new ones. There is no gap and no overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.flow_names import declared_by, describe_process
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.log.definitions.records import DefinitionAction, Member, Release
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import UnstartedInstances
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.release_fingerprint import SETTLING, Step, Succession, decide_succession, parse_fingerprint
from feed_assets.releases.store import Releases
from feed_assets.releases.timeline import ReleaseTimeline, decide_spans, note_changed_releases, version_of
from feed_assets.settings import DefinitionChanges
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence, is_same_grid

DECLARED = "declared"
TOUCHED = "touched"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredProcess:
    """A process as it is declared: its record, and the recorded versions of the definitions it is made of."""

    record: ProcessRecord
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseHistory:
    """The releases of a process so far, in numeric order.

    `sequence` is that of the newest release. `has_begun` says whether work on any instance has begun. `unstarted`
    has the nominal times without work, oldest first. `was_deleted` says whether the process was deleted after the
    newest release.
    """

    releases: tuple[Release, ...] = ()
    sequence: InstanceSequence | None = None
    has_begun: bool = False
    unstarted: tuple[datetime, ...] = ()
    was_deleted: bool = False

    @property
    def waiting(self) -> int:
        """How many instances have not been started."""
        return len(self.unstarted)

    @property
    def newest(self) -> Release | None:
        """The newest release."""
        return self.releases[-1] if self.releases else None

    @property
    def first_effective(self) -> datetime | None:
        """The first nominal time that any release governs."""
        return min((release.effective_from for release in self.releases), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDecision:
    """A change of the releases of a process on a cluster. `rows` are the releases to write, `after` is the newest of
    them.

    `effective_from` is the first nominal time that the new definitions govern, None if they govern none. `waiting`
    counts the unstarted instances before it, which follow the release `before`.
    """

    process: str
    cluster: str
    step: Step
    before: Hidden[Release | None]
    after: Hidden[Release]
    effective_from: NominalTime | None
    waiting: int
    rows: Hidden[tuple[Release, ...]]

    @property
    def key(self) -> Key:
        return (self.process, self.cluster)

    @shown
    def release_before(self) -> int | None:
        """The number of the release that governs the earlier instances."""
        return self.before.release if self.before else None

    @shown
    def release_after(self) -> int:
        """The number of the newest release."""
        return self.after.release

    def render(self) -> str:
        """Describe the decision in a sentence for people."""
        name = f"{describe_process(self.process)} on {self.cluster}"
        match self.step:
            case Step.OVER:
                return f"{name}: the new definition has no instance left"
            case Step.SUCCEEDED if self.effective_from is not None and self.before is not None:
                return (
                    f"{name}: effective time {render_datetime(self.effective_from)}: release {self.after.release} "
                    f"from then on, release {self.before.release} before ({self.waiting} waiting)"
                )
            case _:
                return f"{name}: release {self.after.release}, {self.step.value}"


def decide_release(
    declared: DeclaredProcess,
    history: ReleaseHistory,
    as_of: datetime,
    policy: DefinitionChanges = DefinitionChanges.FROM_NOW,
) -> ReleaseDecision | None:
    """Decide how the releases of a process continue under its current declaration; None if nothing has changed."""
    record, newest = declared.record, history.newest
    if newest is None or history.was_deleted:
        first = min(filter(None, (record.sequence.start, history.first_effective)))
        return _decision(
            declared, history, Step.BEGINS, first, [_next_release(declared, newest, first, as_of, DECLARED)]
        )
    if _is_settled(declared, newest):
        return None
    succession = _succession(declared, history, newest, as_of, policy)
    begins, step = succession.effective_from, succession.step
    replaces = (
        step is Step.IN_PLACE
        or (step is Step.CORRECTED and not history.has_begun)
        or (step is Step.EXTENDED and len(history.releases) == 1)
    )
    if replaces and begins is not None:
        rows = [_with_definition(declared, newest, begins)]
    elif step is Step.EXTENDED and begins is not None:
        rows = _spliced(declared, history, newest, begins, as_of)
    else:
        rows = [_next_release(declared, newest, begins or as_of + SETTLING, as_of, step.value)]
    return _decision(declared, history, step, begins, rows)


def _succession(
    declared: DeclaredProcess, history: ReleaseHistory, newest: Release, as_of: datetime, policy: DefinitionChanges
) -> Succession:
    sequence, previous = declared.record.sequence, history.sequence
    fingerprint, known = parse_fingerprint(declared.record.fingerprint), parse_fingerprint(newest.fingerprint)
    has_same_members = _members(declared, newest) == newest.members  # then only values of references differ
    is_alike = fingerprint.is_alike(known) or (has_same_members and fingerprint.has_files_of(known))
    if policy is DefinitionChanges.ALWAYS and history.has_begun and not is_alike:
        unended = filter(None, (*history.unstarted[:1], sequence.ceil(as_of)))
        begins = min(unended, default=None)
        return Succession(step=Step.OVER if begins is None else Step.CORRECTED, effective_from=begins)
    is_earlier = previous is not None and sequence.start < previous.start and is_same_grid(sequence, previous)
    return decide_succession(
        sequence,
        as_of,
        governed_from=newest.effective_from if is_alike or history.first_effective is None else history.first_effective,
        is_alike=is_alike,
        is_free=not history.has_begun,
        previous=previous,
        is_earlier=is_earlier and fingerprint.is_alike(known, but_for_start=True),
    )


def _decision(
    declared: DeclaredProcess, history: ReleaseHistory, step: Step, begins: datetime | None, rows: Sequence[Release]
) -> ReleaseDecision:
    return ReleaseDecision(
        process=declared.record.process,
        cluster=declared.record.cluster,
        step=step,
        before=history.newest,
        after=rows[-1],
        effective_from=begins,
        waiting=sum(begins is None or time < begins for time in history.unstarted),
        rows=tuple(rows),
    )


def _is_settled(declared: DeclaredProcess, newest: Release) -> bool:
    """Return whether a release matches the declaration exactly, with the same rules and values."""
    fingerprint = parse_fingerprint(declared.record.fingerprint).after(parse_fingerprint(newest.fingerprint))
    return _members(declared, newest) == newest.members and fingerprint.render() == newest.fingerprint


def _with_definition(declared: DeclaredProcess, newest: Release, begins: datetime) -> Release:
    fingerprint = parse_fingerprint(declared.record.fingerprint).after(parse_fingerprint(newest.fingerprint)).render()
    return replace(newest, members=_members(declared, newest), fingerprint=fingerprint, effective_from=begins)


def _next_release(
    declared: DeclaredProcess, newest: Release | None, begins: datetime, as_of: datetime, reason: str
) -> Release:
    known = parse_fingerprint(newest.fingerprint) if newest is not None else None
    return Release(
        process=declared.record.process,
        cluster=declared.record.cluster,
        release=newest.release + 1 if newest is not None else 1,
        effective_from=begins,
        fingerprint=parse_fingerprint(declared.record.fingerprint).after(known).render(),
        members=_members(declared, newest),
        recorded_at=as_of,
        reason=reason,
    )


def _members(declared: DeclaredProcess, newest: Release | None) -> tuple[Member, ...]:
    """Return the members of a release; a process that lags behind the newest cluster version keeps the old version."""
    if newest is None or not parse_fingerprint(declared.record.fingerprint).is_lagging:
        return declared.members
    known = {(each.kind, each.name): each for each in newest.members}
    return tuple(
        known.get((each.kind, each.name), each) if each.kind == "cluster" else each for each in declared.members
    )


def _spliced(
    declared: DeclaredProcess, history: ReleaseHistory, newest: Release, begins: datetime, as_of: datetime
) -> list[Release]:
    """Return releases for earlier instances by the declaration, then the earlier releases, then the declaration."""
    first = _next_release(declared, newest, begins, as_of, Step.EXTENDED.value)
    rows = [first]
    for release, start, _ in decide_spans(history.releases)[:-1]:
        rows.append(replace(release, release=rows[-1].release + 1, effective_from=start))
    rows.append(replace(first, release=rows[-1].release + 1, effective_from=newest.effective_from))
    return rows


def decide_touch(
    declared: DeclaredProcess, history: ReleaseHistory, as_of: datetime, effective_from: datetime | None = None
) -> ReleaseDecision | None:
    """Decide on a new release with the same definition; None if its validity is over by then.

    It begins at the first instance from `effective_from` on, by default `SETTLING` or more ahead.
    """
    begins = declared.record.sequence.ceil(effective_from or as_of + SETTLING)
    if begins is None:
        return None
    row = _next_release(declared, history.newest, begins, as_of, TOUCHED)
    return _decision(declared, history, Step.SUCCEEDED, begins, [row])


def load_histories(
    connection: Connection, keys: Sequence[Key], timeline: ReleaseTimeline | None = None
) -> dict[Key, ReleaseHistory]:
    """Load the release histories of processes; with `timeline`, also the sequences of their newest releases."""
    known = Releases(connection)
    histories = {}
    for key in keys:
        releases = tuple(known.of(*key))
        unstarted = UnstartedInstances(connection, *key)
        record = timeline.compile_release(connection, releases[-1]) if timeline and releases else None
        histories[key] = ReleaseHistory(
            releases=releases,
            sequence=record.sequence if record else None,
            has_begun=unstarted.has_begun(),
            unstarted=tuple(unstarted.times()),
            was_deleted=bool(releases) and _was_deleted(connection, releases[-1]),
        )
    return histories


def _was_deleted(connection: Connection, newest: Release) -> bool:
    known = version_of(newest) or 0
    history = Definitions(connection).history(*declared_by(newest.process))
    return any(each.version > known and each.action is DefinitionAction.DELETED for each in history)


def decide_releases(
    connection: Connection, plan: Plan, timeline: ReleaseTimeline, as_of: datetime, policy: DefinitionChanges
) -> tuple[ReleaseDecision, ...] | None:
    """Decide how the releases of all processes of a plan continue; nothing is written.

    Returns:
        The decisions, without unchanged processes. None if an entity of the plan is missing in the record of
            definitions.
    """
    newest = Definitions(connection).declared_versions()
    known = {(name, on): releases for (name, on), releases in Releases(connection).all().items()}
    changed: dict[Key, DeclaredProcess] = {}
    for key, record in plan.processes.items():
        members = []
        for kind, name in record.members:
            version = newest.get((kind, name))
            if version is None:
                return None
            members.append(Member(kind=kind, name=name, version=version))
        declared = DeclaredProcess(record=record, members=tuple(members))
        releases = known.get(key)
        if not releases or not _is_settled(declared, releases[-1]):
            changed[key] = declared
    histories = load_histories(connection, list(changed), timeline)
    decided = (decide_release(declared, histories[key], as_of, policy) for key, declared in changed.items())
    return tuple(decision for decision in decided if decision is not None)


def put_releases(connection: Connection, decisions: Sequence[ReleaseDecision]) -> None:
    """Write the decided releases."""
    if decisions:
        Releases(connection).put(row for decision in decisions for row in decision.rows)
        note_changed_releases(connection)
