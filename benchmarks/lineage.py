"""(q) Questions of lineage on a record of a million attempts on PostgreSQL, each of which reads three instances and is
read by three, ten deep: walks up and down, and a window, against one recursive statement: over a table of edges, which
yields keys alone, and over the record, which yields keys, or the events and attempts that a walk tells of.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TypeVar

from sqlalchemy import BigInteger, Text, TextClause, column, text

from benchmarks.lived_state import LivedSize, fill_lived_state
from benchmarks.probes import say
from benchmarks.report import Figure, Part, Scale, faster, within
from benchmarks.searching_probe import open_state
from benchmarks.workload import CLUSTER, HOUR, START
from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.lineage.recorded import show_lineage
from feed_assets.lineage.records import NodeKind
from feed_assets.lineage.windows import find_window_lineage
from feed_assets.log.instances.tables import attempts
from feed_assets.log.records import Attempt, FeedEvent
from feed_assets.log.tables import feed_events
from feed_assets.plan.location import load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import load_settings
from feed_assets.sql.column_types import to_micros
from feed_assets.sql.database import Database
from feed_assets.sql.rows import RowMapper
from feed_assets.storage.pool import StorePool

T = TypeVar("T")
FAN = 3
PEER = "one recursive statement over a table of edges, which the record does not have"
BY_RECORD = "one recursive statement over the record"
WHOLE = "one recursive statement over the record, and its events and attempts built of the rows"
THREE_HOPS = 0.010
OFTEN = 3_000
"""For so many pairs a tick is so short that all levels are made within an hour, with runs of a minute."""
_FEED = """\
kind: feed
name: {name}
frequency: hours(1)
format: parquet
availability_flag: _SUCCESS
locations: {{data: "/{name}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"}}
clusters:
  primary:
    type: source
    validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}
    retention: {{limit: days(800), action: delete}}
"""
_PROCESS = """\
---
kind: process
name: {name}
frequency: hours(1)
timeout: hours(12)
clusters: {{primary: {{validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}}}}}
inputs:
{inputs}
outputs:
  result: {{feed: {result}, instance: "now(0,0)"}}
workflow: {{engine: python, path: "benchmarks.jobs:count_source"}}
"""
_INPUT = '  from-{number}: {{feed: {feed}, start: "now(0,0)", end: "now(0,0)"}}'
_READ = """CREATE FUNCTION peer_read(stored bytea) RETURNS TABLE (feed text, at bigint) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    rest bytea := substr(stored, 2);
    ends integer[];
    times integer;
    size integer;
BEGIN
    WHILE length(rest) > 0 LOOP
        FOR part IN 1..3 LOOP  -- name, feed and number of times, each ends with NUL
            ends[part] := position('\\x00'::bytea IN rest);
            IF part = 2 THEN feed := convert_from(substr(rest, 1, ends[part] - 1), 'UTF8'); END IF;
            IF part = 3 THEN times := convert_from(substr(rest, 1, ends[part] - 1), 'UTF8'); END IF;
            rest := substr(rest, ends[part] + 1);
        END LOOP;
        FOR number IN 0..times - 1 LOOP
            at := ('x' || encode(substr(rest, 8 * number + 1, 8), 'hex'))::bit(64)::bigint;
            RETURN NEXT;
        END LOOP;
        rest := substr(rest, 8 * times + 1);
        FOR number IN 1..times LOOP  -- digests, each behind its length
            size := get_byte(rest, 0);
            rest := substr(rest, 2 + CASE size WHEN 255 THEN 0 ELSE size END);
        END LOOP;
    END LOOP;
