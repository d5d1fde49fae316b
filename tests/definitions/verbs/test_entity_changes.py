from pathlib import Path

import pytest

from feed_assets.context.errors import (
    EntityExistsError,
    EntityReferencedError,
    NotSchedulableError,
    SafeModeError,
    VerbRefusedError,
)
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.definitions.lists.query_fields import Form
from feed_assets.definitions.lists.reading import show_definition
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.schedules import change_work
from feed_assets.definitions.verbs.verb_results import EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.json_form import render_document
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.records import ProcessInstanceStatus, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from tests.definitions.verbs.harness import (
    ALL,
    CLICKS,
    CLUSTER,
    COUNTING,
    COUNTS,
    EntityHarness,
    changed,
    file_of,
    with_validity,
)
from tests.instances.harness import at


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    return EntityHarness.at(tmp_path)


@pytest.fixture
def submitted(harness: EntityHarness) -> EntityHarness:
    entity_changes.submit(harness.context(), [file_of(*ALL)])
    return harness


@pytest.fixture
def running(harness: EntityHarness) -> EntityHarness:
    """Everything is scheduled, instances of two days and a half wait, the first one has succeeded."""
    entity_changes.submit(harness.context(), [file_of(*ALL)], and_schedule=True)
    harness.tick()
    harness.put(ProcessInstanceStatus.SUCCEEDED, at("01"))
    return harness


def outcomes(result: VerbResult) -> dict[str, VerbOutcome]:
    return {each.name: each.outcome for each in result.outcomes}


def states(harness: EntityHarness, name: str, kind: Kind = Kind.PROCESS) -> dict[str, ScheduleState]:
    with harness.database.read() as connection:
        return {cluster: row.state for cluster, row in Schedules(connection).of(kind, name).items()}


def test_row_87_submitting_twice_changes_nothing_and_other_content_is_refused(submitted: EntityHarness) -> None:
    again = entity_changes.submit(submitted.context(), [file_of(*ALL)])
    assert set(outcomes(again).values()) == {VerbOutcome.UNCHANGED}
    assert {each.version for each in again.outcomes} == {1}
    assert not again.reload_needed
    with pytest.raises(
        EntityExistsError, match=r"process 'counting': it is already declared, with a different content, in .*ya"
    ):
        entity_changes.submit(submitted.context(), [file_of(changed(COUNTING, parallel=2))])


def test_what_was_deleted_can_be_submitted_again(submitted: EntityHarness) -> None:
    entity_changes.delete(submitted.context(), Kind.PROCESS, ["counting"])
    again = entity_changes.submit(submitted.context(), [file_of(changed(COUNTING, parallel=2))])
    assert [(each.outcome, each.version) for each in again.outcomes] == [(VerbOutcome.SUBMITTED, 3)]


def test_entities_are_submitted_all_or_none(harness: EntityHarness) -> None:
    with pytest.raises(DefinitionsError, match="nowhere"):
        entity_changes.submit(harness.context(), [file_of(CLUSTER, CLICKS, changed(COUNTS, clusters={"nowhere": {}}))])
    assert harness.declared(Kind.CLUSTER) == ()


def test_the_same_entity_twice_is_refused(harness: EntityHarness) -> None:
    with pytest.raises(DefinitionsError, match="cluster 'primary' is declared twice"):
        entity_changes.submit(harness.context(), [file_of(CLUSTER), file_of(CLUSTER, name="other.yaml")])


@pytest.mark.parametrize("content", ["", "kind: feed\n", "a: [", "kind: feed\nname: x\nfrequency: often\n"])
def test_a_file_that_declares_nothing_is_refused(harness: EntityHarness, content: str) -> None:
    with pytest.raises(DefinitionsError, match=r"brought\.yaml"):
        entity_changes.submit(harness.context(), [EntityFile(name="brought.yaml", content=content.encode())])


def test_row_89_one_call_leads_to_running(harness: EntityHarness) -> None:
    result = entity_changes.submit(harness.context(), [file_of(*ALL)], and_schedule=True)
    assert set(outcomes(result).values()) == {VerbOutcome.SUBMITTED}
    assert states(harness, "counting") == {"primary": ScheduleState.SCHEDULED}
    harness.tick()
    assert len(harness.instances()) == 61
    again = entity_changes.submit(harness.context(), [file_of(*ALL)], and_schedule=True)
    assert set(outcomes(again).values()) == {VerbOutcome.UNCHANGED}


