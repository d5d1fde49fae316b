"""Documents with every element and attribute of Falcon's schemas, and what they become."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import RetentionAction
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.entities.workflow import Workflow, WorkflowEngine
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.entity_files import Values
from feed_assets.loading.falcon.grammar import SCHEMAS, Element
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.falcon.xml_nodes import XmlElement, read_xml
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.timing.sequence import parse_frequency

FOLDER = Path(__file__).parent / "documents"
FILES = sorted(FOLDER.glob("*.xml"))
VALUES = Values(variables={}, environ={"DB_PASSWORD": "top-secret"})


def _read(name: str) -> EntityDocument:
    (document,) = iter_entities(f"{name}.xml", (FOLDER / f"{name}.xml").read_text("utf-8"), VALUES)
    assert [issue.render() for issue in document.issues] == []
    return document


def _entity(name: str) -> AnyEntity:
    entity = _read(name).entity
    assert entity is not None
    return entity


def _notes(name: str, kind: NoteKind) -> list[str]:
    return [note.message for note in _read(name).notes if note.kind is kind]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_reading_what_was_written_gives_the_same_entity(file: Path) -> None:
    entity = _entity(file.stem)
    text = render_falcon(entity)
    (again,) = iter_entities("a.xml", text, VALUES)
    assert again.entity == entity
    assert render_falcon(entity) == text
    (from_yaml,) = iter_entities("a.yaml", render_yaml(entity), VALUES)
    assert from_yaml.entity == entity


def test_the_documents_have_every_element_and_attribute() -> None:
    roots = [read_xml(file.read_text("utf-8")) for file in FILES]
    written = {_end(path) for root in roots if isinstance(root, XmlElement) for path in _paths(root)}
    known = {_end(path) for schema in SCHEMAS.values() for path in _known(schema)}
    assert written == known


def _end(path: str) -> str:
    """An element and the one around it: some stand in several places."""
    return "/".join(path.split("/")[-2:])


def _known(schema: Element, above: str = "") -> Iterator[str]:
    path = f"{above}/{schema.name}" if above else schema.name
    yield path
    yield from (f"{path}@{attribute.name}" for attribute in schema.attributes)
    for part in schema.content:
        for element in part.elements:
            yield from _known(element, path)


def _paths(node: XmlElement, above: str = "") -> Iterator[str]:
    path = f"{above}/{node.name}" if above else node.name
    yield path
    yield from (f"{path}@{name}" for name in node.attributes)
    for child in node.children:
        yield from _paths(child, path)


def test_a_clusters_interfaces_stand_for_storage_catalog_and_spark() -> None:
    cluster = _entity("primary")
    assert isinstance(cluster, Cluster)
    assert (cluster.storage, cluster.catalog) == ("hdfs://nn:8020", "thrift://hive1:9083,hive2:9083")
    assert (cluster.spark.master, dict(cluster.spark.submit)) == ("yarn", {"deploy-mode": "cluster"})
    assert len(cluster.interfaces) == 7
    assert cluster.tags == {"consumer": "consumer@xyz.com", "owner": "producer@xyz.com"}
    assert cluster.description == "Primary & only"


def test_an_archival_stage_becomes_retention_that_archives() -> None:
    feed = _entity("events")
    assert isinstance(feed, Feed)
    archives = {name: entry.retention and entry.retention.archive_to for name, entry in feed.clusters.items()}
    hour = "${YEAR}-${MONTH}-${DAY}-${HOUR}"
    assert archives == {"primary": f"s3://cold/events/{hour}", "backup": f"/archive/events/{hour}"}
    for name, entry in feed.clusters.items():
        assert entry.retention is not None
        assert entry.retention.action is RetentionAction.ARCHIVE
        assert feed.retention_limit_on(name) == parse_frequency("days(9)")
    assert f"archival-stage → retention of backup: archive to '/archive/events/{hour}'" in _notes(
        "events", NoteKind.MAPPED
    )
    checks = _notes("events", NoteKind.CHECK)
    assert sum("are archived when their retention limit ends" in message for message in checks) == 2
    assert any(message.startswith("deleteFromSource, properties, queue of <archival-stage>") for message in checks)


def test_a_datasources_credentials_are_of_three_kinds() -> None:
    source = _entity("orders-db")
    assert isinstance(source, Datasource)
    reading, writing = source.interfaces.readonly, source.interfaces.write
    assert reading is not None
    assert writing is not None
    assert reading.credential is not None
    assert reading.credential.password_file == "/secrets/reader"
    assert writing.credential is not None
    assert writing.credential.password == "top-secret"
    assert source.credential is not None
    assert source.credential.password_alias is not None
    assert source.credential.password_alias.provider == "jceks://file/a.jceks"


def test_a_feed_keeps_everything_that_falcon_says_of_it() -> None:
    feed = _entity("clicks")
    assert isinstance(feed, Feed)
    primary, backup = feed.clusters["primary"], feed.clusters["backup"]
    assert primary.import_ is not None
    assert primary.import_.source.fields is not None
    assert primary.import_.source.fields.includes == ("id", "url")
    assert primary.export is not None
    assert primary.export.target.fields is not None
    assert primary.export.target.fields.excludes == ("secret",)
    assert primary.lifecycle is not None
    assert backup.table == "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY}-${HOUR}"
    assert feed.format == "csv"
    assert "feed_assets.format" not in feed.properties
    assert feed.notification is not None
    assert feed.notification.to == ("a@xyz.com", "b@xyz.com")


def test_row_26_a_spark_process_becomes_a_spark_submit_of_its_jar() -> None:
    process = _entity("daily-spark")
    assert isinstance(process, Process)
    assert process.workflow == Workflow(
        engine=WorkflowEngine.SPARK_SUBMIT,
        path="/apps/daily/daily.jar",
        lib=("/apps/daily/lib", "/apps/shared.jar"),
        name="summarize",
        version="2.0",
        master="yarn",
        deploy_mode="cluster",
        main_class="org.example.Daily",
        args=("--verbose", "${formatTime(instanceTime(), 'yyyy-MM-dd-HH-mm')}"),
        conf={"spark.executor.extraJavaOptions": "-Da=1 -Db=2", "spark.ui.port": "1"},
        submit={"num-executors": "2", "name": "Daily Summary"},
    )
    assert process.late_process is not None
    assert process.late_process.inputs["users"] is None
    assert process.late_process.inputs["clicks"] == Workflow(engine=WorkflowEngine.SPARK_SUBMIT, path="/apps/late.jar")
    assert "engine spark → spark-submit of '/apps/daily/daily.jar'" in _notes("daily-spark", NoteKind.MAPPED)


def test_the_first_of_several_jars_is_the_application_and_old_masters_are_understood() -> None:
    text = (FOLDER / "daily-spark.xml").read_text("utf-8")
    text = text.replace("daily.jar</jar>", "daily.jar, /apps/b.jar,</jar>").replace("<mode>cluster</mode>", "")
    (document,) = iter_entities("a.xml", text.replace("<master>yarn<", "<master>yarn-client<"), VALUES)
    assert isinstance(document.entity, Process)
    workflow = document.entity.workflow
    assert (workflow.path, workflow.lib[-1]) == ("/apps/daily/daily.jar", "/apps/b.jar")
    assert (workflow.master, workflow.deploy_mode) == ("yarn", "client")


def test_row_27_a_hive_process_becomes_a_sql_workflow() -> None:
    process = _entity("weekly-hive")
    assert isinstance(process, Process)
    assert process.workflow == Workflow(engine=WorkflowEngine.SQL, path="/apps/hive/weekly.hql")
    assert _notes("weekly-hive", NoteKind.MAPPED) == ["engine hive → sql: '/apps/hive/weekly.hql'"]


def test_row_28_pig_is_declared_as_it_is() -> None:
    process = _entity("monthly-pig")
    assert isinstance(process, Process)
    assert process.workflow == Workflow(engine=WorkflowEngine.PIG, path="/apps/id.pig")


def test_row_29_oozie_is_declared_as_it_is() -> None:
    process = _entity("hourly-oozie")
    assert isinstance(process, Process)
    assert process.workflow == Workflow(engine=WorkflowEngine.OOZIE, path="/apps/workflow")


def test_values_have_the_places_of_their_attributes() -> None:
    sources = _read("clicks").sources
    text = (FOLDER / "clicks.xml").read_text("utf-8").splitlines()
    for path, needle in (
        (("clusters", "primary", "retention", "limit"), 'limit="days(2)"'),
        (("clusters", "primary", "import", "source", "table"), 'tableName="clicks" version'),
        (("late_arrival", "cut_off"), 'cut-off="hours(6)"'),
        (("properties", "queueName"), '<property name="queueName"'),
        (("partitions", 1), '<partition name="colo"'),
        (("format",), '<property name="feed_assets.format"'),
        (("frequency",), "<frequency>"),
    ):
        place = sources.locate(path)
        assert place.line is not None
        assert place.column is not None
        assert text[place.line - 1][place.column - 1 :].startswith(needle), path


def test_every_element_is_of_the_schema_only_once() -> None:
    def check(element: Element) -> None:
        assert len(set(element.child_names)) == len(element.child_names)
        for part in element.content:
            for child in part.elements:
                check(child)

    for schema in SCHEMAS.values():
        check(schema)
