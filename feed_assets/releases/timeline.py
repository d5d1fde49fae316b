"""Find the definitions that govern each instance of a process: its releases as compiled spans of nominal time.

Only the releases and the nominal time decide: an instance follows the newest release that is effective at its nominal
time, whenever it runs. The current declaration replaces the releases that are like it.

Here is also which process instances read an instance of a feed, and what a change of definitions has left to look at.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import declared_by, source_of
from feed_assets.loading.bundles import LoadedBundle, load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import DefinitionVersion, Member, Release
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import UnstartedInstances
from feed_assets.masking import get_logger
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.edges import InputEdge, Key
from feed_assets.plan.pinned_files import with_pinned_digest
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.releases.store import Releases
from feed_assets.timing.expressions import DataDriven
from feed_assets.timing.sequence import contiguous

BEGINNING = datetime.min.replace(tzinfo=UTC)
FOREVER = datetime.max.replace(tzinfo=UTC)
REVISION = "releases/revision"
_KEPT_PLANS = 4_096

_logger = get_logger(__name__)

ReleaseSpan: TypeAlias = tuple[Release, datetime, datetime]
"""A release and the nominal times `[start, stop)` that it governs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRelease:
    """The definitions that govern a process on a cluster at the nominal times `[start, stop)`.

    `plan` has the entities of the process, `record` is the process in it. `release` is its number and `version` the
    version of the process's definition; None if none is recorded.
    """

    release: int | None
    version: int | None
    start: datetime
    stop: datetime
    plan: Plan
    record: ProcessRecord

    @classmethod
    def whole(cls, plan: Plan, process: Key, release: int | None = None) -> "ActiveRelease":
        """Return all instances of a process by a plan, that of a release or of none."""
        record = plan.processes[process]
        return cls(release=release, version=None, start=BEGINNING, stop=FOREVER, plan=plan, record=record)

    def contains(self, nominal_time: datetime) -> bool:
        """Return whether a time is the nominal time of an instance of this span."""
        return self.start <= nominal_time < self.stop and self.record.sequence.contains(nominal_time)

    def between(self, start: datetime, stop: datetime) -> range:
        """Return the indices, in the record's sequence, of this span's instances with `start <= time < stop`."""
        return self.record.sequence.indices_between(max(self.start, start), min(self.stop, stop))

    def ceil(self, moment: datetime) -> datetime | None:
        """Return the first instance of this span at or after a moment; None if there is none."""
        found = self.record.sequence.ceil(max(self.start, moment))
        return found if found is not None and found < self.stop else None


def decide_spans(releases: Sequence[Release]) -> tuple[ReleaseSpan, ...]:
    """Return the span of each release, oldest first; a release that newer ones replace entirely is left out.

    Args:
        releases: of one process on one cluster, by their numbers.
    """
    spans: list[ReleaseSpan] = []
    stop = FOREVER
    for release in reversed(releases):
        if release.effective_from < stop:
            spans.append((release, release.effective_from, stop))
            stop = release.effective_from
    return tuple(reversed(spans))


def first_at_or_after(spans: Sequence[ActiveRelease], moment: datetime) -> tuple[ActiveRelease, datetime] | None:
    """Return the first instance of several spans at or after a moment, with its span."""
    found = ((each, time) for each in spans if (time := each.ceil(moment)) is not None)
    return next(found, None)


