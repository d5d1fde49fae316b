import pickle
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from feed_assets.entities.bundle import Bundle, entity_digest
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Acl, Kind, Validity
from feed_assets.entities.errors import DuplicateEntityError, EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.fields import describe
from feed_assets.entities.graph import DependencyGraph
from feed_assets.entities.process import Process
from feed_assets.entities.workflow import Workflow
from feed_assets.timing.sequence import Frequency, Unit
from tests.entities.samples import BASE, build, bundle


@pytest.mark.parametrize("name", ["my-feed1", "A", "a--b"])
def test_row_02_good_names_are_accepted(name: str) -> None:
    assert build("feed clicks", {**BASE["feed clicks"], "name": name}).name == name


@pytest.mark.parametrize("name", ["1feed", "my_feed", "", "a.b", "-a", "é", "a\n"])
def test_row_02_other_names_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(ValidationError, match="a name is a letter, then letters, digits and '-'"):
        build("feed clicks", {**BASE["feed clicks"], "name": name})


@pytest.mark.parametrize("text", ["hours(0)", "weeks(1)", "hours(-1)"])
def test_row_03_other_frequencies_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a frequency"):
        build("feed clicks", {**BASE["feed clicks"], "frequency": text})


def test_row_03_a_frequency_is_parsed() -> None:
    assert bundle({"feed clicks/frequency": "hours(2)"}).get_feed("clicks").frequency == Frequency(
        unit=Unit.HOURS, count=2
    )


@pytest.mark.parametrize("text", ["2015-02-29T00:00Z", "2015/02/01T00:00Z", "2015-02-01", "2015-02-01T00:00"])
def test_row_04_dates_that_do_not_exist_or_are_written_otherwise_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a date and time"):
        Validity(start=text)


def test_row_04_a_leap_day_is_accepted() -> None:
    assert Validity(start="2016-02-29T00:00Z").start == datetime(2016, 2, 29, tzinfo=UTC)


def test_row_05_without_an_end_a_validity_lasts_to_9999() -> None:
    validity = Validity(start="2015-01-01T00:00Z")
    assert validity.model_dump(mode="json")["end"] == "9999-04-16T00:00Z"
    assert validity.is_endless
    assert validity.render() == "2015-01-01T00:00Z with no end"


def test_row_06_tags_are_read_from_a_map_and_from_text() -> None:
    for tags in ("a=b,c=d", "a=b, c=d", {"a": "b", "c": "d"}):
        assert build("feed clicks", {**BASE["feed clicks"], "tags": tags}).tags == {"a": "b", "c": "d"}


@pytest.mark.parametrize("tags", ["a", "a=b,a=c", "a=", {"a b": "c"}, {"a": "b,c"}, {"a": None}, 5, ["a=b"]])
def test_row_06_other_tags_are_refused(tags: object) -> None:
    with pytest.raises(ValidationError):
        build("feed clicks", {**BASE["feed clicks"], "tags": tags})


def test_an_entity_is_a_value() -> None:
    for label, document in BASE.items():
        entity = build(label, document)
        assert entity == build(label, document)
        assert hash(entity) == hash(build(label, document))
        assert pickle.loads(pickle.dumps(entity)) == entity
        with pytest.raises(ValidationError):
            entity.name = "other"  # type: ignore[misc]


def test_maps_of_an_entity_cannot_change() -> None:
    clicks = bundle().get_feed("clicks")
    with pytest.raises(TypeError):
        clicks.properties["a"] = "b"  # type: ignore[index]


def test_an_entity_survives_its_json_form() -> None:
    for label, document in BASE.items():
        entity = build(label, document)
        again = type(entity).model_validate(entity.model_dump(mode="json", by_alias=True))
        assert again == entity
        assert entity_digest(again) == entity_digest(entity)


def test_the_digest_does_not_depend_on_how_an_entity_is_written() -> None:
    document = BASE["feed clicks"]
    turned = {**dict(reversed(document.items())), "timezone": "UTC", "tags": {}}
    assert entity_digest(build("feed clicks", document)) == entity_digest(build("feed clicks", turned))


def test_the_digest_depends_on_what_an_entity_says() -> None:
    assert bundle().digest != bundle({"feed clicks/frequency": "hours(2)"}).digest
    assert bundle().digest == bundle().digest


def test_the_order_of_inputs_is_part_of_the_digest() -> None:
    window = {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}
    one, other = ({"process daily/inputs": dict.fromkeys(names, window)} for names in ("ab", "ba"))
    assert bundle(one).digest != bundle(other).digest


def test_the_sample_digest_stays_the_same_between_releases() -> None:
    cluster = Cluster(name="primary", storage="file:///data", storage_options={"anon": True, "n": 3, "o": {"a": [1]}})
    assert entity_digest(cluster) == "731d42e752ac97ff7efaf3c7c431513477357b46d938a2bb46a1f5a896896a47"


def test_the_order_of_entities_does_not_matter() -> None:
    entities = bundle().entities
    assert Bundle(entities=tuple(reversed(entities))) == Bundle(entities=entities)


def test_a_name_is_used_once_in_a_kind() -> None:
    clicks = bundle().get_feed("clicks")
    with pytest.raises(DuplicateEntityError, match="two entities of kind 'feed' with the name 'clicks'"):
        Bundle(entities=(clicks, clicks))


def test_what_is_missing_is_named_with_what_may_be_meant() -> None:
    with pytest.raises(EntityNotFoundError, match=r"there is no feed 'cliks'\. Did you mean 'clicks'\?"):
        bundle().get_feed("cliks")
    assert bundle().find_process("clicks") is None


