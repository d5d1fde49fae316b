from pathlib import Path

import pytest

from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operations.entities import changes as entity_changes
from feed_assets.operations.entities.reading import Form, show_definition
from feed_assets.operations.entities.schedules import schedule
from feed_assets.operations.entities.verb_results import Outcome, VerbResult
from feed_assets.operations.errors import (
    EntityExistsError,
    EntityReferencedError,
    NotSchedulableError,
    VerbRefusedError,
)
from feed_assets.operations.safe_mode import set_safe_mode
from feed_assets.state.audit import Audit
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.records import FrontierKind, ProcessInstanceStatus
from feed_assets.state.schedules import Schedules
from tests.lifecycle.world import at
from tests.operations.desk import ALL, CLICKS, CLUSTER, COUNTING, COUNTS, Desk, changed, file_of, with_validity


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk.at(tmp_path)


@pytest.fixture
def submitted(desk: Desk) -> Desk:
    entity_changes.submit(desk.registry(), [file_of(*ALL)])
    return desk


@pytest.fixture
def running(desk: Desk) -> Desk:
    """Everything is scheduled, instances of two days and a half wait, the first one has succeeded."""
    entity_changes.submit(desk.registry(), [file_of(*ALL)], and_schedule=True)
    desk.tick()
    desk.put(ProcessInstanceStatus.SUCCEEDED, at("01"))
    return desk


def outcomes(result: VerbResult) -> dict[str, Outcome]:
    return {each.name: each.outcome for each in result.outcomes}


def states(desk: Desk, name: str, kind: Kind = Kind.PROCESS) -> dict[str, ScheduleState]:
    with desk.database.read() as connection:
        return {cluster: row.state for cluster, row in Schedules(connection).of(kind, name).items()}


def test_row_87_submitting_twice_changes_nothing_and_other_content_is_refused(submitted: Desk) -> None:
    again = entity_changes.submit(submitted.registry(), [file_of(*ALL)])
    assert set(outcomes(again).values()) == {Outcome.UNCHANGED}
    assert {each.version for each in again.outcomes} == {1}
    assert not again.reload_needed
    with pytest.raises(
        EntityExistsError, match=r"process 'counting': it is declared already, and differently, in .*ya"
    ):
        entity_changes.submit(submitted.registry(), [file_of(changed(COUNTING, parallel=2))])


def test_what_was_deleted_can_be_submitted_again(submitted: Desk) -> None:
    entity_changes.delete(submitted.registry(), Kind.PROCESS, ["counting"])
    again = entity_changes.submit(submitted.registry(), [file_of(changed(COUNTING, parallel=2))])
    assert [(each.outcome, each.version) for each in again.outcomes] == [(Outcome.SUBMITTED, 3)]


def test_entities_are_submitted_all_or_none(desk: Desk) -> None:
    with pytest.raises(DefinitionsError, match="nowhere"):
        entity_changes.submit(desk.registry(), [file_of(CLUSTER, CLICKS, changed(COUNTS, clusters={"nowhere": {}}))])
    assert desk.declared(Kind.CLUSTER) == ()


def test_the_same_entity_twice_is_refused(desk: Desk) -> None:
    with pytest.raises(DefinitionsError, match="cluster 'primary' is declared a second time"):
        entity_changes.submit(desk.registry(), [file_of(CLUSTER), file_of(CLUSTER, name="other.yaml")])


@pytest.mark.parametrize("content", ["", "kind: feed\n", "a: [", "kind: feed\nname: x\nfrequency: often\n"])
def test_a_file_that_declares_nothing_is_refused(desk: Desk, content: str) -> None:
    with pytest.raises(DefinitionsError, match=r"brought\.yaml"):
        entity_changes.submit(desk.registry(), [EntityFile(name="brought.yaml", content=content.encode())])


def test_row_89_one_call_leads_to_running(desk: Desk) -> None:
    result = entity_changes.submit(desk.registry(), [file_of(*ALL)], and_schedule=True)
    assert set(outcomes(result).values()) == {Outcome.SUBMITTED}
    assert states(desk, "counting") == {"primary": ScheduleState.SCHEDULED}
    desk.tick()
    assert len(desk.instances()) == 61
    again = entity_changes.submit(desk.registry(), [file_of(*ALL)], and_schedule=True)
    assert set(outcomes(again).values()) == {Outcome.UNCHANGED}


