import pickle
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import FieldSources, SourceMap
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.storage.pool import StorePool
from tests.instances.harness import START, at, feed, process

PRIMARY = Cluster(name="primary", colo="nyc", storage="file:///data/primary", properties={"area": "eu"})
FREQUENCIES = st.sampled_from(["minutes(45)", "hours(1)", "hours(6)", "days(1)", "days(2)", "months(1)"])
EXPRESSIONS = st.sampled_from(
    ["now(0,0)", "now(-5,0)", "now(3,20)", "today(0,0)", "yesterday(6,0)", "currentMonth(0,0,0)", "lastWeek('TUE',0,0)"]
)
ZONES = st.sampled_from(["UTC", "America/New_York"])
END = at("2013-12-20")


def plan_of(*entities: Cluster | Feed | Process, clusters: Iterable[Cluster] = (PRIMARY,)) -> Plan:
    return compile_plan(Bundle(entities=(*clusters, *entities)))


def located(location: str, cluster: Cluster = PRIMARY) -> FeedRecord:
    entity = feed("clicks", clusters=(cluster.name,)).model_copy(
        update={"locations": feed("x").locations.model_copy(update={"data": location})}
    )
    return plan_of(entity, clusters=(cluster,)).feeds["clicks", cluster.name]


@settings(max_examples=60, deadline=None)
@given(
    of_feed=FREQUENCIES,
    of_process=FREQUENCIES,
    ends=st.tuples(EXPRESSIONS, EXPRESSIONS),
    zones=st.tuples(ZONES, ZONES),
    offset=st.integers(0, 40),
)
def test_both_directions_of_an_input_edge_agree(
    of_feed: str, of_process: str, ends: tuple[str, str], zones: tuple[str, str], offset: int
) -> None:
    plan = plan_of(
        feed("clicks", of_feed, end=END, timezone=zones[0]),
        process(
            "count",
            of_process,
            inputs={"clicks": " ".join(ends)},
            start=START + timedelta(hours=offset),
            end=END,
            timezone=zones[1],
        ),
    )
    edge = plan.processes["count", "primary"].inputs[0]
    assert plan.feeds["clicks", "primary"].inputs_of == (edge,)
    readers = plan.processes["count", "primary"].sequence
    indices = range(readers.size or 0)
    read = {index: set(plan.input_indices(edge, readers.at(index))) for index in indices}
    for feed_index in range(0, plan.feeds["clicks", "primary"].sequence.size or 0, 7):
        by_window = {index for index in indices if feed_index in read[index]}
        found = set(plan.reader_indices(edge, range(feed_index, feed_index + 1)))
        assert by_window <= found
        assert not any(read[index] for index in found - by_window)  # a window that runs backwards is empty


@settings(max_examples=60, deadline=None)
@given(of_feed=FREQUENCIES, of_process=FREQUENCIES, instance=EXPRESSIONS, zones=st.tuples(ZONES, ZONES))
def test_the_writers_of_an_instance_are_those_whose_output_it_is(
    of_feed: str, of_process: str, instance: str, zones: tuple[str, str]
) -> None:
    plan = plan_of(
        feed("counts", of_feed, end=END, timezone=zones[0]),
        process("count", of_process, outputs={"counts": instance}, end=END, timezone=zones[1]),
    )
    record, counts = plan.processes["count", "primary"], plan.feeds["counts", "primary"].sequence
    edge = record.outputs[0]
    assert plan.feeds["counts", "primary"].outputs_of == (edge,)
    written = {index: plan.output_time(edge, record.sequence.at(index)) for index in range(record.sequence.size or 0)}
    for feed_index in range(0, counts.size or 0, 5):
        expected = {index for index, time in written.items() if time == counts.at(feed_index)}
        assert set(edge.window.consumers(feed_index, counts, record.sequence)) == expected