def test_a_bundle_without_some_entities_keeps_the_others() -> None:
    smaller = bundle().without({("feed", "clicks"), ("process", "daily")})
    assert [entity.label for entity in smaller.entities] == [
        "cluster 'backup'",
        "cluster 'primary'",
        "datasource 'shop'",
        "feed 'summary'",
    ]


def test_dependents_are_found_through_others() -> None:
    graph = DependencyGraph.of(bundle())
    assert graph.dependents_of([(Kind.CLUSTER, "backup")]) == {("feed", "clicks"), ("process", "daily")}
    assert graph.dependents_of([("process", "daily")]) == frozenset()
    assert graph.dependencies_of([("process", "daily")]) == {
        ("cluster", "primary"),
        ("cluster", "backup"),
        ("feed", "clicks"),
        ("feed", "summary"),
    }


def test_spark_is_local_unless_an_address_is_given() -> None:
    storage = "file:///data"
    assert Cluster(name="a", storage=storage).spark.master == "local[*]"
    assert Cluster(name="a", storage=storage, spark={"conf": {"a": 1}}).spark.master == "local[*]"
    remote = Cluster(name="a", storage=storage, spark={"remote": "sc://host:15002"}).spark
    assert (remote.master, remote.remote) == (None, "sc://host:15002")
    kept = Cluster(name="a", storage=storage, spark={"connect": "local"}).spark
    assert (kept.master, kept.local_master) == (None, "local[*]")


@pytest.mark.parametrize(
    ("spark", "message"),
    [
        ({"connect": "local", "master": "yarn"}, "both master 'yarn' and connect 'local' are written"),
        ({"connect": "local", "remote": "sc://host"}, "both remote 'sc://host' and connect 'local' are written"),
        ({"connect": "sc://host"}, "connect 'sc://host' is not a local master"),
    ],
)
def test_spark_has_one_address(spark: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Cluster(name="a", storage="file:///data", spark=spark)


@pytest.mark.parametrize("storage", ["/data", "data", "", "1 2://x"])
def test_a_storage_is_a_url(storage: str) -> None:
    with pytest.raises(ValidationError):
        Cluster(name="a", storage=storage)


def test_numbers_and_truth_values_become_text() -> None:
    properties = bundle({"feed clicks/properties": {"a": 1, "b": True, "c": 1.5}}).get_feed("clicks").properties
    assert properties == {"a": "1", "b": "true", "c": "1.5"}


@pytest.mark.parametrize(
    ("frequency", "timeout", "effective"),
    [
        ("minutes(1)", None, "minutes(30)"),
        ("minutes(5)", None, "minutes(30)"),
        ("minutes(6)", None, "minutes(36)"),
        ("days(1)", None, "days(6)"),
        ("days(1)", "minutes(1)", "minutes(1)"),
    ],
)
def test_the_timeout_is_six_steps_and_at_least_half_an_hour(
    frequency: str, timeout: str | None, effective: str
) -> None:
    document = {**BASE["process daily"], "frequency": frequency, "timeout": timeout}
    assert Process.model_validate(document).effective_timeout().render() == effective


def test_late_inputs_are_a_list_or_a_map_with_workflows() -> None:
    base = {"policy": "final", "delay": "hours(1)"}
    for inputs, expected in ((["a", "b"], {"a": None, "b": None}), ({"a": None}, {"a": None})):
        document = {**BASE["process daily"], "late_process": {**base, "inputs": inputs}}
        late = Process.model_validate(document).late_process
        assert late is not None
        assert late.inputs == expected


def test_groups_are_a_list_or_text() -> None:
    for groups in (["a", "b"], "a,b", "a, b"):
        assert Feed.model_validate({**BASE["feed clicks"], "groups": groups}).groups == ("a", "b")


def test_a_moment_needs_a_time_zone_and_whole_minutes() -> None:
    assert Validity(start=datetime(2015, 1, 1, tzinfo=UTC)).start == datetime(2015, 1, 1, tzinfo=UTC)
    for moment in (datetime(2015, 1, 1), datetime(2015, 1, 1, 0, 0, 1, tzinfo=UTC)):  # noqa: DTZ001
        with pytest.raises(ValidationError):
            Validity(start=moment)


def test_the_permission_of_an_acl_is_kept_as_it_is_written() -> None:
    assert Acl(owner="me", group="us", permission="0755").permission == "0755"


def test_values_are_quoted_for_people() -> None:
    values: list[object] = [{}, [], None, "x", 5, True]
    assert [describe(value) for value in values] == ["a map", "a list", "nothing", "'x'", "5", "true"]


def test_work_elsewhere_has_steps_without_code_and_survives_a_round_trip() -> None:
    written = {"engine": "external", "steps": {"extract": None, "load": {"after": ["extract"], "recoverable": False}}}
    workflow = Workflow.model_validate(written)
    assert [step.engine.value for step in workflow.steps.values()] == ["external", "external"]
    assert Workflow.model_validate(workflow.model_dump(mode="json", exclude_defaults=True)) == workflow
    assert Workflow.model_validate({"engine": "external"}).steps == {}


@pytest.mark.parametrize(
    ("workflow", "message"),
    [
        ({"engine": "external", "path": "jobs:load"}, "'path' has no meaning for engine external"),
        ({"engine": "external", "steps": {"a": {"path": "jobs:a"}}}, "'path' has no meaning for a step that runs else"),
        ({"engine": "external", "steps": {"a": {"engine": "sql", "path": "a.sql"}}}, "step 'a' has engine sql"),
        ({"steps": {"a": {"engine": "external"}}}, "step 'a' has engine external, but the workflow steps"),
        ({"steps": {"a": {}}}, "Field required"),
    ],
)
def test_a_workflow_runs_here_or_elsewhere_as_a_whole(workflow: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Workflow.model_validate(workflow)