def test_what_cannot_be_scheduled_stays_submitted(harness: EntityHarness) -> None:
    pig = changed(COUNTING, workflow={"engine": "pig", "path": "counting.sql"})
    with pytest.raises(
        NotSchedulableError, match=r"the engine 'pig' does not run here.*--replace-workflow counting=sql:PATH"
    ):
        entity_changes.submit(harness.context(), [file_of(CLUSTER, CLICKS, COUNTS, pig)], and_schedule=True)
    assert harness.declared(Kind.PROCESS) == ("counting",)
    assert states(harness, "counting") == {"primary": ScheduleState.SUBMITTED}
    with pytest.raises(NotSchedulableError):
        change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])


def test_row_90_a_bad_expression_is_found_without_storing_anything(submitted: EntityHarness) -> None:
    bad = changed(COUNTING, inputs={"clicks": {"feed": "clicks", "start": "nwo(0,0)", "end": "now(0,0)"}})
    with pytest.raises(DefinitionsError, match="nwo is not a time function"):
        entity_changes.validate(submitted.context(), [file_of(bad)])
    good = entity_changes.validate(submitted.context(), [file_of(changed(COUNTING, name="another", outputs={}))])
    assert outcomes(good) == {"another": VerbOutcome.VALID}
    assert submitted.declared(Kind.PROCESS) == ("counting",)


def test_row_90_live_checks_can_be_skipped(harness: EntityHarness) -> None:
    unreachable = changed(CLUSTER, catalog="thrift://127.0.0.1:1")
    with pytest.raises(DefinitionsError, match="catalog"):
        entity_changes.validate(harness.context(), [file_of(unreachable)])
    entity_changes.validate(harness.context(skip_checks=True), [file_of(unreachable)])


def test_a_dry_run_says_what_would_be_done_and_does_nothing(running: EntityHarness) -> None:
    dry = running.context(dry_run=True)
    extra = changed(CLICKS, name="extra", locations={"data": "/extra/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
    assert outcomes(entity_changes.submit(dry, [file_of(extra)], and_schedule=True)) == {"extra": VerbOutcome.SUBMITTED}
    assert outcomes(entity_changes.update(dry, [file_of(changed(COUNTING, parallel=3))])) == {
        "counting": VerbOutcome.UPDATED
    }
    deleted = entity_changes.delete(dry, Kind.PROCESS, ["counting"])
    assert (outcomes(deleted), len(deleted.stopped)) == ({"counting": VerbOutcome.DELETED}, 60)
    assert running.declared(Kind.FEED) == ("clicks", "counts")
    assert ProcessInstanceStatus.KILLED not in running.statuses()
    assert show_definition(running.context(), Kind.PROCESS, "counting", form=Form.YAML).count("parallel") == 0
    assert states(running, "extra", Kind.FEED) == {}


def test_row_92_deleting_kills_what_has_not_ended_and_a_second_time_does_nothing(running: EntityHarness) -> None:
    running.put(ProcessInstanceStatus.RUNNING, at("01T01"), run_id="run-7")
    result = entity_changes.delete(running.context(), Kind.PROCESS, ["counting"])
    assert outcomes(result) == {"counting": VerbOutcome.DELETED}
    assert [row.run_id for row in result.stopped if row.run_id] == ["run-7"]
    assert running.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}
    assert running.instances()[at("01T01")].reason == "its process was deleted"
    assert states(running, "counting") == {}
    with running.database.read() as connection:
        assert Watermarks(connection).get(WatermarkKind.PROCESS, "counting", "primary") is None
    again = entity_changes.delete(running.context(), Kind.PROCESS, ["counting"])
    assert outcomes(again) == {"counting": VerbOutcome.MISSING}
    assert again.outcomes[0].notes == ("it is not declared: nothing to do",)
    assert not again.reload_needed


def test_row_92_a_deletion_is_refused_while_others_refer_to_the_entity(submitted: EntityHarness) -> None:
    for kind, name, referrers in [
        (Kind.CLUSTER, "primary", ("feed 'clicks'", "feed 'counts'", "process 'counting'")),
        (Kind.FEED, "clicks", ("process 'counting'",)),
    ]:
        with pytest.raises(EntityReferencedError) as refused:
            entity_changes.delete(submitted.context(), kind, [name])
        assert refused.value.referrers == referrers
    both = entity_changes.delete(submitted.context(), Kind.PROCESS, ["counting"])
    assert both.is_change
    assert entity_changes.delete(submitted.context(), Kind.FEED, ["clicks", "counts"]).is_change


def test_what_a_broken_off_deletion_has_left_is_ended_by_the_next(running: EntityHarness) -> None:
    for file in (running.folder / "entities" / "process").iterdir():
        file.unlink()
    result = entity_changes.delete(running.context(), Kind.PROCESS, ["counting"])
    assert outcomes(result) == {"counting": VerbOutcome.MISSING}
    assert len(result.stopped) == 60
    assert running.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}


