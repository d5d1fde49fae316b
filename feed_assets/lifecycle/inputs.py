"""The inputs of one attempt: frozen with their digests, and as addresses that Spark can open."""

import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from feed_assets.engines.port import InputData, InputInstance
from feed_assets.lifecycle.arrivals import Candidate, decide_seen, look_at, record_seen
from feed_assets.lifecycle.input_states import InputState
from feed_assets.lifecycle.places import Places, find_place
from feed_assets.lifecycle.stores import StorePool
from feed_assets.lifecycle.work_data import input_data, table_partition
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.state.database import Database
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.records import FeedKey, FrozenInput
from feed_assets.timing.text import TextContext

DIRECT = "direct"
COPIED = "copied"


def look_again(
    database: Database, stores: StorePool, plan: Plan, states: Sequence[InputState], as_of: datetime
) -> None:
    """Look at missing external instances now and record what has arrived, for runs that no sensor has prepared."""
    candidates = [
        Candidate(record=record, nominal_time=time)
        for state in states
        if (record := plan.feeds[state.edge.feed_key]).is_external
        for time in state.missing
        if time <= as_of
    ]
    looks = look_at(stores, candidates)
    seen = [decide_seen(candidate, look, as_of) for candidate, look in zip(candidates, looks, strict=True)]
    arrived = [each for each in seen if each.event is not None]
    if arrived:
        with database.begin() as connection:
            record_seen(connection, arrived)


def frozen_inputs(
    connection: Connection, states: Sequence[InputState], scanned: Mapping[FeedKey, str]
) -> tuple[FrozenInput, ...]:
    """What the attempt reads, with the digests of the record, so that a later change can be told; `scanned` has those
    of content that was found out just now.
    """
    instances = FeedInstances(connection)
    frozen = []
    for state in states:
        rows = instances.get_many([FeedKey(*state.edge.feed_key, time) for time in state.present])
        digests = {key.nominal_time: scanned.get(key, row.manifest_digest) for key, row in rows.items()}
        frozen.append(
            FrozenInput(
                name=state.edge.name,
                feed=state.edge.feed,
                nominal_times=state.present,
                digests=tuple(digests.get(time) for time in state.present),
            )
        )
    return tuple(frozen)


class InputReader:
    """Gives the instances of inputs addresses that Spark can open, copying what it cannot reach into scratch space.

    `places` says where else instances may lie. A context: the copies are gone when it ends.
    """

    def __init__(self, plan: Plan, stores: StorePool, context: TextContext, places: Places) -> None:
        self._plan = plan
        self._places = places
        self._stores = stores
        self._context = context
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._ways: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()

    def ways(self) -> Mapping[str, str]:
        """For each input, whether Spark reads it where it lies (`direct`) or a copy (`copied`)."""
        return {f"input {name}": way for name, way in self._ways.items()}

    def read(self, state: InputState) -> InputData:
        """The input with its present instances, newest first as in Falcon."""
        edge = state.edge
        record = self._plan.feeds[edge.feed_key]
        self._ways[edge.name] = DIRECT
        instances = (self._instance(edge.name, record, time) for time in reversed(state.present))
        return input_data(edge, record, instances, self._context)

    def _instance(self, name: str, record: FeedRecord, nominal_time: datetime) -> InputInstance:
        record = find_place(self._stores, record, self._places.get(record.key, ()), nominal_time)
        partition = table_partition(record, nominal_time)
        if partition is None:
            return InputInstance(nominal_time=nominal_time, url=self._url(name, record, nominal_time))
        url = self._stores.get(record.store).url(record.path(nominal_time))
        return InputInstance(nominal_time=nominal_time, url=url, partition=partition)

    def _url(self, name: str, record: FeedRecord, nominal_time: datetime) -> str:
        store = self._stores.get(record.store)
        path = record.path(nominal_time)
        direct = store.spark_url(path)
        if direct is not None:
            return direct
        self._ways[name] = COPIED
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="feed-assets-")
        copy = Path(self._scratch.name) / name / f"{nominal_time:%Y%m%dT%H%M}"
        store.fetch(path, copy, record.flag)
        return f"file://{copy}"