class ReleaseTimeline:
    """The releases in a database, compiled against a plan; shared by the threads of a process.

    `values` resolve `${NAME}` in recorded definitions, as they did in the files.
    """

    def __init__(self, plan: Plan, values: Values | None = None) -> None:
        self.plan = plan
        self._values = values or Values(variables={}, environ={})
        self._spans: Mapping[Key, tuple[ReleaseSpan, ...]] = {}
        self._of_feeds: Mapping[str, Sequence[Release]] = {}
        self._older: Mapping[str, tuple[ActiveRelease, ...]] = {}
        self._plans: dict[tuple[str, tuple[Member, ...]], Plan | None] = {}
        self._recorded: tuple[list[DefinitionVersion | None], LoadedBundle] | None = None
        self._revision: str | None = None
        self._mutex = threading.Lock()

    def is_current(self, revision: str | None) -> bool:
        """Return whether the loaded releases have the revision of the cursor `REVISION`."""
        return self._revision is not None and self._revision == (revision or "")

    def refresh(self, connection: Connection, as_of: datetime) -> None:
        """Read the releases if they have changed; costs one row if not."""
        revision = Cursors(connection).get(REVISION) or ""
        if self.is_current(revision):
            return
        with self._mutex:
            found = Releases(connection).all()
            self._spans = {(name, on): decide_spans(releases) for (name, on), releases in found.items()}
            self._of_feeds = _by_feed(found.values())
            self._plans = {}  # in a restored database, a number of a version can have another content
            self._older = self._find_older(connection, as_of)
            self._revision = revision

    def forget(self) -> None:
        """Make the next refresh read the releases again."""
        self._revision = None

    def refresh_one(self, connection: Connection, key: Key) -> None:
        """Read the releases of one process, for a run."""
        self._spans = {**self._spans, key: decide_spans(Releases(connection).of(*key))}

    def older(self, cluster: str) -> tuple[ActiveRelease, ...]:
        """Return the spans that do not follow the plan and have instances that wait or are still to be created."""
        return self._older.get(cluster, ())

    def older_readers(self, cluster: str) -> tuple[ActiveRelease, ...]:
        """Return the `older` spans on any cluster that read feeds of one cluster."""
        found = (each for spans in self._older.values() for each in spans)
        return tuple(each for each in found if any(edge.feed_cluster == cluster for edge in each.record.inputs))

    def newest(self, key: Key) -> Release | None:
        """Return the newest release of a process that governs anything."""
        spans = self._spans.get(key)
        return spans[-1][0] if spans else None

    def find_or_declared(self, connection: Connection, key: Key, nominal_time: datetime) -> ActiveRelease | None:
        """Return the span of an instance; if there is none, the current declaration if it has such an instance; else
        None.

        Serves people who ask for an instance: they may fill the past by a new definition.
        """
        found = self.find(connection, key, nominal_time)
        record = self.plan.processes.get(key)
        if found is not None or record is None or not record.sequence.contains(nominal_time):
            return found
        newest = self.newest(key)
        whole = ActiveRelease.whole(self.plan, key)
        return whole if newest is None else replace(whole, release=newest.release, version=version_of(newest))

    def spans(self, connection: Connection, key: Key, since: datetime = BEGINNING) -> tuple[ActiveRelease, ...]:
        """Return the spans of a process that reach beyond a time, oldest first; empty if it is not declared."""
        record = self.plan.processes.get(key)
        if record is None:
            return ()
        spans = self._spans.get(key)
        if not spans:
            return (ActiveRelease.whole(self.plan, key),)
        end = record.sequence.end or FOREVER
        return tuple(
            self._active_release(connection, record, release, start, min(stop, end))
            for release, start, stop in spans
            if stop > since and start < end
        )

    def ever(self, connection: Connection, feed: Key) -> Iterator[tuple[Key, ActiveRelease | None]]:
        """Yield the processes and flows that have to do with a feed by any release there ever was, each release for all
        times; None if its definitions cannot be read any more. Of a process without a release, the declaration counts.
        """
        name, cluster = feed
        record = self.plan.feeds.get(feed)
        for edges in (record.inputs_of, record.outputs_of) if record is not None else ():
            for edge in edges:
                if edge.process_key not in self._spans:
                    yield edge.process_key, ActiveRelease.whole(self.plan, edge.process_key)
        for release in self._of_feeds.get(name, ()):
            key = (release.process, release.cluster)
            if cluster not in (release.cluster, source_of(release.process)):
                continue
            current, fingerprint = self.plan.processes.get(key), parse_fingerprint(release.fingerprint)
            is_same = current is not None and parse_fingerprint(current.fingerprint).is_same(fingerprint)
            plan = self.plan if is_same else self._plan_of(connection, release)
            yield key, None if plan is None else ActiveRelease.whole(plan, key, release.release)

    def find(self, connection: Connection, key: Key, nominal_time: datetime) -> ActiveRelease | None:
        """Return the span of an instance; None if the process has no instance at this time."""
        record = self.plan.processes.get(key)
        if record is None:
            return None
        for release, start, stop in self._spans.get(key, ()):
            if start <= nominal_time < min(stop, record.sequence.end or FOREVER):
                active = self._active_release(connection, record, release, start, stop)
                return active if active.contains(nominal_time) else None
        if self._spans.get(key):
            return None
        whole = ActiveRelease.whole(self.plan, key)
        return whole if whole.contains(nominal_time) else None

    def group(
        self, connection: Connection, times: Mapping[Key, Sequence[datetime]]
    ) -> list[tuple[Plan, dict[Key, list[datetime]]]]:
        """Group the instances of many processes by the plan that governs them; other times are left out."""
        groups: dict[int, tuple[Plan, dict[Key, list[datetime]]]] = {}
        for key, moments in times.items():
            for moment in moments:
                active = self.find(connection, key, moment)
                if active is not None:
                    _, found = groups.setdefault(id(active.plan), (active.plan, {}))
                    found.setdefault(key, []).append(moment)
        return list(groups.values())

    def compile_release(self, connection: Connection, release: Release) -> ProcessRecord | None:
        """Compile the process of a release; None if the recorded definitions cannot be read any more."""
        plan = self._plan_of(connection, release)
        return None if plan is None else plan.processes[release.process, release.cluster]

    def _active_release(
        self, connection: Connection, record: ProcessRecord, release: Release, start: datetime, stop: datetime
    ) -> ActiveRelease:
        plan, fingerprint = None, parse_fingerprint(release.fingerprint)
        if not parse_fingerprint(record.fingerprint).is_same(fingerprint):
            plan = self._plan_of(connection, release)
        plan = plan or self.plan
        record = plan.processes[record.key]
        return ActiveRelease(
            release=release.release,
            version=version_of(release),
            start=start,
            stop=stop,
            plan=plan,
            record=with_pinned_digest(record, fingerprint.files) if fingerprint.files else record,
        )

    def _find_older(self, connection: Connection, as_of: datetime) -> dict[str, tuple[ActiveRelease, ...]]:
        found: dict[str, list[ActiveRelease]] = {}
        for key in self._spans:
            if key not in self.plan.processes:
                continue
            record = self.plan.processes[key]
            for release, start, stop in self._spans[key]:
                if parse_fingerprint(record.fingerprint).is_same(parse_fingerprint(release.fingerprint)):
                    continue
                if stop > as_of or UnstartedInstances(connection, *key).has_waiting(start, stop):
                    found.setdefault(key[1], []).append(self._active_release(connection, record, release, start, stop))
        return {
            cluster: tuple(each for each in older if each.plan is not self.plan) for cluster, older in found.items()
        }

    def _plan_of(self, connection: Connection, release: Release) -> Plan | None:
        key, plans = (release.cluster, release.members), self._plans
        if key not in plans:
            if len(plans) >= _KEPT_PLANS:
                plans.pop(next(iter(plans)), None)
            plans[key] = self._compile(connection, release)
        return plans[key]

    def load_recorded(self, connection: Connection, members: Iterable[Member]) -> LoadedBundle:
        """Load recorded versions of definitions, with the present values of their references; remembers the last."""
        definitions = Definitions(connection)
        versions = [definitions.find_version(each.kind, each.name, each.version) for each in members]
        remembered = self._recorded
        if remembered is not None and remembered[0] == versions:
            return remembered[1]
        files = [_file_of(version) for version in versions if version is not None and version.text is not None]
        loaded = load_files(files, self._values)
        self._recorded = (versions, loaded)
        return loaded

    def _compile(self, connection: Connection, release: Release) -> Plan | None:
        loaded = self.load_recorded(connection, release.members)
        key = (release.process, release.cluster)
        if len(loaded.bundle.entities) == len(release.members):
            plan = compile_plan(loaded.bundle, cluster=release.cluster)
            if key in plan.processes:
                return self._with_immediate_settings(plan, key)
        _logger.warning(
            "process '%s' on %s: the definitions of release %d cannot be read or run any more; the current ones "
            "replace them: %s",
            *key,
            release.release,
            "; ".join(issue.render() for issue in loaded.issues) or "a definition is not in the record",
        )
        return None

    def _with_immediate_settings(self, plan: Plan, key: Key) -> Plan:
        """Apply the settings that take effect at once to a release's plan: parallel, catch-up, retries, late data, and
        feeds.
        """
        processes = dict(plan.processes)
        current = self.plan.processes.get(key)
        if current is not None:
            processes[key] = _with_current_settings(processes[key], current)
        feeds = {name: self._with_current_feed(record, key) for name, record in plan.feeds.items()}
        return replace(plan, feeds=feeds, processes=processes)

    def _with_current_feed(self, record: FeedRecord, key: Key) -> FeedRecord:
        current = self.plan.feeds.get(record.key)
        if current is None:
            return record
        others = tuple(edge for edge in current.outputs_of if edge.process_key != key)
        base = current if _is_alike(record, current) else record
        return replace(base, inputs_of=record.inputs_of, outputs_of=(*record.outputs_of, *others))


