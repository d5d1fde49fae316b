from datetime import datetime
from pathlib import Path

import pytest

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.lists.lookup import FeedLookup, LocationType
from feed_assets.definitions.lists.query_fields import Form, ListField, ListQuery
from feed_assets.definitions.lists.reading import Neighbour, find_neighbours, find_page, show_definition, summarize
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.context import get_declared
from feed_assets.definitions.verbs.schedules import change_work
from feed_assets.definitions.verbs.verb_results import EntityVerb
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.json_form import render_document
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, ProcessInstanceStatus
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS, EntityHarness, changed, file_of
from tests.instances.harness import at


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    harness = EntityHarness.at(tmp_path)
    tagged = changed(COUNTING, tags="owner=ops, class=Public", pipelines=["web", "daily"])
    another = changed(
        COUNTING,
        name="New-My-Hourly-Summary",
        tags={"owner": "bi"},
        outputs={},
    )
    entity_changes.submit(harness.context(), [file_of(CLUSTER, CLICKS, COUNTS, tagged, another)])
    change_work(harness.context(), EntityVerb.SCHEDULE, Kind.PROCESS, ["counting"])
    return harness


def names(harness: EntityHarness, *kinds: Kind, **query: object) -> list[str]:
    return [each.name for each in find_page(harness.context(), ListQuery(**query), kinds).items]  # type: ignore[arg-type]


def test_row_95_names_are_found_by_letters_in_their_order(harness: EntityHarness) -> None:
    assert names(harness, name_sequence="mhs") == ["New-My-Hourly-Summary"]
    assert names(harness, name_sequence="CNT") == ["counting", "counts"]
    assert names(harness, name_sequence="smh") == []


def test_row_6_tags_that_were_written_as_text_are_found(harness: EntityHarness) -> None:
    assert names(harness, tags=("class=Public",)) == ["counting"]
    with pytest.raises(DefinitionsError, match="tags"):
        entity_changes.submit(harness.context(), [file_of(changed(CLICKS, name="bad", tags="a"))])


def test_row_95_tags(harness: EntityHarness) -> None:
    assert names(harness, tag_keys=("OWNER", "public")) == ["counting"]
    assert names(harness, tag_keys=("owner",)) == ["New-My-Hourly-Summary", "counting"]
    assert names(harness, tags=("owner=ops", "class=Public")) == ["counting"]
    assert names(harness, tags=("owner=OPS",)) == []


def test_row_95_filters_of_one_field_are_alternatives_and_fields_add_up(harness: EntityHarness) -> None:
    assert names(harness, filter_by=("TYPE:feed", "type:CLUSTER")) == ["clicks", "counts", "primary"]
    assert names(harness, filter_by=("NAME:Clicks", "NAME:counting")) == ["clicks", "counting"]
    assert names(harness, filter_by=("STATUS:running",)) == ["counting"]
    assert names(harness, filter_by=("CLUSTER:primary", "TYPE:feed")) == ["clicks", "counts"]
    assert names(harness, Kind.PROCESS, filter_by=("PIPELINES:web", "PIPELINES:none")) == ["counting"]


def test_row_95_only_processes_have_pipelines(harness: EntityHarness) -> None:
    with pytest.raises(VerbRefusedError, match="only processes have pipelines"):
        names(harness, filter_by=("PIPELINES:web",))


def test_row_95_sorting_pages_and_the_total(harness: EntityHarness) -> None:
    everything = ["New-My-Hourly-Summary", "clicks", "counting", "counts", "primary"]
    assert names(harness) == everything
    assert names(harness, sort_order="desc") == everything[::-1]
    assert names(harness, offset=1, num_results=2) == everything[1:3]
    assert names(harness, offset=-3, num_results=1) == everything[:1]
    page = find_page(harness.context(), ListQuery(offset=9))
    assert (page.items, page.total, page.document("entities")["has_more"]) == ((), 5, False)


