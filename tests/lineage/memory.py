"""A record in memory, which a walk asks as it asks the one in a database."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from feed_assets.lineage.port import Giver, LineagePort, Reading
from feed_assets.lineage.records import EdgeKind
from feed_assets.log.records import (
    Attempt,
    FeedEvent,
    FeedEventKind,
    FeedKey,
    FrozenInput,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.removals.records import Sweep
from tests.instances.harness import START


@dataclass(slots=True)
class MemoryLineage(LineagePort):
    """What happened, minute by minute. `asked` counts the questions."""

    events: list[FeedEvent] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    sweeps: dict[str, Sweep] = field(default_factory=dict)
    givers: dict[int, list[Giver]] = field(default_factory=dict)
    asked: int = 0

    @property
    def now(self) -> datetime:
        return START + timedelta(minutes=len(self.events) + len(self.attempts))

    def happen(
        self,
        feed: str,
        digest: str | None,
        kind: FeedEventKind = FeedEventKind.ARRIVED,
        time: datetime = START,
        **payload: Any,
    ) -> FeedEvent:
        """Something happens to the data of a feed."""
        event = FeedEvent(
            feed=feed,
            cluster="primary",
            nominal_time=time,
            kind=kind,
            origin="arrival",
            recorded_at=self.now,
            manifest_digest=None if digest is None else f"sha256:{digest}",
            payload=payload,
            seq=len(self.events) + 1,
        )
        self.events.append(event)
        return event

    def run(
        self, process: str, reads: Mapping[str, str], writes: Mapping[str, str], time: datetime = START
    ) -> list[FeedEvent]:
        """A process reads feeds, with the digests of what it finds, and writes others."""
        inputs = tuple(
            FrozenInput(name=feed, feed=feed, nominal_times=(time,), digests=(f"sha256:{digest}",))
            for feed, digest in reads.items()
        )
        number = 1 + sum(each.key == (process, "primary", time) for each in self.attempts)
        begun, kind = self.now, FeedEventKind.PRODUCED
        made = [
            self.happen(feed, digest, kind, time, process=process, output=feed, attempt=number)
            for feed, digest in writes.items()
        ]
        attempt = Attempt(
            process=process,
            cluster="primary",
            nominal_time=time,
            attempt=number,
            run_id=f"run-{len(self.attempts) + 1}",
            status=ProcessInstanceStatus.SUCCEEDED,
            started_at=begun,
            ended_at=self.now,
            release=1,
            inputs=inputs,
            outputs=tuple(each.seq for each in made),
        )
        self.attempts.append(attempt)
        return made

    def find_events(self, keys: Collection[FeedKey]) -> Mapping[FeedKey, Sequence[FeedEvent]]:
        self.asked += 1
        found: dict[FeedKey, list[FeedEvent]] = defaultdict(list)
        for each in self.events:
            if each.key in keys:
                found[each.key].append(each)
        return found

    def find_attempts(self, keys: Collection[ProcessKey]) -> Mapping[ProcessKey, Sequence[Attempt]]:
        found: dict[ProcessKey, list[Attempt]] = defaultdict(list)
        for each in self.attempts:
            if each.key in keys:
                found[each.key].append(each)
        return found

    def find_writers(self, keys: Collection[FeedKey]) -> Mapping[FeedKey, Sequence[Attempt]]:  # noqa: ARG002 - it has none
        return {}

    def find_read(self, attempts: Collection[Attempt]) -> Sequence[Reading]:
        self.asked += 1
        return [
            Reading(attempt, frozen.name, FeedKey(frozen.feed, attempt.cluster, each.nominal_time), each.digest)
            for attempt in attempts
            for frozen in attempt.inputs
            for each in frozen.instances
        ]

    def find_readers(self, keys: Collection[FeedKey]) -> Sequence[Reading]:
        return [each for each in self.find_read(self.attempts) if each.instance in keys]

    def find_published(self, attempts: Collection[Attempt]) -> Mapping[FeedKey, Sequence[FeedEvent]]:
        wanted = {seq for each in attempts for seq in each.outputs}
        return self.find_events({each.key for each in self.events if each.seq in wanted})

    def find_sweeps(self, sweep_ids: Collection[str]) -> Mapping[str, Sweep]:
        return {each: self.sweeps[each] for each in sweep_ids if each in self.sweeps}

    def find_givers(self, events: Collection[FeedEvent]) -> Mapping[int, Sequence[Giver]]:
        return {each.seq: self.givers[each.seq] for each in events if each.seq in self.givers}

    def find_places(self, attempts: Collection[Attempt]) -> Sequence[tuple[Attempt, EdgeKind, str]]:  # noqa: ARG002 - none
        return []
