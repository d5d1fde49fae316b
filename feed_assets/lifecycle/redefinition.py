"""What a changed definition means for what has been done already: where the walk along instances goes on.

Once for each plan that is new to the database the walks are set right, and processes whose gates may open now are
noted for the next tick.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from hashlib import sha256

from sqlalchemy import Connection

from feed_assets.errors import StateError
from feed_assets.plan.records import Key, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import Cursors
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.records import Frontier, FrontierKind
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.frequency import parse_frequency
from feed_assets.timing.sequence import InstanceSequence

_APPLIED = "definitions/applied"
_WALKED = "definitions/walked"
_VERSION = 1
_PRESENT = "declared"
_ABSENT = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """The instances that a frontier walks along, and a sign of everything that decides about gates."""

    start: str
    end: str | None
    frequency: str
    timezone: str
    sign: str

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
    """Where the walk goes on under a definition that may be another than the one it has followed.

    It goes on where it stood, also where it had ended and the validity was extended. Where the start moved to an
    earlier instance of the same grid it begins anew, and what has been done is not done again. Instances of another
    grid (another frequency, time zone or phase) are new from where the walk stood, not in the past.
    """
    stood_at = frontier.next_time or walked.at(frontier.next_index)
    index = 0 if _starts_earlier(walked, declared) else max(0, declared.index_at_or_after(stood_at))
    is_over = declared.size is not None and index >= declared.size
    return replace(frontier, next_index=index, next_time=None if is_over else declared.at(index))


def _starts_earlier(walked: InstanceSequence, declared: InstanceSequence) -> bool:
    if declared.start >= walked.start:
        return False
    is_alike = (declared.frequency, declared.timezone.key) == (walked.frequency, walked.timezone.key)
    return is_alike and declared.at(declared.index_at_or_before(walked.start)) == walked.start


def apply_frontiers(database: Database, plan: Plan) -> None:
    """Give every external feed and every process a frontier that is right for this plan; at the beginning of a tick.

    A plan that was applied last costs one read. What is not declared any more is kept in mind, so that it can come
    back; so two code servers of which one has an older plan put right in turn what the other did not know.
    """
    with database.read() as connection:
        if Cursors(connection).get(_APPLIED) == plan.digest:
            return
    now = {
        FrontierKind.FEED: {
            key: _walk_of(record.sequence, _PRESENT) for key, record in plan.feeds.items() if record.is_external
        },
        FrontierKind.PROCESS: {
            key: _walk_of(record.sequence, _sign_of(plan, record)) for key, record in plan.processes.items()
        },
    }
    with database.begin() as connection:
        before = _load_walked(connection)
        for kind in FrontierKind:
            _set_frontiers(connection, kind, before[kind], now[kind])
        known = before[FrontierKind.PROCESS]
        changed = [
            key for key, walk in now[FrontierKind.PROCESS].items() if key in known and known[key].sign != walk.sign
        ]
        _note_changed(connection, changed)
        _store_walked(connection, before, now)
        Cursors(connection).put(_APPLIED, plan.digest)


def find_changed(connection: Connection, cluster: str) -> frozenset[str]:
    """The processes of a cluster whose gates may stand otherwise since their definition, or that of a feed, changed."""
    text = Cursors(connection).get(_changed_on(cluster))
    return frozenset(json.loads(text)["processes"] if text else ())


def forget_changed(connection: Connection, cluster: str) -> None:
    """All of `find_changed` have been looked at."""
    _store_changed(connection, cluster, frozenset())


def _set_frontiers(
    connection: Connection, kind: FrontierKind, before: Mapping[Key, Walked], now: Mapping[Key, Walked]
) -> None:
    """Put the frontiers that are missing, and those of changed instances where they differ; the others are not read."""
    frontiers = Frontiers(connection)
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


def _walk_of(sequence: InstanceSequence, sign: str) -> Walked:
    return Walked(
        start=sequence.start.isoformat(),
        end=sequence.end.isoformat() if sequence.end else None,
        frequency=sequence.frequency.render(),
        timezone=sequence.timezone.key,
        sign=sign,
    )


def _sign_of(plan: Plan, process: ProcessRecord) -> str:
    """Changes whenever a gate of the process may stand otherwise without any event."""
    feeds = [plan.feeds[edge.feed, edge.cluster].sequence for edge in process.inputs]
    facts = [process.digest, *(f"{feed.start} {feed.frequency} {feed.timezone.key} {feed.end}" for feed in feeds)]
    return sha256("|".join(facts).encode()).hexdigest()[:16]


def _changed_on(cluster: str) -> str:
    return f"definitions/changed/{cluster}"


def _note_changed(connection: Connection, changed: Iterable[Key]) -> None:
    by_cluster: dict[str, set[str]] = defaultdict(set)
    for process, cluster in changed:
        by_cluster[cluster].add(process)
    for cluster, names in by_cluster.items():
        _store_changed(connection, cluster, find_changed(connection, cluster) | names)


def _store_changed(connection: Connection, cluster: str, names: frozenset[str]) -> None:
    text = json.dumps({"version": _VERSION, "processes": sorted(names)})
    Cursors(connection).put(_changed_on(cluster), text)


def _load_walked(connection: Connection) -> dict[FrontierKind, dict[Key, Walked]]:
    document = json.loads(Cursors(connection).get(_WALKED) or f'{{"version": {_VERSION}, "walks": []}}')
    if document["version"] > _VERSION:
        raise StateError(
            reason=f"walks are noted in version {document['version']}, and this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote them.",
        )
    walks: dict[FrontierKind, dict[Key, Walked]] = {kind: {} for kind in FrontierKind}
    for kind, entity, cluster, start, end, frequency, timezone, sign in document["walks"]:
        walk = Walked(start=start, end=end, frequency=frequency, timezone=timezone, sign=sign)
        walks[FrontierKind(kind)][entity, cluster] = walk
    return walks


def _store_walked(
    connection: Connection,
    before: Mapping[FrontierKind, Mapping[Key, Walked]],
    now: Mapping[FrontierKind, Mapping[Key, Walked]],
) -> None:
    """What is declared now, and what was declared once, marked as absent."""
    rows = []
    for kind in FrontierKind:
        absent = {key: replace(walk, sign=_ABSENT) for key, walk in before[kind].items()}
        for key, walk in {**absent, **now[kind]}.items():
            rows.append([kind.value, *key, *astuple(walk)])
    Cursors(connection).put(_WALKED, json.dumps({"version": _VERSION, "walks": rows}, separators=(",", ":")))