def test_a_process_that_comes_back_goes_on_with_what_is_new(running: EntityHarness) -> None:
    entity_changes.delete(running.context(), Kind.PROCESS, ["counting"])
    running.later(hours=2)
    entity_changes.submit(running.context(), [file_of(COUNTING)], and_schedule=True)
    running.tick()
    waiting = [time for time, row in running.instances().items() if row.status is ProcessInstanceStatus.WAITING]
    assert waiting == [at("03T13"), at("03T14")]


def test_an_update_of_what_is_not_declared_is_refused(submitted: EntityHarness) -> None:
    with pytest.raises(EntityNotFoundError, match=r"no process 'countin'.*Did you mean 'counting'"):
        entity_changes.update(submitted.context(), [file_of(changed(COUNTING, name="countin"))])


@pytest.mark.parametrize("is_on", [False, True])
def test_an_update_without_a_change_does_nothing_in_any_mode(running: EntityHarness, is_on: bool) -> None:
    entity_changes.submit(running.context(skip_checks=True), [file_of(SOURCE)])
    if is_on:
        set_safe_mode(running.database, is_on=True, author="root", now=running.now)
    result = entity_changes.update(running.context(skip_checks=True), [file_of(*ALL, SOURCE)])
    assert set(outcomes(result).values()) == {VerbOutcome.UNCHANGED}
    assert not result.releases
    refused = changed(CLICKS, description="x") if is_on else changed(CLUSTER, colo="nyc")
    with pytest.raises(SafeModeError):
        entity_changes.update(running.context(), [file_of(refused)])


def test_a_cluster_and_a_datasource_with_a_later_version_are_unchanged_by_the_file_without_it(
    submitted: EntityHarness,
) -> None:
    context = submitted.context(skip_checks=True)
    moved, other = changed(CLUSTER, colo="nyc"), changed(SOURCE, properties={"fetch": "100"})
    entity_changes.submit(context, [file_of(SOURCE)])
    entity_changes.update(context, [file_of(other)])
    set_safe_mode(submitted.database, is_on=True, author="root", now=submitted.now)
    assert set(outcomes(entity_changes.update(context, [file_of(moved)])).values()) == {VerbOutcome.UPDATED}
    set_safe_mode(submitted.database, is_on=False, author="root", now=submitted.now)
    cluster = context.load().bundle.bundle.find_cluster("primary")
    assert cluster is not None
    assert cluster.version == 1
    assert set(outcomes(entity_changes.update(context, [file_of(moved, other)])).values()) == {VerbOutcome.UNCHANGED}


def test_an_update_tells_the_fields_the_version_and_the_effective_time(running: EntityHarness) -> None:
    result = entity_changes.update(running.context(), [file_of(changed(COUNTING, frequency="hours(2)"))])
    (outcome,) = result.outcomes
    assert [change.field for change in outcome.changes] == ["frequency"]
    assert (outcome.outcome, outcome.version) == (VerbOutcome.UPDATED, 2)
    (release,) = render_document(result)["releases"]
    assert release["effective_from"] == "2013-11-03T14:00Z"
    assert result.reload_needed


def test_an_update_that_breaks_a_process_is_refused_naming_it(submitted: EntityHarness) -> None:
    shorter = with_validity(CLICKS, start="2013-11-05T00:00Z")
    with pytest.raises(
        DefinitionsError, match=r"process 'counting': it is not compatible with changes to feed 'clicks'"
    ):
        entity_changes.update(submitted.context(), [file_of(shorter)])


