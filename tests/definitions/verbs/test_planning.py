from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.context.heartbeat import note_tick
from feed_assets.definitions.edits import Put, Remove
from feed_assets.definitions.store import record_declared
from feed_assets.definitions.verbs.context import EntityContext, open_entity_context
from feed_assets.definitions.verbs.plan_effects import FORMER_PLACE, LONG_PAST, NEVER_CAME, STRANDED
from feed_assets.definitions.verbs.planning import PlannedChanges, plan_edits, plan_folder, read_edits
from feed_assets.definitions.verbs.schedules import apply_releases, load_timeline
from feed_assets.entities.cluster import Cluster
from feed_assets.loading.entity_files import read_entity_files
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces, describe_staying
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, NewFeedEvent, ProcessInstanceStatus
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.release_fingerprint import Step
from feed_assets.plan.rendering import Effect, EntityChange, render_difference
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from tests.context.contexts import row
from tests.databases import open_migrated

NOW = datetime(2013, 11, 3, 0, 30, tzinfo=UTC)
CLUSTER = "kind: cluster\nname: primary\nstorage: file://${DATA_ROOT}\n"
FEED = """\
kind: feed
name: {name}
frequency: hours(1)
locations: {{data: "/{name}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"}}
clusters:
  primary: {{validity: {{start: 2013-11-01T00:00Z}}, retention: {{limit: days(90)}}}}
"""
CLICKS, COUNTS = FEED.format(name="clicks"), FEED.format(name="counts")
PROCESS = """\
kind: process
name: count
frequency: hours(1)
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
inputs: {clicks: {feed: clicks, start: "now(0,0)", end: "now(0,0)"}}
outputs: {counts: {feed: counts, instance: "now(0,0)"}}
workflow: {path: "jobs:count"}
"""
ALL = {"cluster": CLUSTER, "clicks": CLICKS, "counts": COUNTS, "count": PROCESS}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_migrated(f"sqlite:///{tmp_path / 'state.db'}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "entities"
    folder.mkdir()
    for name, text in ALL.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def context(tmp_path: Path, folder: Path, database: Database) -> EntityContext:
    settings = load_settings({"entities": str(folder), "variables": {"DATA_ROOT": "/data"}}, {}, tmp_path)
    return open_entity_context(settings, database, author="ann", now=NOW)


def put(context: EntityContext, *texts: str) -> PlannedChanges:
    return plan_edits(context, [Put(text=text) for text in texts])


def test_a_folder_that_nothing_was_recorded_of_is_all_new(context: EntityContext) -> None:
    planned = plan_folder(context)
    assert [entity.change for entity in planned.difference.entities] == [EntityChange.ADDED] * 4
    assert planned.difference.count(Effect.DUE) == 49 + 49
    assert planned.errors == ()


def test_what_is_recorded_has_no_difference_and_an_edit_of_a_file_has(context: EntityContext, folder: Path) -> None:
    context.store.record_found(NOW)
    assert plan_folder(context).difference.is_empty
    (folder / "count.yaml").write_text(PROCESS.replace("hours(1)", "hours(2)"))
    planned = plan_folder(context)
    (entity,) = planned.difference.entities
    assert [(field.change.field, field.change.before, field.change.after) for field in entity.fields] == [
        ("frequency", "hours(1)", "hours(2)")
    ]
    assert entity.source is not None
    assert entity.source.file.endswith("count.yaml")


def test_a_comment_makes_no_difference(context: EntityContext, folder: Path) -> None:
    context.store.record_found(NOW)
    (folder / "count.yaml").write_text("# counts\n" + PROCESS)
    assert plan_folder(context).difference.is_empty


def test_a_file_that_was_removed_removes_and_a_wrong_one_does_not(context: EntityContext, folder: Path) -> None:
    context.store.record_found(NOW)
    (folder / "count.yaml").write_text(PROCESS.replace("hours(1)", "weeks(1)"))
    planned = plan_folder(context)
    assert planned.difference.is_empty
    assert [issue.code for issue in planned.errors] == ["frequency"]
    (folder / "count.yaml").unlink()
    planned = plan_folder(context)
    assert [(entity.key, entity.change) for entity in planned.difference.entities] == [
        (("process", "count"), EntityChange.REMOVED)
    ]
    assert [process.step for process in planned.difference.processes] == [Step.ENDS]


def test_what_stood_in_a_file_that_nobody_can_read_is_not_removed(context: EntityContext, folder: Path) -> None:
    context.store.record_found(NOW)
    (folder / "clicks.yaml").write_bytes(b"kind: feed\nname: \xff\n")
    planned = plan_folder(context)
    assert planned.difference.is_empty
    assert "file-encoding" in [issue.code for issue in planned.errors]


def test_entities_that_were_built_in_python_are_not_the_folders_to_remove(context: EntityContext) -> None:
    context.store.record_found(NOW)
    record_declared(context.database, [Cluster(name="elsewhere", storage="file:///elsewhere")], NOW, Settings())
    assert plan_folder(context).difference.is_empty


def test_files_are_planned_without_changing_anything(context: EntityContext, folder: Path) -> None:
    before = {file: file.read_bytes() for file in folder.iterdir()}
    planned = put(context, PROCESS.replace("parallel", "x").replace("workflow:", "parallel: 3\nworkflow:"))
    assert [process.step for process in planned.difference.processes] == [Step.IN_PLACE]
    assert "~ parallel: 1 -> 3" in render_difference(planned.difference)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_a_feed_in_use_cannot_be_removed_and_the_plan_names_who_uses_it(context: EntityContext) -> None:
    planned = plan_edits(context, [Remove(key=("feed", "clicks"))])
    (issue,) = planned.errors
    assert "process 'count'" in issue.message


def test_a_change_that_breaks_a_dependent_is_an_error_that_names_both(context: EntityContext) -> None:
    later = CLICKS.replace("validity: {start: 2013-11-01T00:00Z}", "validity: {start: 2013-11-02T00:00Z}")
    assert later != CLICKS
    planned = put(context, later)
    (issue,) = planned.errors
    assert issue.entity == "process 'count'"
    assert "feed 'clicks'" in issue.message


def test_the_digest_is_the_same_at_another_time_and_another_with_other_data(
    context: EntityContext, folder: Path, database: Database
) -> None:
    changed = PROCESS.replace("hours(1)", "hours(2)")
    digest = put(context, changed).digest
    later = open_entity_context(context.settings, database, author="bob", now=NOW.replace(hour=9))
    assert put(later, changed).digest == digest
    assert put(later, PROCESS.replace("hours(1)", "hours(3)")).digest != digest
    (folder / "clicks.yaml").write_text(CLICKS + "description: moved\n")
    assert put(later, changed).digest != digest


def test_processes_follow_a_cluster_only_when_its_version_is_brought_to_them(
    context: EntityContext, tmp_path: Path
) -> None:
    (tmp_path / "moved.yaml").write_text(CLUSTER + "colo: nyc\n")
    planned = plan_edits(context, read_edits(context, read_entity_files(tmp_path / "moved.yaml")))
    assert planned.difference.processes == ()
    text = render_difference(planned.difference)
    assert "    ~ version: 0 -> 1\n    ~ colo: default -> nyc\n    Apply it to feeds and processes" in text


def test_pruning_removes_what_the_files_do_not_hold(context: EntityContext, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    for name in ("cluster", "clicks"):
        (wanted / f"{name}.yaml").write_text(ALL[name])
    files = read_entity_files(wanted)
    planned = plan_edits(context, read_edits(context, files, prune=True))
    assert [(entity.key, entity.change) for entity in planned.difference.entities] == [
        (("feed", "counts"), EntityChange.REMOVED),
        (("process", "count"), EntityChange.REMOVED),
    ]
    assert planned.errors == ()
    assert read_edits(context, files) == ()


def test_secrets_and_values_from_the_environment_are_not_shown(
    tmp_path: Path, folder: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "hunter2")
    settings = load_settings({"entities": str(folder), "variables": {"DATA_ROOT": "/data"}}, {}, tmp_path)
    context = open_entity_context(settings, database, author="ann", now=NOW)
    planned = put(context, CLUSTER + 'properties: {door: "${env:LAKE_PASSWORD}", password: xyzzy}\n')
    text = render_difference(planned.difference)
    assert "hunter2" not in text
    assert "xyzzy" not in text
    assert "${env:LAKE_PASSWORD}" in text


SIGNAL = "{kind: feed, name: approval, signal: true, clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}}"
LOADING = """\
kind: process
name: loading
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
trigger: {when: approval}
workflow: {path: "jobs:load"}
"""


def unseen(planned: PlannedChanges) -> list[str]:
    return [issue.render().partition(": ")[2] for issue in planned.issues if issue.code == NEVER_CAME]


@pytest.fixture
def looked(database: Database) -> None:
    """A tick has looked."""
    note_tick(database, "primary", NOW)


def test_af_35_a_feed_that_is_read_and_never_came_is_a_warning_once_a_tick_has_looked(
    context: EntityContext, folder: Path, database: Database
) -> None:
    assert unseen(plan_folder(context)) == []
    (folder / "approval.yaml").write_text(SIGNAL)
    context.store.record_found(NOW)
    (folder / "loading.yaml").write_text(LOADING)
    planned = plan_folder(context)
    assert planned.errors == ()
    assert unseen(planned) == []
    note_tick(database, "primary", NOW)
    assert unseen(plan_folder(context)) == [
        "feed 'approval': it has never come on primary: process 'loading' reads it, but nobody has ever given notice "
        "of it. Check whether its name is the one that is given.",
        "feed 'clicks': it has never come on primary: process 'count' reads it, but no process here writes it. Check "
        "its location, or declare the process that writes it.",
    ]


@pytest.mark.usefixtures("looked")
def test_af_35_a_plan_of_files_warns_of_the_feeds_that_they_read(context: EntityContext, folder: Path) -> None:
    (folder / "approval.yaml").write_text(SIGNAL)
    (folder / "loading.yaml").write_text(LOADING)
    context.store.record_found(NOW)
    changed = put(context, PROCESS.replace("workflow:", "parallel: 3\nworkflow:"))
    assert [text.split(":")[0] for text in unseen(changed)] == ["feed 'clicks'"]
    changed = put(context, LOADING.replace("approval", "{any: [approval, counts]}"))
    assert [text.split(":")[0] for text in unseen(changed)] == ["feed 'approval'"]


@pytest.mark.usefixtures("looked")
@pytest.mark.parametrize("start", ["2013-11-03T00:00Z", "2013-11-02T23:00Z"])
def test_af_35_what_has_come_once_or_is_not_due_yet_is_no_warning(
    context: EntityContext, folder: Path, database: Database, start: str
) -> None:
    (folder / "clicks.yaml").write_text(CLICKS.replace("2013-11-01T00:00Z", start))
    (folder / "count.yaml").write_text(PROCESS.replace("2013-11-01T00:00Z", "2013-11-03T00:00Z"))
    context.store.record_found(NOW)
    assert len(unseen(plan_folder(context))) == (start < "2013-11-03")
    event = NewFeedEvent(
        feed="clicks",
        cluster="primary",
        nominal_time=NOW,
        kind=FeedEventKind.ARRIVED,
        origin="a test",
        recorded_at=NOW,
    )
    with database.begin() as connection:
        (seq,) = EventLog(connection).append([event])
    assert unseen(plan_folder(context)) == []
    with database.begin() as connection:
        EventLog(connection).remove([seq])  # as a clean-up does after a year
    assert unseen(plan_folder(context)) == []


@pytest.mark.parametrize(
    ("edit", "count"),
    [
        (CLICKS.replace("/clicks/", "/moved/"), 2),
        (CLICKS.replace("kind: feed", "kind: feed\npath_timezone: Asia/Tokyo"), 2),
        (CLICKS.replace("kind: feed", "kind: feed\npath_timezone: Etc/GMT"), 0),
        (CLICKS.replace("days(90)", "days(80)"), 0),
        (CLUSTER.replace("storage: file://${DATA_ROOT}", "storage: file://${DATA_ROOT}/new"), 2),
    ],
)
def test_a_change_of_place_says_how_many_instances_stay(
    context: EntityContext, database: Database, edit: str, count: int
) -> None:
    context.store.record_found(NOW)
    plan = compile_plan(context.store.load(NOW).bundle.bundle)
    clicks = plan.feeds["clicks", "primary"]
    with database.begin() as connection:
        FeedPlaces(connection).put(plan.feeds.values())
        FeedInstances(connection).put(
            FeedInstance(
                feed="clicks",
                cluster="primary",
                nominal_time=NOW.replace(minute=0) - timedelta(hours=hours),
                status=FeedInstanceStatus.EVICTED if hours == 3 else FeedInstanceStatus.AVAILABLE,
                updated_at=NOW,
                place=clicks.place,
            )
            for hours in (1, 2, 3)
        )
    issues = [each for each in put(context, edit).issues if each.code == FORMER_PLACE]
    place = "file:///data/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR} on primary"
    shared = (
        "; instances to come can have their paths, and neither arrive nor are written then" if "Tokyo" in edit else ""
    )
    assert [each.message for each in issues] == [f"{describe_staying(2)}: {place}{shared}"] * (count > 0)


def test_a_start_years_ago_is_told_with_the_time_that_its_past_takes(context: EntityContext, folder: Path) -> None:
    context.store.record_found(NOW)
    old = CLICKS.replace("2013-11-01", "1993-11-05"), PROCESS.replace("2013-11-01", "2013-09-01")
    planned = put(context, *old, COUNTS.replace("2013-11-01", "2000-01-01"))
    assert [issue.render().partition(": ")[2] for issue in planned.issues if issue.code == LONG_PAST] == [
        "feed 'clicks': 174,273 instances on primary since 1993-11-05T00:00Z are looked for behind today's, about 2 "
        "minutes at 60,000 a minute, by estimate: less with others beside it. Begin it later to leave them out.",
    ]
    again = PROCESS.replace("name: count", "name: again").replace("2013-11-01", "1993-11-05")
    (_, told) = (each.message for each in put(context, old[0], again).issues if each.code == LONG_PAST)
    assert " are created after the past of its inputs, behind today's, about " in told
    for name, text in zip(("clicks", "count"), old, strict=True):
        (folder / f"{name}.yaml").write_text(text)
    context.store.record_found(NOW)
    assert not [issue for issue in put(context, CLICKS, old[1] + "parallel: 3\n").issues if issue.code == LONG_PAST]


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_plan_says_which_waiting_instances_lack_a_feed_that_it_removes(
    context: EntityContext, database: Database, folder: Path, is_begun: bool
) -> None:
    context.store.record_found(NOW)
    apply_releases(context, load_timeline(context))
    first = NOW.replace(hour=0, minute=0) - timedelta(hours=3)
    waiting, done = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.SUCCEEDED
    with database.begin() as connection:
        rows = [(first, done)] if is_begun else []
        rows += [(first + timedelta(hours=hours), waiting) for hours in (1, 2)]
        ProcessInstances(connection).add_waiting([row("count", time, status) for time, status in rows])
    (folder / "clicks.yaml").write_text(FEED.format(name="views"))
    (folder / "count.yaml").write_text(PROCESS.replace("feed: clicks", "feed: views"))
    found = [each for each in plan_folder(context).issues if each.code == STRANDED]
    assert len(found) == is_begun, "without a run, the release is replaced from the start"
    for each in found:
        assert each.message.startswith("2 instances on primary wait for feed 'clicks', which is not declared any more;")
        assert "entity touch process count --clusters primary --effective-from 2013-11-02T22:00Z" in each.message


SHOP = """\
kind: datasource
name: shop
type: postgres
driver: {class: org.postgresql.Driver, jars: [postgresql.jar]}
credential: {user: reader, password_file: secret}
interfaces: {readonly: {endpoint: "jdbc:postgresql://one/shop"}}
"""
IMPORTED = CLICKS.replace("{validity", "{type: source, import: {source: {name: shop, table: clicks}}, validity")


def test_a_changed_datasource_names_the_next_instance_of_what_uses_it(context: EntityContext, folder: Path) -> None:
    (folder / "shop.yaml").write_text(SHOP)
    (folder / "clicks.yaml").write_text(IMPORTED)
    assert not plan_folder(context).difference.count(Effect.NEXT)
    context.store.record_found(NOW)
    planned = put(context, SHOP.replace("one", "two"))
    (found,) = (each for each in planned.difference.instances if each.effect is Effect.NEXT)
    assert (found.name, found.cluster, found.of, found.ranges[0].first) == (
        "clicks.import",
        "primary",
        "shop",
        NOW + timedelta(minutes=30),
    )
    assert (
        "the import of feed 'clicks' on primary: 1 instance is the next by datasource 'shop' as it will be, "
        "beside what waits or runs again: 2013-11-03T01:00Z"
    ) in render_difference(planned.difference)
    assert not put(context, IMPORTED.replace("days(90)", "days(80)")).difference.count(Effect.NEXT)