def _by_feed(releases: Iterable[Sequence[Release]]) -> dict[str, list[Release]]:
    """Return the releases that have to do with each feed."""
    found: dict[str, list[Release]] = defaultdict(list)
    for release in (each for listed in releases for each in listed):
        for name in {each.name for each in release.members if each.kind == Kind.FEED}:
            found[name].append(release)
    return found


def version_of(release: Release) -> int | None:
    """Return the version of the definition that declares the process or flow of a release."""
    own = declared_by(release.process)
    return next((each.version for each in release.members if (each.kind, each.name) == own), None)


def note_changed_releases(connection: Connection) -> None:
    """Make all timelines read the releases again; called in the transaction that changes them."""
    Cursors(connection).advance(REVISION)


def _is_alike(one: FeedRecord, other: FeedRecord) -> bool:
    """Return whether two records of a feed have the same instances (apart from the end) at the same locations."""

    def facts(feed: FeedRecord) -> tuple[object, ...]:
        sequence = feed.sequence
        grid = (sequence.start, sequence.frequency, sequence.timezone.key)
        return (*grid, feed.store, feed.template, feed.flag, feed.format, feed.options)

    return facts(one) == facts(other)


def _with_current_settings(record: ProcessRecord, current: ProcessRecord) -> ProcessRecord:
    """Apply the settings that take effect at once; late data stay off for a process that did not handle them."""
    record = replace(
        record,
        parallel=current.parallel,
        catch_up=current.catch_up,
        retry=current.retry,
        on_update=current.on_update,
        sla=current.sla,
    )
    if record.late is None:
        return record
    late = {edge.name for edge in current.inputs if edge.is_late}
    inputs = tuple(replace(edge, is_late=edge.name in late) for edge in record.inputs)
    return replace(record, late=current.late, inputs=inputs)