@settings(max_examples=80, deadline=None)
@given(frequency=FREQUENCIES, ends=st.tuples(EXPRESSIONS, EXPRESSIONS), zone=ZONES, offset=st.integers(0, 30))
def test_shifts_are_what_the_window_holds_at_every_instance(
    frequency: str, ends: tuple[str, str], zone: str, offset: int
) -> None:
    plan = plan_of(
        feed("clicks", frequency, start=at("2013-09-01"), timezone=zone),
        process(
            "count",
            frequency,
            inputs={"clicks": " ".join(ends)},
            start=at("2013-11-01") + timedelta(hours=offset),
            end=END,
            timezone=zone,
        ),
    )
    record, clicks = plan.processes["count", "primary"], plan.feeds["clicks", "primary"].sequence
    edge = record.inputs[0]
    if edge.shifts is None:
        return
    first, last = edge.shifts
    for index in range(record.sequence.size or 0):
        time = record.sequence.at(index)
        own = clicks.index(time)
        expected = range(own + first, own + last + 1)
        assert list(plan.input_indices(edge, time)) == list(expected)


def test_a_process_on_two_clusters_is_two_records_with_edges_of_their_own() -> None:
    clusters = [PRIMARY, Cluster(name="backup", storage="file:///data/backup")]
    both = ("primary", "backup")
    plan = plan_of(
        feed("clicks", clusters=both), process("count", inputs={"clicks": "now(0,0)"}, clusters=both), clusters=clusters
    )
    assert set(plan.processes) == {("count", "primary"), ("count", "backup")}
    assert [edge.cluster for edge in plan.feeds["clicks", "backup"].inputs_of] == ["backup"]


def test_a_feed_that_a_process_writes_is_not_external() -> None:
    plan = plan_of(
        feed("clicks"), feed("counts"), process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    )
    assert plan.feeds["clicks", "primary"].is_external
    assert not plan.feeds["counts", "primary"].is_external


def test_a_quarantine_is_written_with_the_output_whose_bad_rows_it_takes() -> None:
    def plan(**quality: object) -> Plan:
        held = feed("counts", quality={"rules": {"some": "n > 0"}, **quality})
        return plan_of(feed("clicks"), held, feed("rejects"), process("count", outputs={"counts": "now(-1,0)"}))

    found = plan(quarantine="rejects")
    record = found.processes["count", "primary"]
    made, taken = record.outputs
    assert (record.own_outputs, made.quarantine_of) == ((made,), None)
    assert (taken.name, taken.feed, taken.quarantine_of, taken.optional) == (
        "counts@quarantine",
        "rejects",
        "counts",
        True,
    )
    assert found.output_time(taken, at("02")) == found.output_time(made, at("02")) == at("01T23:00")
    assert not found.feeds["rejects", "primary"].is_external
    assert found.feeds["rejects", "primary"].outputs_of == (taken,)
    assert ("feed", "rejects") in record.members

    without, stricter = plan().processes["count", "primary"], plan(quarantine="rejects", threshold=99)
    assert without.fingerprint != record.fingerprint
    assert stricter.processes["count", "primary"].fingerprint == record.fingerprint


def test_an_output_outside_the_validity_of_its_feed_has_no_time() -> None:
    plan = plan_of(
        feed("counts", end=at("01T05:00")), process("count", outputs={"counts": "now(-2,0)"}, end=at("01T12:00"))
    )
    edge = plan.processes["count", "primary"].outputs[0]
    assert plan.output_time(edge, at("01T01:00")) is None
    assert plan.output_time(edge, at("01T06:00")) == at("01T04:00")
    assert plan.output_time(edge, at("01T07:00")) is None


def test_a_window_before_the_start_of_a_feed_holds_none_of_it() -> None:
    plan = plan_of(feed("clicks", start=at("02")), process("count", inputs={"clicks": "now(-3,0) now(0,0)"}))
    edge = plan.processes["count", "primary"].inputs[0]
    assert list(plan.input_indices(edge, at("01T12:00"))) == []
    assert list(plan.input_indices(edge, at("02T01:00"))) == [0, 1]


