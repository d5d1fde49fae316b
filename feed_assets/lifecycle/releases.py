"""How the releases of processes go on when definitions change: what governs from which nominal time on.

Decided once for each plan that is new to the database. Every instance before the effective time stays with the
definitions that were there, every one from it on has the new ones: no hole and no overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.declaring import declared_by
from feed_assets.entities.flow_names import describe_process
from feed_assets.lifecycle.governance import Governance, decide_stretches, note_changed_releases, version_of
from feed_assets.plan.records import Key, Plan, ProcessRecord
from feed_assets.plan.signs import SETTLING, Step, Succession, decide_succession, parse_sign
from feed_assets.settings import DefinitionChanges
from feed_assets.state.beginnings import Beginnings
from feed_assets.state.definition_records import DefinitionAction, Member, Release
from feed_assets.state.definitions import Definitions
from feed_assets.state.releases import Releases
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.grids import is_same_grid
from feed_assets.timing.sequence import InstanceSequence

DECLARED = "declared"
TOUCHED = "touched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A process as it is declared: its record, and the recorded versions that it is made of."""

    record: ProcessRecord
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a process stands: its releases by their numbers, the instances of the newest, whether anything was begun for
    any instance, those that nothing was begun for yet, oldest first, and whether it was deleted since the newest
    release.
    """

    releases: tuple[Release, ...] = ()
    stood: InstanceSequence | None = None
    has_begun: bool = False
    unbegun: tuple[datetime, ...] = ()
    was_deleted: bool = False

    @property
    def waiting(self) -> int:
        """How many instances nothing was begun for."""
        return len(self.unbegun)

    @property
    def newest(self) -> Release | None:
        """The newest release."""
        return self.releases[-1] if self.releases else None

    @property
    def stood_from(self) -> datetime | None:
        """From when any release governs."""
        return min((release.effective_from for release in self.releases), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDecision:
    """How the releases of a process on a cluster go on. `rows` are those to be written, `after` is the newest of them.

    `effective_from` is the first nominal time that the new definitions govern, None where they govern none any more;
    `waiting` counts the instances before it that were not begun, and follow the release `before`.
    """

    process: str
    cluster: str
    step: Step
    before: Release | None
    after: Release
    effective_from: datetime | None
    waiting: int
    rows: tuple[Release, ...]

    @property
    def key(self) -> Key:
        return (self.process, self.cluster)

    def render(self) -> str:
        """A sentence for people."""
        name = f"{describe_process(self.process)} on {self.cluster}"
        match self.step:
            case Step.OVER:
                return f"{name}: no instance is left by the new definition"
            case Step.SUCCEEDED if self.effective_from is not None and self.before is not None:
                return (
                    f"{name}: effective time {render_datetime(self.effective_from)}: release {self.after.release} "
                    f"from then on, release {self.before.release} before ({self.waiting} waiting)"
                )
            case _:
                return f"{name}: release {self.after.release}, {self.step.value}"

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "process": self.process,
            "cluster": self.cluster,
            "step": self.step.value,
            "release_before": self.before.release if self.before else None,
            "release_after": self.after.release,
            "effective_from": render_datetime(self.effective_from) if self.effective_from else None,
            "waiting": self.waiting,
        }


def decide_release(
    wanted: Wanted, standing: Standing, as_of: datetime, policy: DefinitionChanges = DefinitionChanges.FROM_NOW
) -> ReleaseDecision | None:
    """How the releases of a process go on under what is declared; None where nothing has changed."""
    record, newest = wanted.record, standing.newest
    if newest is None or standing.was_deleted:
        first = min(filter(None, (record.sequence.start, standing.stood_from)))
        return _decision(wanted, standing, Step.BEGINS, first, [_following(wanted, newest, first, as_of, DECLARED)])
    if _is_settled(wanted, newest):
        return None
    succession = _succession(wanted, standing, newest, as_of, policy)
    begins, step = succession.effective_from, succession.step
    match step:
        case Step.IN_PLACE:
            rows = [_in_place(wanted, newest, newest.effective_from)]
        case Step.CORRECTED if not standing.has_begun:
            assert begins is not None
            rows = [_in_place(wanted, newest, begins)]
        case Step.EXTENDED if len(standing.releases) == 1:
            assert begins is not None
            rows = [_in_place(wanted, newest, begins)]
        case Step.EXTENDED:
            assert begins is not None
            rows = _spliced(wanted, standing, newest, begins, as_of)
        case _:
            rows = [_following(wanted, newest, begins or as_of + SETTLING, as_of, step.value)]
    return _decision(wanted, standing, step, begins, rows)


def _succession(
    wanted: Wanted, standing: Standing, newest: Release, as_of: datetime, policy: DefinitionChanges
) -> Succession:
    sequence, stood = wanted.record.sequence, standing.stood
    sign, known = parse_sign(wanted.record.sign), parse_sign(newest.sign)
    is_alike = sign.is_alike(known) or _members(wanted, newest) == newest.members  # then values of references differ
    if policy is DefinitionChanges.ALWAYS and standing.has_begun and not is_alike:
        unended = filter(None, (*standing.unbegun[:1], sequence.ceil(as_of)))
        begins = min(unended, default=None)
        return Succession(step=Step.OVER if begins is None else Step.CORRECTED, effective_from=begins)
    is_earlier = stood is not None and sequence.start < stood.start and is_same_grid(sequence, stood)
    return decide_succession(
        sequence,
        as_of,
        stood_from=newest.effective_from if is_alike or standing.stood_from is None else standing.stood_from,
        is_alike=is_alike,
        is_free=not standing.has_begun,
        stood=stood,
        is_earlier=is_earlier and sign.is_alike(known, but_for_start=True),
    )


def _decision(
    wanted: Wanted, standing: Standing, step: Step, begins: datetime | None, rows: Sequence[Release]
) -> ReleaseDecision:
    return ReleaseDecision(
        process=wanted.record.process,
        cluster=wanted.record.cluster,
        step=step,
        before=standing.newest,
        after=rows[-1],
        effective_from=begins,
        waiting=sum(begins is None or time < begins for time in standing.unbegun),
        rows=tuple(rows),
    )


def _is_settled(wanted: Wanted, newest: Release) -> bool:
    """Whether a release is what is wanted to the letter, by the same rules and values."""
    sign = parse_sign(wanted.record.sign).after(parse_sign(newest.sign))
    return _members(wanted, newest) == newest.members and sign.render() == newest.sign


def _in_place(wanted: Wanted, newest: Release, begins: datetime) -> Release:
    sign = parse_sign(wanted.record.sign).after(parse_sign(newest.sign)).render()
    return replace(newest, members=_members(wanted, newest), sign=sign, effective_from=begins)


def _following(wanted: Wanted, newest: Release | None, begins: datetime, as_of: datetime, reason: str) -> Release:
    known = parse_sign(newest.sign) if newest is not None else None
    return Release(
        process=wanted.record.process,
        cluster=wanted.record.cluster,
        release=newest.release + 1 if newest is not None else 1,
        effective_from=begins,
        sign=parse_sign(wanted.record.sign).after(known).render(),
        members=_members(wanted, newest),
        recorded_at=as_of,
        reason=reason,
    )


def _members(wanted: Wanted, newest: Release | None) -> tuple[Member, ...]:
    """What a release is made of: the cluster as it was, where the process does not refer to its newest version yet."""
    if newest is None or not parse_sign(wanted.record.sign).is_lagging:
        return wanted.members
    known = {(each.kind, each.name): each for each in newest.members}
    return tuple(known.get((each.kind, each.name), each) if each.kind == "cluster" else each for each in wanted.members)


def _spliced(wanted: Wanted, standing: Standing, newest: Release, begins: datetime, as_of: datetime) -> list[Release]:
    """Earlier instances by what is declared, then what governed before, then what is declared again."""
    first = _following(wanted, newest, begins, as_of, Step.EXTENDED.value)
    rows = [first]
    for release, start, _ in decide_stretches(standing.releases)[:-1]:
        rows.append(replace(release, release=rows[-1].release + 1, effective_from=start))
    rows.append(replace(first, release=rows[-1].release + 1, effective_from=newest.effective_from))
    return rows


def decide_touch(
    wanted: Wanted, standing: Standing, as_of: datetime, effective_from: datetime | None = None
) -> ReleaseDecision | None:
    """A new release with the same definition, by default from the first instance that is `SETTLING` or more ahead; None
    where its validity is over by then.
    """
    begins = wanted.record.sequence.ceil(effective_from or as_of + SETTLING)
    if begins is None:
        return None
    row = _following(wanted, standing.newest, begins, as_of, TOUCHED)
    return _decision(wanted, standing, Step.SUCCEEDED, begins, [row])


def load_standing(
    connection: Connection, keys: Sequence[Key], governance: Governance | None = None
) -> dict[Key, Standing]:
    """How processes stand; with `governance`, also which instances their newest releases have."""
    known = Releases(connection)
    standings = {}
    for key in keys:
        releases = tuple(known.of(*key))
        beginnings = Beginnings(connection, *key)
        stood = governance.compile_release(connection, releases[-1]) if governance and releases else None
        standings[key] = Standing(
            releases=releases,
            stood=stood.sequence if stood else None,
            has_begun=beginnings.has_begun(),
            unbegun=tuple(beginnings.unbegun()),
            was_deleted=bool(releases) and _was_deleted(connection, releases[-1]),
        )
    return standings


def _was_deleted(connection: Connection, newest: Release) -> bool:
    known = version_of(newest) or 0
    history = Definitions(connection).history(*declared_by(newest.process))
    return any(each.version > known and each.action is DefinitionAction.DELETED for each in history)


def decide_releases(
    connection: Connection, plan: Plan, governance: Governance, as_of: datetime, policy: DefinitionChanges
) -> tuple[ReleaseDecision, ...] | None:
    """How the releases of all processes of a plan go on; nothing is written.

    Returns:
        The decisions, without processes that nothing changes for. None if something of the plan is not in the record
        of definitions.
    """
    newest = Definitions(connection).declared_versions()
    known = {(name, on): releases for (name, on), releases in Releases(connection).all().items()}
    changed: dict[Key, Wanted] = {}
    for key, record in plan.processes.items():
        members = []
        for kind, name in record.members:
            version = newest.get((kind, name))
            if version is None:
                return None
            members.append(Member(kind=kind, name=name, version=version))
        wanted = Wanted(record=record, members=tuple(members))
        releases = known.get(key)
        if not releases or not _is_settled(wanted, releases[-1]):
            changed[key] = wanted
    standings = load_standing(connection, list(changed), governance)
    decided = (decide_release(wanted, standings[key], as_of, policy) for key, wanted in changed.items())
    return tuple(decision for decision in decided if decision is not None)


def put_releases(connection: Connection, decisions: Sequence[ReleaseDecision]) -> None:
    """Write what was decided."""
    if decisions:
        Releases(connection).put(row for decision in decisions for row in decision.rows)
        note_changed_releases(connection)