def test_what_cannot_be_scheduled_stays_submitted(desk: Desk) -> None:
    pig = changed(COUNTING, workflow={"engine": "pig", "path": "counting.sql"})
    with pytest.raises(NotSchedulableError, match=r"no engine 'pig' here.*--replace-workflow counting=sql:PATH"):
        entity_changes.submit(desk.registry(), [file_of(CLUSTER, CLICKS, COUNTS, pig)], and_schedule=True)
    assert desk.declared(Kind.PROCESS) == ("counting",)
    assert states(desk, "counting") == {"primary": ScheduleState.SUBMITTED}
    with pytest.raises(NotSchedulableError):
        schedule(desk.registry(), Kind.PROCESS, ["counting"])


def test_row_90_a_bad_expression_is_found_without_storing_anything(submitted: Desk) -> None:
    bad = changed(COUNTING, inputs={"clicks": {"feed": "clicks", "start": "nwo(0,0)", "end": "now(0,0)"}})
    with pytest.raises(DefinitionsError, match="nwo is not a time function"):
        entity_changes.validate(submitted.registry(), [file_of(bad)])
    good = entity_changes.validate(submitted.registry(), [file_of(changed(COUNTING, name="another", outputs={}))])
    assert outcomes(good) == {"another": Outcome.VALID}
    assert submitted.declared(Kind.PROCESS) == ("counting",)


def test_row_90_live_checks_can_be_skipped(desk: Desk) -> None:
    unreachable = changed(CLUSTER, catalog="thrift://127.0.0.1:1")
    with pytest.raises(DefinitionsError, match="catalog"):
        entity_changes.validate(desk.registry(), [file_of(unreachable)])
    entity_changes.validate(desk.registry(skip_checks=True), [file_of(unreachable)])


def test_a_dry_run_says_what_would_be_done_and_does_nothing(running: Desk) -> None:
    dry = running.registry(dry_run=True)
    extra = changed(CLICKS, name="extra", locations={"data": "/extra/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
    assert outcomes(entity_changes.submit(dry, [file_of(extra)], and_schedule=True)) == {"extra": Outcome.SUBMITTED}
    assert outcomes(entity_changes.update(dry, [file_of(changed(COUNTING, parallel=3))])) == {
        "counting": Outcome.UPDATED
    }
    deleted = entity_changes.delete(dry, Kind.PROCESS, ["counting"])
    assert (outcomes(deleted), len(deleted.stopped)) == ({"counting": Outcome.DELETED}, 60)
    assert running.declared(Kind.FEED) == ("clicks", "counts")
    assert ProcessInstanceStatus.KILLED not in running.statuses()
    assert show_definition(running.registry(), Kind.PROCESS, "counting", form=Form.YAML).count("parallel") == 0
    assert states(running, "extra", Kind.FEED) == {}


def test_row_92_deleting_kills_what_has_not_ended_and_a_second_time_does_nothing(running: Desk) -> None:
    running.put(ProcessInstanceStatus.RUNNING, at("01T01"), run_id="run-7")
    result = entity_changes.delete(running.registry(), Kind.PROCESS, ["counting"])
    assert outcomes(result) == {"counting": Outcome.DELETED}
    assert [row.run_id for row in result.stopped if row.run_id] == ["run-7"]
    assert running.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}
    assert running.instances()[at("01T01")].reason == "its process was deleted"
    assert states(running, "counting") == {}
    with running.database.read() as connection:
        assert Frontiers(connection).get(FrontierKind.PROCESS, "counting", "primary") is None
    again = entity_changes.delete(running.registry(), Kind.PROCESS, ["counting"])
    assert outcomes(again) == {"counting": Outcome.MISSING}
    assert again.outcomes[0].notes == ("it is not declared: nothing to do",)
    assert not again.reload_needed


def test_row_92_a_deletion_is_refused_while_others_refer_to_the_entity(submitted: Desk) -> None:
    for kind, name, referrers in [
        (Kind.CLUSTER, "primary", ("feed 'clicks'", "feed 'counts'", "process 'counting'")),
        (Kind.FEED, "clicks", ("process 'counting'",)),
    ]:
        with pytest.raises(EntityReferencedError) as refused:
            entity_changes.delete(submitted.registry(), kind, [name])
        assert refused.value.referrers == referrers
    both = entity_changes.delete(submitted.registry(), Kind.PROCESS, ["counting"])
    assert both.is_change
    assert entity_changes.delete(submitted.registry(), Kind.FEED, ["clicks", "counts"]).is_change


def test_what_a_broken_off_deletion_has_left_is_ended_by_the_next(running: Desk) -> None:
    for file in (running.folder / "entities" / "process").iterdir():
        file.unlink()
    result = entity_changes.delete(running.registry(), Kind.PROCESS, ["counting"])
    assert outcomes(result) == {"counting": Outcome.MISSING}
    assert len(result.stopped) == 60
    assert running.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}


