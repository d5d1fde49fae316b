"""One feed of three that is broken stops only itself: the tick goes on, the location's check names it, and it heals."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetCheckEvaluation, AssetMaterialization, DagsterInstance, SensorResult

from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain_instance
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.sensors import ticks
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land

POISONED = """
    ---
    kind: feed
    name: poisoned
    frequency: hours(1)
    locations: {data: "/poisoned/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
TABLE = """
    ---
    kind: feed
    name: poisoned
    frequency: hours(1)
    table: "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR}"
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
WITH_METASTORE = ENTITIES.replace(
    "storage: file://${DATA_ROOT}", "storage: file://${DATA_ROOT}\n    catalog: thrift://127.0.0.1:1"
)


def checks(result: SensorResult) -> list[AssetCheckEvaluation]:
    return [event for event in result.asset_events if isinstance(event, AssetCheckEvaluation)]


def arrived(result: SensorResult) -> list[tuple[str, str | None]]:
    return [
        (event.asset_key.path[-1], event.partition)
        for event in result.asset_events
        if isinstance(event, AssetMaterialization)
    ]


def place(data: Path) -> Path:
    folder = data / "poisoned" / f"{START:%Y-%m-%d}"
    folder.mkdir(parents=True)
    return folder / "03"


def dangle(data: Path) -> None:
    place(data).symlink_to(data / "nowhere")


def loop(data: Path) -> None:
    link = place(data)
    link.symlink_to(link)


def lead_out(data: Path) -> None:
    outside = data.parent / "outside"
    outside.mkdir()
    (outside / "part.csv").write_text("1")
    place(data).symlink_to(outside)


@pytest.mark.parametrize("poison", [dangle, loop, lead_out])
def test_a_link_stops_only_its_own_instance(
    tmp_path: Path, instance: DagsterInstance, poison: Callable[[Path], None]
) -> None:
    home = Home(folder=tmp_path)
    harness = LocationHarness(home, instance, ENTITIES + POISONED)
    poison(home.data)
    land(home.data, 3, 1)
    first = harness.tick()
    assert ("numbers", key(3)) in arrived(first)
    assert [request.partition_key for request in first.run_requests or ()] == [key(3)]
    assert_told(first, "feed poisoned on here")

    reasons = why_poisoned(harness)
    assert [reason.code for reason in reasons if reason.blocks] == [ReasonCode.OBSTRUCTED]

    land(home.data, 4, 1)
    harness.at(NOON + timedelta(hours=1))
    second = harness.tick()
    assert ("numbers", key(4)) in arrived(second)
    assert not checks(second)

    link = home.data / "poisoned" / f"{START:%Y-%m-%d}" / "03"
    link.unlink()
    link.mkdir()
    (link / "part.csv").write_text("1")
    harness.at(NOON + timedelta(hours=2))
    cured = harness.tick()
    assert ("poisoned", key(3)) in arrived(cured)
    (check,) = checks(cured)
    assert check.passed


def test_a_metastore_that_is_down_stops_only_the_feeds_of_its_tables(tmp_path: Path, instance: DagsterInstance) -> None:
    home = Home(folder=tmp_path)
    harness = LocationHarness(home, instance, WITH_METASTORE + TABLE)
    for hour in (3, 4):
        land(home.data, hour, 1)
        harness.at(NOON + timedelta(hours=hour))
        result = harness.tick()
        assert ("numbers", key(hour)) in arrived(result)
        if hour == 3:
            assert_told(result, "storage of thrift://127.0.0.1:1 fails")
        else:
            assert not checks(result)


class Failing:
    """Opens stores as usual, but every call about one feed's paths fails."""

    def __init__(self, usual: StorePool, error: Exception) -> None:
        self._usual = usual
        self._error = error
        self.is_broken = True

    def get(self, address: StoreAddress) -> InstanceStore:
        store = self._usual.get(address)
        usual_look = type(store).look

        def look(paths: list[str], flag: str | None) -> object:
            if self.is_broken and any("poisoned" in path for path in paths):
                raise self._error
            return usual_look(store, paths, flag)

        store.look = look  # type: ignore[method-assign,assignment]
        return store

    def url(self, address: StoreAddress, path: str) -> str:
        return self._usual.url(address, path)


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), OSError(5, "I/O"), ValueError("no credentials"), MemoryError()]
)
def test_whatever_a_storage_client_raises_concerns_its_own_feed_alone(
    tmp_path: Path, instance: DagsterInstance, error: Exception
) -> None:
    home = Home(folder=tmp_path)
    harness = LocationHarness(home, instance, ENTITIES + POISONED)
    failing = Failing(harness.runtime.stores, error)
    harness.runtime.stores = failing  # type: ignore[assignment]
    land(home.data, 3, 1)
    result = harness.tick()
    assert ("numbers", key(3)) in arrived(result)
    assert len(result.run_requests or ()) == 1
    assert_told(result, "feed poisoned on here", type(error).__name__)

    failing.is_broken = False
    harness.at(NOON + timedelta(hours=1))
    (check,) = checks(harness.tick())
    assert check.passed