def test_row_95_fields_are_shown_that_are_asked_for_or_filtered_by(harness: EntityHarness) -> None:
    page = find_page(harness.context(), ListQuery(name_sequence="counting"), [Kind.PROCESS], [*ListField])
    (found,) = render_document(**page.document("entities"))["entities"]
    assert found == {
        "kind": "process",
        "name": "counting",
        "status": "RUNNING",
        "tags": ["owner=ops", "class=Public"],
        "pipelines": ["web", "daily"],
        "clusters": ["primary"],
        "inputs": ["clicks"],
        "outputs": ["counts"],
    }
    filtered = find_page(harness.context(), ListQuery(filter_by=("STATUS:RUNNING",))).items[0]
    assert (filtered.status, filtered.tags, filtered.clusters) == ("RUNNING", None, None)


def test_row_94_the_definition_is_what_was_submitted(harness: EntityHarness) -> None:
    assert show_definition(harness.context(), Kind.FEED, "clicks").strip() == file_of(CLICKS).content.decode().strip()
    as_json = show_definition(harness.context(), Kind.FEED, "clicks", form=Form.JSON)
    assert '"kind": "feed"' in as_json
    assert show_definition(harness.context(), Kind.FEED, "clicks", form=Form.XML).startswith("<?xml")
    assert "${PROJECT_ROOT}" in show_definition(harness.context(), Kind.CLUSTER, "primary", form=Form.YAML)


def test_row_94_definitions_of_earlier_versions_and_of_what_was_deleted(harness: EntityHarness) -> None:
    entity_changes.update(harness.context(), [file_of(changed(COUNTS, description="new"))])
    assert "description" not in show_definition(harness.context(), Kind.FEED, "counts", version=1)
    assert "new" in show_definition(harness.context(), Kind.FEED, "counts", version=2, form=Form.JSON)
    entity_changes.delete(harness.context(), Kind.PROCESS, ["counting"])
    assert "pipelines" in show_definition(harness.context(), Kind.PROCESS, "counting", version=1, form=Form.YAML)
    with pytest.raises(VerbRefusedError, match=r"version 2: it deleted the entity\. Versions go up to 2"):
        show_definition(harness.context(), Kind.PROCESS, "counting", version=2)
    with pytest.raises(EntityNotFoundError):
        show_definition(harness.context(), Kind.PROCESS, "counting")
    with pytest.raises(EntityNotFoundError):
        show_definition(harness.context(), Kind.PROCESS, "nobody", version=1)


def test_row_94_neighbours_with_what_a_feed_is_to_a_process(harness: EntityHarness) -> None:
    loaded = harness.context().load()

    def neighbours(kind: Kind, name: str) -> tuple[Neighbour, ...]:
        return find_neighbours(loaded.bundle.bundle, get_declared(loaded, kind, name).key)

    assert neighbours(Kind.PROCESS, "counting") == (
        Neighbour(kind="cluster", name="primary"),
        Neighbour(kind="feed", name="clicks", tags=("Input",)),
        Neighbour(kind="feed", name="counts", tags=("Output",)),
    )
    assert neighbours(Kind.FEED, "clicks") == (
        Neighbour(kind="cluster", name="primary"),
        Neighbour(kind="process", name="New-My-Hourly-Summary", tags=("Input",)),
        Neighbour(kind="process", name="counting", tags=("Input",)),
    )
    assert [each.name for each in neighbours(Kind.CLUSTER, "primary")] == [
        "clicks",
        "counts",
        "New-My-Hourly-Summary",
        "counting",
    ]


def test_row_96_the_newest_seven_instances_of_each_process(harness: EntityHarness) -> None:
    harness.tick()
    harness.put(ProcessInstanceStatus.SUCCEEDED, at("03T12"))
    found = summarize(harness.context(), Kind.PROCESS, "primary", ListQuery(), instances=7)
    by_name = {entity.name: entity for entity in found.items}
    assert (found.total, by_name["New-My-Hourly-Summary"].instances) == (2, ())
    times = [each.nominal_time for each in by_name["counting"].instances]
    assert times == [at(f"03T{hour:02}") for hour in range(12, 5, -1)]
    assert [each.status for each in by_name["counting"].instances[:2]] == ["SUCCEEDED", "WAITING"]