def test_a_process_that_comes_back_goes_on_with_what_is_new(running: Desk) -> None:
    entity_changes.delete(running.registry(), Kind.PROCESS, ["counting"])
    running.later(hours=2)
    entity_changes.submit(running.registry(), [file_of(COUNTING)], and_schedule=True)
    running.tick()
    waiting = [time for time, row in running.instances().items() if row.status is ProcessInstanceStatus.WAITING]
    assert waiting == [at("03T13"), at("03T14")]


def test_an_update_of_what_is_not_declared_is_refused(submitted: Desk) -> None:
    with pytest.raises(EntityNotFoundError, match=r"no process 'countin'.*Did you mean 'counting'"):
        entity_changes.update(submitted.registry(), [file_of(changed(COUNTING, name="countin"))])


def test_an_update_without_a_change_does_nothing(running: Desk) -> None:
    result = entity_changes.update(running.registry(), [file_of(*ALL[1:])])
    assert set(outcomes(result).values()) == {Outcome.UNCHANGED}
    assert not result.releases


def test_an_update_tells_the_fields_the_version_and_the_effective_time(running: Desk) -> None:
    result = entity_changes.update(running.registry(), [file_of(changed(COUNTING, frequency="hours(2)"))])
    (outcome,) = result.outcomes
    assert [change.field for change in outcome.changes] == ["frequency"]
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 2)
    (release,) = result.to_json()["releases"]  # type: ignore[misc]
    assert release["effective_from"] == "2013-11-03T14:00Z"  # type: ignore[index]
    assert result.reload_needed


def test_an_update_that_breaks_a_process_is_refused_naming_it(submitted: Desk) -> None:
    shorter = with_validity(CLICKS, start="2013-11-05T00:00Z")
    with pytest.raises(
        DefinitionsError, match=r"process 'counting': it is not compatible with changes to feed 'clicks'"
    ):
        entity_changes.update(submitted.registry(), [file_of(shorter)])


def test_row_101_an_end_that_is_past_is_refused_where_the_entity_is_scheduled(running: Desk) -> None:
    past = with_validity(COUNTING, end="2013-11-03T00:00Z")
    with pytest.raises(VerbRefusedError, match=r"ends at 2013-11-03T00:00Z, which is past"):
        entity_changes.update(running.registry(), [file_of(past)])
    running.later(days=40)
    soft = entity_changes.update(running.registry(), [file_of(changed(COUNTING, tags={"owner": "bob"}))])
    assert outcomes(soft) == {"counting": Outcome.UPDATED}


def test_a_past_end_is_taken_where_nothing_is_scheduled(submitted: Desk) -> None:
    past = with_validity(COUNTING, end="2013-11-03T00:00Z")
    assert entity_changes.update(submitted.registry(), [file_of(past)]).is_change


def test_row_102_work_on_a_removed_cluster_is_stopped_and_an_added_one_waits_to_be_scheduled(running: Desk) -> None:
    second = changed(CLUSTER, name="second", storage="file://${PROJECT_ROOT}/data2")
    feeds = [changed(feed, clusters={"primary": _entry(feed), "second": _entry(feed)}) for feed in (CLICKS, COUNTS)]
    entity_changes.submit(running.registry(), [file_of(second)])
    entity_changes.update(running.registry(), [file_of(*feeds)])
    moved = changed(COUNTING, clusters={"second": _entry(COUNTING)})
    result = entity_changes.update(running.registry(), [file_of(moved)])
    assert result.outcomes[0].notes == ("on second it waits to be scheduled", "its work on primary is ended")
    assert running.instances()[at("02")].reason == "its process was taken off the cluster"
    assert running.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}
    assert states(running, "counting") == {"second": ScheduleState.SUBMITTED}
    assert states(running, "clicks", Kind.FEED)["second"] is ScheduleState.SUBMITTED
    schedule(running.registry(), Kind.PROCESS, ["counting"])
    assert states(running, "counting") == {"second": ScheduleState.SCHEDULED}