def test_row_101_an_end_that_is_past_is_refused_where_the_entity_is_scheduled(running: EntityHarness) -> None:
    past = with_validity(COUNTING, end="2013-11-03T00:00Z")
    with pytest.raises(VerbRefusedError, match=r"ends at 2013-11-03T00:00Z, in the past"):
        entity_changes.update(running.context(), [file_of(past)])
    running.later(days=40)
    soft = entity_changes.update(running.context(), [file_of(changed(COUNTING, tags={"owner": "bob"}))])
    assert outcomes(soft) == {"counting": VerbOutcome.UPDATED}


def test_a_past_end_is_taken_where_nothing_is_scheduled(submitted: EntityHarness) -> None:
    past = with_validity(COUNTING, end="2013-11-03T00:00Z")
    assert entity_changes.update(submitted.context(), [file_of(past)]).is_change


def test_row_102_work_on_a_removed_cluster_is_stopped_and_an_added_one_waits_to_be_scheduled(
    running: EntityHarness,
) -> None:
    second = changed(CLUSTER, name="second", storage="file://${PROJECT_ROOT}/data2")
    feeds = [changed(feed, clusters={"primary": _entry(feed), "second": _entry(feed)}) for feed in (CLICKS, COUNTS)]
    entity_changes.submit(running.context(), [file_of(second)])
    entity_changes.update(running.context(), [file_of(*feeds)])
    moved = changed(COUNTING, clusters={"second": _entry(COUNTING)})
    result = entity_changes.update(running.context(), [file_of(moved)])
    assert result.outcomes[0].notes == ("on second it waits to be scheduled", "its work on primary ends")
    assert running.instances()[at("02")].reason == "its process was taken off the cluster"
    assert running.statuses() == {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}
    assert states(running, "counting") == {"second": ScheduleState.SUBMITTED}
    assert states(running, "clicks", Kind.FEED)["second"] is ScheduleState.SUBMITTED
    change_work(running.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
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


def test_row_106_an_endpoint_that_changes_is_told_to_the_feeds_that_use_the_datasource(harness: EntityHarness) -> None:
    context = harness.context(skip_checks=True)
    entity_changes.submit(context, [file_of(CLUSTER, SOURCE, _with_import(CLICKS))])
    softly = entity_changes.update(context, [file_of(changed(SOURCE, description="the shop"))])
    assert softly.outcomes[0].notes == ()
    other = changed(SOURCE, interfaces={"readonly": {"endpoint": "jdbc:derby:memory:other;create=true"}})
    result = entity_changes.update(context, [file_of(other)])
    assert result.outcomes[0].notes == ("its version is 1", "feed 'clicks' imports or exports by it from now on")
    stored = context.store.load(harness.now).bundle.bundle.find_datasource("shop")
    assert isinstance(stored, Datasource)
    assert stored.version == 1
    other_jar = changed(other, driver={"class": "org.apache.derby.iapi.jdbc.AutoloadedDriver", "jars": ["/lib/d2.jar"]})
    entity_changes.update(context, [file_of(other_jar)])
    assert context.store.load(harness.now).bundle.bundle.find_datasource("shop").version == 1


def test_row_106_the_type_of_a_datasource_cannot_change(harness: EntityHarness) -> None:
    context = harness.context(skip_checks=True)
    entity_changes.submit(context, [file_of(SOURCE)])
    with pytest.raises(VerbRefusedError, match="its type cannot change from 'hsql' to 'mysql'"):
        entity_changes.update(context, [file_of(changed(SOURCE, type="mysql"))])


def test_every_change_is_in_the_audit(running: EntityHarness) -> None:
    entity_changes.update(running.context(author="bob"), [file_of(changed(COUNTING, parallel=2))])
    entity_changes.delete(running.context(author="eve"), Kind.PROCESS, ["counting"])
    with running.database.read() as connection:
        newest = Audit(connection).newest(2)
    found = [(entry.author, entry.action, entry.target, entry.details["version"]) for entry in newest]
    assert found == [
        ("eve", "delete", "process 'counting'", 3),
        ("bob", "update", "process 'counting'", 2),
    ]