def _file_of(version: DefinitionVersion) -> EntityFile:
    """Return the document of a version as a file; the file name tells the format."""
    name = f"{version.kind}/{version.name}@{version.version}.{version.format.value}"
    return EntityFile(name=name, content=(version.text or "").encode())


_NONE = range(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedReader:
    """A process that reads a feed through an input, by the definitions of one span of its instances."""

    active: ActiveRelease
    edge: InputEdge

    @property
    def process(self) -> Key:
        """(process, cluster)."""
        return self.active.record.key

    @property
    def newest_read(self) -> int | None:
        """The number of newest instances that a `latest` window covers; None for other windows."""
        window = self.edge.window
        return 1 - window.start.n if window is not None and window.start.data_driven is DataDriven.LATEST else None

    def readers(self, nominal_time: datetime) -> range:
        """Return the indices of the process instances that read a feed instance.

        Empty for a `latest` window, which reads the newest instances, unless there is but one, which is current. For a
        `future` window, which depends on availability, return all possible readers.
        """
        record = self.active.plan.feeds[self.edge.feed_key]
        feed, process, window = record.sequence, self.active.record.sequence, self.edge.window
        index, is_newest = feed.index_at_or_before(nominal_time), self.newest_read is not None
        if (is_newest and not record.is_current) or index < 0 or feed.at(index) != nominal_time:
            return _NONE
        if is_newest:
            found = process.indices_between(nominal_time, feed.at(index + 1))
        elif window is not None and window.start.data_driven is DataDriven.FUTURE:
            first = max(0, index - window.end.limit)
            found = process.indices_between(feed.at(first), feed.at(index + 1))
        else:
            found = self.active.plan.reader_indices(self.edge, range(index, index + 1))
        governs = self.active.between(self.active.start, self.active.stop)
        return range(max(found.start, governs.start), min(found.stop, governs.stop)) if found else _NONE

    def spans_of(self, times: Iterable[datetime]) -> list[tuple[datetime, datetime]]:
        """Return the first and last nominal times of those that read any of several feed instances, as `readers`; with
        a window that runs backwards at some times, others may lie between them.
        """
        if self.edge.window is None or self.edge.window.start.data_driven is not None:
            found = [self.readers(time) for time in times]
        else:
            feed = self.active.plan.feeds[self.edge.feed_key].sequence
            runs = contiguous(sorted(feed.index(time) for time in times if feed.contains(time)))
            governs = self.active.between(self.active.start, self.active.stop)
            found = [self.active.plan.reader_indices(self.edge, run) for run in runs]
            found = [range(max(run.start, governs.start), min(run.stop, governs.stop)) for run in found]
        return [(self.at(run.start), self.at(run.stop - 1)) for run in found if run]

    def at(self, index: int) -> datetime:
        """Return the nominal time of a process instance."""
        return self.active.record.sequence.at(index)


def find_feed_readers(connection: Connection, timeline: ReleaseTimeline, record: FeedRecord) -> list[FeedReader]:
    """Return all readers of a feed, as processes and flows: by the current plan and by their older releases."""
    keys = {edge.process_key: None for edge in record.inputs_of}
    for older in timeline.older_readers(record.cluster):
        if any(edge.feed_key == record.key for edge in older.record.inputs):
            keys.setdefault(older.record.key)
    return [
        FeedReader(active=active, edge=edge)
        for key in keys
        for active in timeline.spans(connection, key)
        for edge in active.record.inputs
        if edge.feed_key == record.key
    ]


DESCRIBED = "metadata/described"
"""The cursor with the sign of the descriptions that were written last."""

_APPLIED = "definitions/applied"

_FIRST_VERSION = 1


def is_applied(connection: Connection, timeline: ReleaseTimeline, sign: str | None = None) -> bool:
    """Return whether the plan was applied last, its view of the releases is current, and its descriptions are those of
    the sign, if one is given; costs one read.
    """
    found = Cursors(connection).get_many((_APPLIED, REVISION, DESCRIBED))
    is_described = sign is None or found.get(DESCRIBED) == sign
    return found.get(_APPLIED) == timeline.plan.digest and timeline.is_current(found.get(REVISION)) and is_described


def find_changed(connection: Connection, cluster: str) -> frozenset[str]:
    """Return the processes of a cluster whose gates must be checked because a definition has changed."""
    text = Cursors(connection).get(_changed_on(cluster))
    return frozenset(json.loads(text)["processes"] if text else ())


def forget_changed(connection: Connection, cluster: str) -> None:
    """Record that all of `find_changed` have been checked."""
    _store_changed(connection, cluster, frozenset())


def _changed_on(cluster: str) -> str:
    return f"definitions/changed/{cluster}"


def note_changed(connection: Connection, changed: Iterable[Key]) -> None:
    """Record processes whose gates must be checked, because their definition or that of a feed has changed."""
    by_cluster: dict[str, set[str]] = defaultdict(set)
    for process, cluster in changed:
        by_cluster[cluster].add(process)
    for cluster, names in by_cluster.items():
        _store_changed(connection, cluster, find_changed(connection, cluster) | names)


def _store_changed(connection: Connection, cluster: str, names: frozenset[str]) -> None:
    text = json.dumps({"version": _FIRST_VERSION, "processes": sorted(names)})
    Cursors(connection).put(_changed_on(cluster), text)
