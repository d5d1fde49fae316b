"""Which definitions govern which instances of a process: its releases as stretches of nominal time, compiled.

The releases alone decide, and the nominal time: an instance follows the newest release that governs from its nominal
time or earlier, whenever it runs. What is declared now stands for the releases that are like it.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.entities.declaring import declared_by
from feed_assets.loading.entity_files import EntityFile, load_files
from feed_assets.loading.interpolation import Values
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import FeedRecord, Key, Plan, ProcessRecord
from feed_assets.plan.signs import parse_sign
from feed_assets.state.beginnings import Beginnings
from feed_assets.state.definition_records import DefinitionVersion, Member, Release
from feed_assets.state.definitions import Definitions
from feed_assets.state.event_log import Cursors
from feed_assets.state.releases import Releases

BEGINNING = datetime.min.replace(tzinfo=UTC)
FOREVER = datetime.max.replace(tzinfo=UTC)
REVISION = "releases/revision"
_KEPT_PLANS = 4_096

_logger = logging.getLogger(__name__)

Stretch: TypeAlias = tuple[Release, datetime, datetime]
"""A release and the nominal times `[start, stop)` that it governs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Governed:
    """The definitions that govern a process on a cluster at the nominal times `[start, stop)`.

    `plan` has what the process is made of, `record` is the process in it. `release` is its number and `version` that of
    the process's definition; None where none is recorded.
    """

    release: int | None
    version: int | None
    start: datetime
    stop: datetime
    plan: Plan
    record: ProcessRecord

    @classmethod
    def whole(cls, plan: Plan, process: Key) -> "Governed":
        """All instances that a plan has of a process, without a release."""
        return cls(release=None, version=None, start=BEGINNING, stop=FOREVER, plan=plan, record=plan.processes[process])

    def contains(self, nominal_time: datetime) -> bool:
        """Whether a time is an instance of this stretch."""
        return self.start <= nominal_time < self.stop and self.record.sequence.contains(nominal_time)

    def between(self, start: datetime, stop: datetime) -> range:
        """The numbers, in the record's sequence, of the instances of this stretch with `start <= time < stop`."""
        return self.record.sequence.indices_between(max(self.start, start), min(self.stop, stop))

    def ceil(self, moment: datetime) -> datetime | None:
        """The first instance of this stretch at or after a moment; None if there is none."""
        found = self.record.sequence.ceil(max(self.start, moment))
        return found if found is not None and found < self.stop else None


def decide_stretches(releases: Sequence[Release]) -> tuple[Stretch, ...]:
    """What each release governs, oldest first; a release that others have taken everything from is left out.

    Args:
        releases: of one process on one cluster, by their numbers.
    """
    stretches: list[Stretch] = []
    stop = FOREVER
    for release in reversed(releases):
        if release.effective_from < stop:
            stretches.append((release, release.effective_from, stop))
            stop = release.effective_from
    return tuple(reversed(stretches))


def first_at_or_after(stretches: Sequence[Governed], moment: datetime) -> tuple[Governed, datetime] | None:
    """The first instance of several stretches at or after a moment, and the stretch it is in."""
    found = ((each, time) for each in stretches if (time := each.ceil(moment)) is not None)
    return next(found, None)