END $$"""
_EDGES = (
    _READ,
    """CREATE TABLE peer_edges AS
    SELECT read.feed AS source, read.at AS source_time, made.feed AS target, made.nominal_time AS target_time
    FROM fa_attempts AS attempt
    CROSS JOIN LATERAL peer_read(attempt.inputs) AS read
    JOIN fa_feed_events AS made ON made.seq = CAST(CAST(attempt.outputs AS jsonb) -> 1 ->> 0 AS bigint)""",
    "CREATE INDEX ON peer_edges (target, target_time)",
    "CREATE INDEX ON peer_edges (source, source_time)",
    """CREATE TABLE peer_accesses AS
    SELECT DISTINCT process AS program, read.feed AS data, started_at, ended_at
    FROM fa_attempts CROSS JOIN LATERAL peer_read(inputs) AS read
    UNION ALL
    SELECT process, made.feed, started_at, ended_at
    FROM fa_attempts JOIN fa_feed_events AS made ON made.seq = CAST(CAST(outputs AS jsonb) -> 1 ->> 0 AS bigint)""",
    """CREATE TABLE peer_inputs AS
    SELECT DISTINCT read.feed, process
    FROM fa_attempts CROSS JOIN LATERAL peer_read(inputs) AS read
    WHERE nominal_time = (SELECT min(nominal_time) FROM fa_attempts)""",
    "CREATE INDEX ON peer_inputs (feed)",
    "CREATE INDEX ON peer_accesses (started_at)",
    "CREATE INDEX ON peer_accesses (ended_at)",
    "ANALYZE",
)
_UP = text("""
WITH RECURSIVE walk(feed, at, depth) AS (
    SELECT CAST(:feed AS text), CAST(:at AS bigint), 0
    UNION SELECT source, source_time, depth + 1
    FROM walk JOIN peer_edges ON target = feed AND target_time = at WHERE depth < :levels
) SELECT DISTINCT feed, at FROM walk""")
_UP_BY_RECORD = text("""
WITH RECURSIVE walk(feed, at, depth) AS (
    SELECT CAST(:feed AS text), CAST(:at AS bigint), 0
    UNION SELECT read.feed, read.at, depth + 1
    FROM walk
    JOIN fa_feed_events AS made ON made.feed = walk.feed AND made.cluster = 'primary' AND made.nominal_time = at
    JOIN fa_attempts AS attempt ON attempt.run_id = '\\xff'::bytea || substr(made.origin, 2)
        AND attempt.outputs = '[1,[' || made.seq || ']]'
    CROSS JOIN LATERAL peer_read(attempt.inputs) AS read
    WHERE depth < :levels
) SELECT DISTINCT feed, at FROM walk""")
_DOWN_BY_RECORD = text("""
WITH RECURSIVE walk(feed, at, depth) AS (
    SELECT CAST(:feed AS text), CAST(:at AS bigint), 0
    UNION SELECT made.feed, made.nominal_time, depth + 1
    FROM walk
    JOIN peer_inputs USING (feed)
    JOIN fa_attempts AS attempt ON attempt.process = peer_inputs.process AND attempt.cluster = 'primary'
        AND attempt.nominal_time = at
    CROSS JOIN LATERAL jsonb_array_elements_text(CAST(attempt.outputs AS jsonb) -> 1) AS output
    JOIN fa_feed_events AS made ON made.seq = CAST(output.value AS bigint)
    WHERE depth < :levels
) SELECT DISTINCT feed, at FROM walk""")
_EVENTS, _ATTEMPTS = RowMapper(feed_events, FeedEvent), RowMapper(attempts, Attempt)
_RECORDS = [("event", each) for each in _EVENTS.columns] + [("attempt", each) for each in _ATTEMPTS.columns]
_WHOLE = f"""SELECT walk.feed, at, {", ".join(f"{of}.{each.name} AS {of}_{each.name}" for of, each in _RECORDS)}
FROM (SELECT DISTINCT feed, at FROM walk) AS walk
JOIN fa_feed_events AS event ON event.feed = walk.feed AND event.cluster = 'primary' AND event.nominal_time = at
LEFT JOIN fa_attempts AS attempt ON attempt.run_id = '\\xff'::bytea || substr(event.origin, 2)
    AND attempt.outputs = '[1,[' || event.seq || ']]'"""
_DOWN = text(
    _UP.text.replace("source, source_time, depth", "target, target_time, depth").replace(
        "target = feed AND target_time = at", "source = feed AND source_time = at"
    )
)
_WINDOW = text("""
WITH RECURSIVE accesses AS (
    SELECT data, program FROM peer_accesses WHERE started_at < :end AND (ended_at IS NULL OR ended_at >= :start)
), walk(data) AS (
    SELECT CAST(:feed AS text)
    UNION SELECT other.data FROM walk JOIN accesses AS one USING (data) JOIN accesses AS other USING (program)
) SELECT DISTINCT data, program FROM accesses JOIN walk USING (data)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    """Feeds in levels, each `width` wide. A process makes each but those of the first level, of three of the level
    before.
    """

    width: int
    depth: int

    def feed(self, level: int, number: int) -> str:
        return f"feed-{level:02d}-{number % self.width:03d}"

    def write(self, folder: Path, storage: Path) -> None:
        folder.mkdir(parents=True)
        storage.mkdir(parents=True)
        (folder / "cluster.yaml").write_text(
            f"kind: cluster\nname: {CLUSTER}\ncolo: here\nstorage: {storage.as_uri()}\nspark: {{master: 'local[2]'}}\n"
        )
        for level in range(self.depth + 1):
            for number in range(self.width):
                (folder / f"{self.feed(level, number)}.yaml").write_text(self._render(level, number))

    def _render(self, level: int, number: int) -> str:
        name = self.feed(level, number)
        feed = _FEED.format(name=name)
        if level == 0:
            return feed
        inputs = [_INPUT.format(number=each, feed=self.feed(level - 1, number + each)) for each in range(FAN)]
        process = _PROCESS.format(name=name.replace("feed", "process"), inputs="\n".join(inputs), result=name)
        return feed + process