def test_an_absolute_path_stands_below_the_storage_of_its_cluster() -> None:
    record = located("/clicks/${cluster.area}/${cluster.colo}/${YEAR}-${MONTH}-${DAY}-${HOUR}")
    assert record.store.url == "file:///data/primary"
    assert record.path(START) == "clicks/eu/nyc/2013-11-01-00"


def test_a_url_below_the_storage_of_its_cluster_is_in_the_same_store() -> None:
    record = located("file:///data/primary/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}")
    assert (record.store.url, record.path(START)) == ("file:///data/primary", "clicks/2013/11/01/00")


def test_a_url_beside_the_storage_of_its_cluster_is_not() -> None:
    record = located("file:///data/primary-old/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}")
    assert (record.store.url, record.path(START)) == ("file:///data/primary-old/clicks", "2013/11/01/00")


def test_a_url_of_another_scheme_is_a_store_of_its_own_without_the_options_of_the_cluster() -> None:
    cluster = Cluster(name="primary", storage="s3://bucket/base", storage_options={"key": "k", "secret": "s"})
    elsewhere = located("memory://shelf/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}", cluster)
    assert (elsewhere.store.url, dict(elsewhere.store.options)) == ("memory://shelf", {})
    assert elsewhere.path(START) == "clicks/2013/11/01/00"
    assert StorePool().get(elsewhere.store).url(elsewhere.path(START)) == "memory://shelf/clicks/2013/11/01/00"

    other_bucket = located("s3://other/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}", cluster)
    assert (other_bucket.store.url, dict(other_bucket.store.options)) == ("s3://other", {"key": "k", "secret": "s"})


def test_local_files_elsewhere_are_staged_beside_themselves() -> None:
    cluster = Cluster(name="primary", storage="s3://bucket/base", storage_options={"key": "k"})
    record = located("file:///mnt/share/clicks/ds=${YEAR}-${MONTH}-${DAY}/${HOUR}", cluster)
    assert (record.store.url, record.path(START)) == ("file:///mnt/share/clicks", "ds=2013-11-01/00")
    assert StorePool().get(record.store).url(record.path(START)) == "file:///mnt/share/clicks/ds=2013-11-01/00"


def test_a_store_is_opened_once_with_its_options_as_plain_values() -> None:
    nested: Mapping[str, Any] = {"client_kwargs": {"region_name": "x", "tries": [1, 2]}, "anon": True}
    cluster = Cluster(name="primary", storage="s3://bucket/base", storage_options=nested)
    record, again = (
        located("/a/${YEAR}/${MONTH}/${DAY}/${HOUR}", cluster),
        located("/b/${YEAR}/${MONTH}/${DAY}/${HOUR}", cluster),
    )
    opened: list[tuple[str, dict[str, object]]] = []

    def opener(url: str, options: dict[str, object]) -> Any:
        opened.append((url, options))
        return object()

    pool = StorePool(opener)
    assert pool.get(record.store) is pool.get(again.store)
    assert opened == [("s3://bucket/base", nested)]


def test_secrets_of_a_store_are_not_in_its_text() -> None:
    cluster = Cluster(name="primary", storage="s3://bucket/base", storage_options={"secret": "hush"})
    assert "hush" not in repr(located("/a/${YEAR}/${MONTH}/${DAY}/${HOUR}", cluster))


def test_paths_are_written_in_the_zone_of_the_feed() -> None:
    entity = feed("daily", "days(1)", start=at("2013-11-01T04:00"), timezone="America/New_York")
    record = plan_of(entity).feeds["daily", "primary"]
    assert record.path(at("2013-11-04T05:00")) == "daily/2013-11-04/00-00"


def test_the_paths_of_a_feed_may_go_by_another_zone_than_its_days() -> None:
    entity = feed("visits", "days(1)", start=at("2017-02-28T16:00"), timezone="GMT+08:00", path_timezone="UTC")
    record = plan_of(entity).feeds["visits", "primary"]
    assert record.path(at("2017-02-28T16:00")) == "visits/2017-02-28/16-00"
    assert record.template.find_instance("/visits/2017-02-28/16-00", record.sequence) == at("2017-02-28T16:00")
    assert pickle.loads(pickle.dumps(record.template)) == record.template