class Governance:
    """The releases of a database as seen by one who has a plan; shared by the threads of a process.

    `values` are for definitions of the record, which say `${NAME}` as their files did.
    """

    def __init__(self, plan: Plan, values: Values | None = None) -> None:
        self.plan = plan
        self._values = values or Values(variables={}, environ={})
        self._stretches: Mapping[Key, tuple[Stretch, ...]] = {}
        self._older: Mapping[str, tuple[Governed, ...]] = {}
        self._plans: dict[tuple[str, tuple[Member, ...]], Plan | None] = {}
        self._revision: str | None = None
        self._mutex = threading.Lock()

    def is_current(self, revision: str | None) -> bool:
        """Whether the releases are known as the cursor `REVISION` has them."""
        return self._revision is not None and self._revision == (revision or "")

    def refresh(self, connection: Connection, as_of: datetime) -> None:
        """Read the releases if they have changed since; else it costs one row."""
        revision = Cursors(connection).get(REVISION) or ""
        if self.is_current(revision):
            return
        with self._mutex:
            found = Releases(connection).all()
            self._stretches = {(name, on): decide_stretches(releases) for (name, on), releases in found.items()}
            self._older = self._find_older(connection, as_of)
            self._revision = revision

    def forget(self) -> None:
        """Read the releases again at the next refresh."""
        self._revision = None

    def refresh_one(self, connection: Connection, key: Key) -> None:
        """Read the releases of one process, for a run."""
        self._stretches = {**self._stretches, key: decide_stretches(Releases(connection).of(*key))}

    def older(self, cluster: str) -> tuple[Governed, ...]:
        """The stretches that do not follow the plan and have instances that wait, or may still come into being."""
        return self._older.get(cluster, ())

    def older_readers(self, cluster: str) -> tuple[Governed, ...]:
        """Those of the `older` stretches on any cluster that read feeds of a cluster."""
        found = (each for stretches in self._older.values() for each in stretches)
        return tuple(each for each in found if any(edge.feed_cluster == cluster for edge in each.record.inputs))

    def newest(self, key: Key) -> Release | None:
        """The newest release of a process that governs anything."""
        stretches = self._stretches.get(key)
        return stretches[-1][0] if stretches else None

    def find_or_present(self, connection: Connection, key: Key, nominal_time: datetime) -> Governed | None:
        """The stretch that an instance is in; for a time that is an instance of what is declared now only, that.

        It is for people who ask for an instance: they may fill the past by a new definition. None if it is neither.
        """
        found = self.find(connection, key, nominal_time)
        record = self.plan.processes.get(key)
        if found is not None or record is None or not record.sequence.contains(nominal_time):
            return found
        newest = self.newest(key)
        whole = Governed.whole(self.plan, key)
        return whole if newest is None else replace(whole, release=newest.release, version=version_of(newest))

    def stretches(self, connection: Connection, key: Key, since: datetime = BEGINNING) -> tuple[Governed, ...]:
        """The stretches of a process that reach beyond a time, oldest first; none if it is not declared."""
        record = self.plan.processes.get(key)
        if record is None:
            return ()
        stretches = self._stretches.get(key)
        if not stretches:
            return (Governed.whole(self.plan, key),)
        end = record.sequence.end or FOREVER
        return tuple(
            self._governed(connection, record, release, start, min(stop, end))
            for release, start, stop in stretches
            if stop > since and start < end
        )

    def find(self, connection: Connection, key: Key, nominal_time: datetime) -> Governed | None:
        """The stretch that an instance is in; None if the time is no instance of the process."""
        record = self.plan.processes.get(key)
        if record is None:
            return None
        for release, start, stop in self._stretches.get(key, ()):
            if start <= nominal_time < min(stop, record.sequence.end or FOREVER):
                governed = self._governed(connection, record, release, start, stop)
                return governed if governed.contains(nominal_time) else None
        if self._stretches.get(key):
            return None
        whole = Governed.whole(self.plan, key)
        return whole if whole.contains(nominal_time) else None

    def group(
        self, connection: Connection, times: Mapping[Key, Sequence[datetime]]
    ) -> list[tuple[Plan, dict[Key, list[datetime]]]]:
        """Instances of many processes by the plan that governs them; times that are no instances are left out."""
        groups: dict[int, tuple[Plan, dict[Key, list[datetime]]]] = {}
        for key, moments in times.items():
            for moment in moments:
                governed = self.find(connection, key, moment)
                if governed is not None:
                    _, found = groups.setdefault(id(governed.plan), (governed.plan, {}))
                    found.setdefault(key, []).append(moment)
        return list(groups.values())

    def compile_release(self, connection: Connection, release: Release) -> ProcessRecord | None:
        """The process as a release has it; None where what was recorded cannot be read any more."""
        plan = self._plan_of(connection, release)
        return None if plan is None else plan.processes[release.process, release.cluster]

    def _governed(
        self, connection: Connection, record: ProcessRecord, release: Release, start: datetime, stop: datetime
    ) -> Governed:
        plan = None
        if not parse_sign(record.sign).is_same(parse_sign(release.sign)):
            plan = self._plan_of(connection, release)
        plan = plan or self.plan
        return Governed(
            release=release.release,
            version=version_of(release),
            start=start,
            stop=stop,
            plan=plan,
            record=plan.processes[record.key],
        )

    def _find_older(self, connection: Connection, as_of: datetime) -> dict[str, tuple[Governed, ...]]:
        found: dict[str, list[Governed]] = {}
        for key in self._stretches:
            if key not in self.plan.processes:
                continue
            record = self.plan.processes[key]
            for release, start, stop in self._stretches[key]:
                if parse_sign(record.sign).is_same(parse_sign(release.sign)):
                    continue
                if stop > as_of or Beginnings(connection, *key).has_waiting(start, stop):
                    found.setdefault(key[1], []).append(self._governed(connection, record, release, start, stop))
        return {
            cluster: tuple(each for each in older if each.plan is not self.plan) for cluster, older in found.items()
        }

    def _plan_of(self, connection: Connection, release: Release) -> Plan | None:
        key = (release.cluster, release.members)
        if key not in self._plans:
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)), None)
            self._plans[key] = self._compile(connection, release)
        return self._plans[key]

    def _compile(self, connection: Connection, release: Release) -> Plan | None:
        definitions = Definitions(connection)
        versions = [definitions.find_version(each.kind, each.name, each.version) for each in release.members]
        files = [_file_of(version) for version in versions if version is not None and version.text is not None]
        loaded = load_files(files, self._values)
        key = (release.process, release.cluster)
        if len(loaded.bundle.entities) == len(versions):
            plan = compile_plan(loaded.bundle, cluster=release.cluster)
            if key in plan.processes:
                return self._with_what_holds_at_once(plan, key)
        _logger.warning(
            "process '%s' on %s: what release %d was made of cannot be read or run any more, what is declared now "
            "takes its place: %s",
            *key,
            release.release,
            "; ".join(issue.render() for issue in loaded.issues) or "a definition is not in the record",
        )
        return None

    def _with_what_holds_at_once(self, plan: Plan, key: Key) -> Plan:
        """The plan of a release with what changes in place: parallel, catch-up, retries, late data, and feeds."""
        processes = dict(plan.processes)
        present = self.plan.processes.get(key)
        if present is not None:
            processes[key] = _with_soft_parts(processes[key], present)
        feeds = {name: self._feed_now(record, key) for name, record in plan.feeds.items()}
        return replace(plan, feeds=feeds, processes=processes)

    def _feed_now(self, record: FeedRecord, key: Key) -> FeedRecord:
        present = self.plan.feeds.get(record.key)
        if present is None:
            return record
        others = tuple(edge for edge in present.outputs_of if edge.process_key != key)
        base = present if _is_alike(record, present) else record
        return replace(base, inputs_of=record.inputs_of, outputs_of=(*record.outputs_of, *others))