def measure_lineage(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure walks from the last level up, from the first one down, and the window of an hour."""
    graph = _Graph(width=scale.choose(100, 40, 4), depth=scale.choose(10, 4, 3))
    size = LivedSize(
        pairs=OFTEN, periods=scale.choose(1_000, 50, 2), period=HOUR, is_evicting=False, run_time=HOUR / 60
    )
    repeats = scale.choose(31, 11, 1)
    graph.write(folder / "entities", folder / "data")
    with open_state(folder / "state", "postgresql") as database:
        what = f"{graph.width * graph.depth * size.periods:,} attempts"
        say(f"lineage: {what} on PostgreSQL")
        fill_lived_state(database, folder, size)
        with database.begin() as connection:
            for each in _EDGES:
                connection.execute(text(each))
        asked = _Asked(database=database, context=_open_context(database, folder, size), repeats=repeats)
        at = START + size.periods // 2 * HOUR
        for words, feed, statement, up in (
            ("up", graph.feed(graph.depth, 0), _UP, True),
            ("down", graph.feed(0, 0), _DOWN, False),
        ):
            for levels in (FAN, graph.depth):
                theirs = asked.rows(statement, feed=feed, at=to_micros(at), levels=levels)
                ours = asked.walk(feed, at, levels, up=up)
                assert ours.found == theirs.found, (ours, theirs)
                name = f"lineage of an instance, {words}, {levels} levels: {len(ours.found)} instances; {what}"
                yield faster(Part.LINEAGE, name, ours.seconds, PEER, theirs.seconds, at_least=1)
                keys = _UP_BY_RECORD if up else _DOWN_BY_RECORD
                for peer, ask in ((BY_RECORD, asked.rows), (WHOLE, asked.records)):
                    theirs = ask(keys, feed=feed, at=to_micros(at), levels=levels)
                    assert ours.found == theirs.found, (ours, theirs)
                    yield faster(Part.LINEAGE, name, ours.seconds, peer, theirs.seconds, at_least=1)
                if levels == FAN:
                    yield within(Part.LINEAGE, name, ours.seconds, at_most=THREE_HOPS)
        for hours in (1, 24):
            begun, ended = at, at + hours * HOUR
            feed = graph.feed(graph.depth // 2, 0)
            theirs = asked.rows(_WINDOW, feed=feed, start=to_micros(begun), end=to_micros(ended))
            ours = asked.window(feed, begun, ended)
            assert ours.found == theirs.found, (len(ours.found), len(theirs.found))
            name = f"lineage of a window of {hours} h: {len(ours.found):,} relations; {what}"
            yield faster(Part.LINEAGE, name, ours.seconds, PEER, theirs.seconds, at_least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What was found, to be compared, and the median seconds of finding it."""

    found: frozenset[tuple[object, ...]]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Asks the same of the product and of the peer, each several times."""

    database: Database
    context: OperationContext
    repeats: int

    def rows(self, statement: TextClause, **values: object) -> _Answer:
        with self.database.read() as connection:
            found, seconds = self._timed(lambda: connection.execute(statement, values).all())
        return _Answer(found=frozenset(map(tuple, found)), seconds=seconds)

    def records(self, keys: TextClause, **values: object) -> _Answer:
        """Ask for the records of what a statement finds."""
        statement = text(keys.text.replace("SELECT DISTINCT feed, at FROM walk", _WHOLE))
        typed = statement.columns(
            column("feed", Text),
            column("at", BigInteger),
            *(column(f"{of}_{each.name}", each.type) for of, each in _RECORDS),
        )
        begin = 2 + len(_EVENTS.columns)

        def ask() -> list[tuple[str, int, FeedEvent, Attempt | None]]:
            rows = connection.execute(typed, values)
            return [
                (row[0], row[1], _EVENTS.load(row[2:begin]), _ATTEMPTS.load(row[begin:]) if row[begin] else None)
                for row in rows
            ]

        with self.database.read() as connection:
            found, seconds = self._timed(ask)
        return _Answer(found=frozenset((feed, at) for feed, at, *_ in found), seconds=seconds)

    def walk(self, feed: str, at: datetime, levels: int, *, up: bool) -> _Answer:
        subject = resolve_subject(self.context, feed, at)
        graph, seconds = self._timed(lambda: show_lineage(self.context, subject, up=up, down=not up, levels=levels))
        events = (each for each in graph.nodes if each.kind is NodeKind.EVENT)
        found = frozenset((each.name, to_micros(each.nominal_time)) for each in events if each.nominal_time)
        return _Answer(found=found, seconds=seconds)

    def window(self, feed: str, start: datetime, end: datetime) -> _Answer:
        lineage, seconds = self._timed(
            lambda: find_window_lineage(self.context, feed, start=start, end=end, levels=100)
        )
        return _Answer(found=frozenset((e.data.name, e.program.name) for e in lineage.relations), seconds=seconds)

    def _timed(self, ask: Callable[[], T]) -> tuple[T, float]:
        taken, found = [], ask()
        for _ in range(self.repeats):
            begun = time.perf_counter()
            found = ask()
            taken.append(time.perf_counter() - begun)
        return found, median(taken)


def _open_context(database: Database, folder: Path, size: LivedSize) -> OperationContext:
    settings = load_settings({"entities": str(folder / "entities")}, environ={}, start=folder)
    plan = load_location(settings).plan
    clock = FrozenClock(size.end)
    return OperationContext(
        timeline=ReleaseTimeline(plan),
        database=database,
        stores=StorePool(),
        clock=clock,
        real_clock=clock,
        as_of=size.end,
    )