def test_row_96_instances_of_feeds_are_there_or_missing(harness: EntityHarness) -> None:
    arrived = FeedInstance(
        feed="clicks",
        cluster="primary",
        nominal_time=at("03T11"),
        status=FeedInstanceStatus.AVAILABLE,
        updated_at=harness.now,
    )
    with harness.database.begin() as connection:
        FeedInstances(connection).put([arrived])
    query, hours = ListQuery(name_sequence="clicks"), {"start": at("03T10"), "end": at("03T13")}
    (found,) = summarize(harness.context(), Kind.FEED, "primary", query, instances=7, **hours).items
    assert [(each.nominal_time, each.status) for each in found.instances] == [
        (at("03T12"), "MISSING"),
        (at("03T11"), "AVAILABLE"),
        (at("03T10"), "MISSING"),
    ]


def test_a_summary_is_of_feeds_or_processes_on_a_cluster_that_there_is(harness: EntityHarness) -> None:
    with pytest.raises(VerbRefusedError, match="a cluster has no instances"):
        summarize(harness.context(), Kind.CLUSTER, "primary", ListQuery(), instances=7)
    with pytest.raises(EntityNotFoundError):
        summarize(harness.context(), Kind.FEED, "moon", ListQuery(), instances=7)
    with pytest.raises(VerbRefusedError, match="it would start after its end"):
        summarize(harness.context(), Kind.FEED, "primary", ListQuery(), start=at("03"), end=at("02"), instances=7)


def found_by(harness: EntityHarness, path: str) -> list[tuple[str, str, LocationType, datetime | None]]:
    lookup = FeedLookup(harness.context().load().bundle.bundle)
    return [(each.feed, each.cluster, each.type, each.nominal_time) for each in lookup.find(path)]


def test_a_path_leads_to_the_instance_of_its_time_in_the_zone_of_the_paths(harness: EntityHarness) -> None:
    east = changed(
        CLICKS, name="east", timezone="GMT+08:00", locations={"data": "/east/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    )
    paths = changed(east, name="paths", path_timezone="UTC", locations={"data": "/utc/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
    entity_changes.submit(harness.context(), [file_of(east), file_of(paths)])
    assert found_by(harness, "/east/2013-11-02/13") == [("east", "primary", LocationType.DATA, at("02T05"))]
    assert found_by(harness, "/utc/2013-11-02/05") == [("paths", "primary", LocationType.DATA, at("02T05"))]


def test_row_97_a_whole_path_leads_to_every_feed_that_it_belongs_to(harness: EntityHarness) -> None:
    twin = changed(CLICKS, name="twin", locations={"data": "/other/${YEAR}", "stats": CLICKS["locations"]["data"]})  # type: ignore[index]
    entity_changes.submit(harness.context(), [file_of(changed(twin, frequency="months(12)"))])
    data = ("clicks", "primary", LocationType.DATA, at("02T05"))
    stats = ("twin", "primary", LocationType.STATS, None)
    (harness.folder / "link").symlink_to(harness.folder / "data/clicks")
    for path in (
        f"{harness.folder}/link/2013-11-02/05",
        f"file://localhost{harness.folder}/./data//clicks/2013-11-02/05",
        f"{harness.folder}/link/../clicks/2013-11-02/05",
        "/clicks/2013-11-02/05",
        "/clicks/2013-11-02/05/",
        f"file://{harness.folder}/data/clicks/2013-11-02/05",
        f"{harness.folder}/data/clicks/2013-11-02/05",
    ):
        assert found_by(harness, path) == [data, stats], path


@pytest.mark.parametrize(
    "path",
    [
        "/clicks/2013-11-02",
        "/clicks/2013-11-02/05/part-0.csv",
        "/clicks/2013-02-30/05",
        "/clicks/2013-11-02/24",
        "/nowhere/2013-11-02/05",
        "/",
        "",
        "clicks/2013-11-02/05",
    ],
)
def test_row_97_a_part_of_a_path_and_a_date_that_does_not_exist_lead_to_none(harness: EntityHarness, path: str) -> None:
    assert found_by(harness, path) == []


def test_row_97_outside_of_the_validity_the_feed_is_found_without_an_instance(harness: EntityHarness) -> None:
    assert found_by(harness, "/clicks/2012-11-02/05") == [("clicks", "primary", LocationType.DATA, None)]