def test_a_cluster_of_a_feed_has_its_own_sla_and_locations() -> None:
    entity = Feed(
        name="clicks",
        frequency="hours(1)",
        locations={"data": "/a/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
        sla={"low": "hours(1)", "high": "hours(2)"},
        clusters={
            "primary": {
                "validity": {"start": START},
                "locations": {"data": "/b/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
                "sla": {"low": "hours(3)", "high": "hours(4)"},
            },
        },
    )
    record = plan_of(entity).feeds["clicks", "primary"]
    assert record.path(START).startswith("b/")
    assert record.sla is not None
    assert record.sla.render() == "low hours(3), high hours(4)"


def test_facts_say_where_an_entity_was_declared_and_who_owns_it() -> None:
    sources = SourceMap({("feed", "clicks"): FieldSources(file="a.yaml", positions={(): (7, 1)})})
    entity = feed("clicks", tags={"owner": "ops"}, groups=["web"], description="What was clicked.")
    facts = compile_plan(Bundle(entities=(PRIMARY, entity)), sources).feeds["clicks", "primary"].facts
    assert (facts.file, facts.line, facts.owner, facts.groups) == ("a.yaml", 7, "ops", ("web",))


def test_a_plan_pickles_whole() -> None:
    plan = plan_of(
        feed("clicks"), feed("counts"), process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    )
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_digest_of_a_plan_follows_what_is_declared() -> None:
    assert plan_of(feed("clicks")).digest == plan_of(feed("clicks")).digest
    assert plan_of(feed("clicks")).digest != plan_of(feed("clicks", end=END)).digest


@pytest.mark.parametrize(("instance", "shift"), [("now(0,0)", 0), ("now(-2,0)", -2), ("today(0,0)", None)])
def test_an_output_edge_knows_its_constant_shift(instance: str, shift: int | None) -> None:
    plan = plan_of(feed("counts"), process("count", outputs={"counts": instance}))
    assert plan.processes["count", "primary"].outputs[0].shift == shift


def test_a_plan_of_a_colo_has_its_clusters_and_what_is_copied_to_them() -> None:
    clusters = [
        Cluster(name=name, colo=name[:4], storage=f"file:///data/{name}") for name in ("east", "west", "east-2")
    ]
    validity = {"validity": {"start": "2013-11-01T00:00Z"}}
    kept = {"retention": {"limit": "days(2)", "action": "delete"}}
    copied = Feed.model_validate(
        {
            "name": "clicks",
            "frequency": "hours(1)",
            "locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
            "clusters": {
                "east": {"type": "source", **validity, **kept},
                "west": {"type": "target", **validity, **kept},
                "east-2": {"type": "target", **validity},
            },
        }
    )
    bundle = Bundle(
        entities=(*clusters, copied, feed("views", clusters=("east",)), process("count", clusters=("east",)))
    )
    west = compile_plan(bundle, colo="west")
    assert [*west.feeds] == [("clicks", "east"), ("clicks", "west")]
    assert [*west.processes] == [("clicks@east", "west")]
    assert {name: each.is_elsewhere for name, each in west.clusters.items()} == {"east": True, "west": False}
    assert (west.feeds["clicks", "east"].retention, west.feeds["clicks", "east"].is_polled) == (None, True)
    assert west.feeds["clicks", "west"].retention is not None
    assert {key for key in west.facts if key[0] != "cluster"} == {
        ("feed", "clicks"),
        ("feed", "views"),
        ("process", "count"),
    }
    east = compile_plan(bundle, colo="east")
    assert {*east.processes} == {("count", "east"), ("clicks@east", "east-2")}
    assert not any(each.is_elsewhere for each in east.clusters.values())
    assert compile_plan(bundle, colo="").clusters == {}