def version_of(release: Release) -> int | None:
    """The version of the definition that declares the process or flow of a release."""
    own = declared_by(release.process)
    return next((each.version for each in release.members if (each.kind, each.name) == own), None)


def note_changed_releases(connection: Connection) -> None:
    """Let everybody read the releases again; in the transaction that has changed them."""
    cursors = Cursors(connection)
    cursors.put(REVISION, str(int(cursors.get(REVISION) or 0) + 1))


def _is_alike(one: FeedRecord, other: FeedRecord) -> bool:
    """Whether two records of a feed have the same instances, but for the end, at the same places."""

    def facts(feed: FeedRecord) -> tuple[object, ...]:
        sequence = feed.sequence
        grid = (sequence.start, sequence.frequency, sequence.timezone.key)
        return (*grid, feed.store, feed.template, feed.flag, feed.format, feed.options)

    return facts(one) == facts(other)


def _with_soft_parts(record: ProcessRecord, present: ProcessRecord) -> ProcessRecord:
    """A process of a release with what holds at once; late data are handled only where they were before."""
    record = replace(record, parallel=present.parallel, catch_up=present.catch_up, retry=present.retry)
    if record.late is None:
        return record
    late = {edge.name for edge in present.inputs if edge.is_late}
    inputs = tuple(replace(edge, is_late=edge.name in late) for edge in record.inputs)
    return replace(record, late=present.late, inputs=inputs)


def _file_of(version: DefinitionVersion) -> EntityFile:
    """The document of a version as a file; its name says how it is written."""
    name = f"{version.kind}/{version.name}@{version.version}.{version.format.value}"
    return EntityFile(name=name, content=(version.text or "").encode())