@pytest.mark.parametrize("call", ["get_runs", "get_dynamic_partitions", "has_dynamic_partition"])
def test_a_call_to_dagster_that_fails_stops_only_its_step(
    tmp_path: Path, instance: DagsterInstance, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(folder=tmp_path)
    harness = LocationHarness(home, instance)
    land(home.data, 3, 1)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Dagster is away")

    with monkeypatch.context() as patch:
        patch.setattr(instance, call, fail)
        result = harness.tick()
    assert ("numbers", key(3)) in arrived(result)
    assert len(result.run_requests or ()) == 1


ODD = """
    ---
    kind: feed
    name: odd
    frequency: hours(5)
    locations: {data: "/odd/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-03T00:00Z}}}
"""
OF_DAGSTER = ("get_runs", "get_concurrency_config", "has_dynamic_partition", "get_dynamic_partitions")
OF_EVENT_LOG = ("get_pool_limits", "set_concurrency_slots")


class Saboteur:
    """Counts the calls that leave the process, and lets one of them fail: calls to storage about the poisoned feed, and
    all calls to Dagster.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.target: int | None = None

    def wrap(self, name: str, call: Callable[..., object], concerns: str = "") -> Callable[..., object]:
        def sabotaged(*args: object, **kwargs: object) -> object:
            if concerns in repr((args, kwargs)):
                self.names.append(name)
                if len(self.names) == self.target:
                    raise RuntimeError(f"{name} is sabotaged")
            return call(*args, **kwargs)

        return sabotaged


class SabotagedStores:
    """Stores whose every call about the poisoned feed goes through a saboteur."""

    def __init__(self, usual: StorePool, saboteur: Saboteur) -> None:
        self._usual, self._saboteur = usual, saboteur

    def get(self, address: StoreAddress) -> object:
        return SabotagedStore(self._usual.get(address), self._saboteur)

    def __getattr__(self, name: str) -> object:
        return getattr(self._usual, name)


class SabotagedStore:
    def __init__(self, usual: InstanceStore, saboteur: Saboteur) -> None:
        self._usual, self._saboteur = usual, saboteur

    def __getattr__(self, name: str) -> object:
        found = getattr(self._usual, name)
        return self._saboteur.wrap(f"store.{name}", found, "poisoned") if callable(found) else found


def test_whatever_call_fails_the_other_feeds_go_on(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    home, saboteur = Home(folder=tmp_path), Saboteur()
    entities = re.sub("spark: {master.*", 'spark: {remote: "sc://127.0.0.1:1"}', ENTITIES + POISONED + ODD)
    harness = LocationHarness(home, instance, entities, state=database_url)
    for name in ("check_spark_remote", "interrupt_run"):
        monkeypatch.setattr(ticks, name, saboteur.wrap(name, lambda *_: None))
    for names, owner in ((OF_DAGSTER, instance), (OF_EVENT_LOG, instance.event_log_storage)):
        for name in names:
            monkeypatch.setattr(owner, name, saboteur.wrap(name, getattr(owner, name)))
    failed: set[str] = set()
    for hour in range(22):
        harness.reopen()
        harness.runtime.stores = SabotagedStores(harness.runtime.stores, saboteur)  # type: ignore[assignment]
        harness.cursor = None  # the pools are set again
        land(home.data, hour, 1)
        (home.data / "poisoned" / f"{START:%Y-%m-%d}" / f"{hour:02d}").mkdir(parents=True)
        with harness.runtime.database(instance).begin() as connection:
            ProcessInstances(connection).add_waiting([died(hour)])
        saboteur.names, saboteur.target = [], hour + 1
        harness.at(START + timedelta(hours=hour, minutes=30))
        results = [harness.tick()]
        if len(saboteur.names) <= hour:
            break
        failed.add(saboteur.names[hour])
        saboteur.target = None
        harness.at(START + timedelta(hours=hour, minutes=40))
        results.append(harness.tick())
        assert ("numbers", key(hour)) in [each for result in results for each in arrived(result)], saboteur.names[hour]
        assert any(result.run_requests for result in results), saboteur.names[hour]
        with harness.runtime.database(instance).begin() as connection:
            ready = ProcessKey("summing", "here", START + timedelta(hours=hour))
            succeeded = {"status": ProcessInstanceStatus.SUCCEEDED, "attempt": 1}
            assert ProcessInstances(connection).transition(ready, {ProcessInstanceStatus.READY}, **succeeded)
    else:
        raise AssertionError(saboteur.names)
    assert failed >= {"store.look", "get_runs", "has_dynamic_partition", "get_pool_limits", "interrupt_run"}


def died(hour: int) -> ProcessInstance:
    """An instance of a removed process whose run, which Dagster does not know, has left work on a Connect server."""
    at = START + timedelta(hours=hour)
    running = ProcessInstanceStatus.RUNNING
    return ProcessInstance(
        process="removed",
        cluster="here",
        nominal_time=at,
        status=running,
        updated_at=at,
        attempt=1,
        run_id=f"run-{hour}",
    )


def assert_told(result: SensorResult, *parts: str) -> None:
    """The check fails and names what is broken."""
    (check,) = checks(result)
    assert not check.passed
    text = str(check.metadata["failures"].value)
    assert all(part in text for part in parts), text


def why_poisoned(harness: LocationHarness) -> Sequence[Reason]:
    """What `why` says of the poisoned instance."""
    database = harness.runtime.database(harness.instance)
    context = build_context(harness.runtime, harness.runtime.timeline(harness.location), database, NOON)
    with database.read() as connection:
        return explain_instance(context, connection, Kind.FEED, "poisoned", "here", START + timedelta(hours=3)).reasons