def _entry(document: dict[str, object]) -> object:
    clusters = document["clusters"]
    assert isinstance(clusters, dict)
    return clusters["primary"]


SOURCE = {
    "kind": "datasource",
    "name": "shop",
    "type": "hsql",
    "interfaces": {"readonly": {"endpoint": "jdbc:derby:memory:shop;create=true"}},
    "driver": {"class": "org.apache.derby.iapi.jdbc.AutoloadedDriver", "jars": ["/lib/derby.jar"]},
    "credential": {"user": "sa", "password": "x"},
}


def _with_import(feed: dict[str, object]) -> dict[str, object]:
    entry = _entry(feed)
    assert isinstance(entry, dict)
    source = {"source": {"name": "shop", "table": "clicks", "extract": {"type": "full", "merge_policy": "snapshot"}}}
    return changed(feed, clusters={"primary": {**entry, "type": "source", "import": source}})


def test_row_106_an_endpoint_that_changes_is_told_to_the_feeds_that_use_the_datasource(desk: Desk) -> None:
    registry = desk.registry(skip_checks=True)
    entity_changes.submit(registry, [file_of(CLUSTER, SOURCE, _with_import(CLICKS))])
    softly = entity_changes.update(registry, [file_of(changed(SOURCE, description="the shop"))])
    assert softly.outcomes[0].notes == ()
    other = changed(SOURCE, interfaces={"readonly": {"endpoint": "jdbc:derby:memory:other;create=true"}})
    result = entity_changes.update(registry, [file_of(other)])
    assert result.outcomes[0].notes == ("its version is 1", "feed 'clicks' imports or exports by it from now on")
    stored = registry.store.load(desk.now).bundle.bundle.get_datasource("shop")
    assert isinstance(stored, Datasource)
    assert stored.version == 1
    other_jar = changed(other, driver={"class": "org.apache.derby.iapi.jdbc.AutoloadedDriver", "jars": ["/lib/d2.jar"]})
    entity_changes.update(registry, [file_of(other_jar)])
    assert registry.store.load(desk.now).bundle.bundle.get_datasource("shop").version == 1


def test_row_106_the_type_of_a_datasource_cannot_change(desk: Desk) -> None:
    registry = desk.registry(skip_checks=True)
    entity_changes.submit(registry, [file_of(SOURCE)])
    with pytest.raises(VerbRefusedError, match="its type cannot change from 'hsql' to 'mysql'"):
        entity_changes.update(registry, [file_of(changed(SOURCE, type="mysql"))])


def test_every_change_is_in_the_audit(running: Desk) -> None:
    entity_changes.update(running.registry(author="bob"), [file_of(changed(COUNTING, parallel=2))])
    entity_changes.delete(running.registry(author="eve"), Kind.PROCESS, ["counting"])
    with running.database.read() as connection:
        newest = Audit(connection).newest(2)
    found = [(entry.author, entry.action, entry.target, entry.details["version"]) for entry in newest]
    assert found == [
        ("eve", "delete", "process 'counting'", 3),
        ("bob", "update", "process 'counting'", 2),
    ]


def test_nothing_is_declared_or_removed_in_safe_mode(submitted: Desk) -> None:
    set_safe_mode(submitted.database, is_on=True, author="root", now=submitted.now)
    with pytest.raises(VerbRefusedError, match="submit: it is not allowed during safe mode"):
        entity_changes.submit(submitted.registry(), [file_of(*ALL)])
    with pytest.raises(VerbRefusedError, match="delete: it is not allowed during safe mode"):
        entity_changes.delete(submitted.registry(), Kind.PROCESS, ["counting"])
    assert entity_changes.validate(submitted.registry(), [file_of(COUNTING)]).outcomes
