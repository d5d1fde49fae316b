"""Blank values that mean none in Falcon, and those that its schemas refuse.

Facts of cluster-0.1.xsd, datasource-0.1.xsd, feed-0.1.xsd and process-0.1.xsd (apache/falcon,
client/src/main/resources): a blank value is valid where the type is xs:string, and of `tags`.
"""

import re
from pathlib import Path

import pytest

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.entity_files import Values

FOLDER = Path(__file__).parent / "documents"


def _read(name: str, *blanks: tuple[str, str]) -> EntityDocument:
    """A document in which the given elements and attributes are blank."""
    text = (FOLDER / f"{name}.xml").read_text("utf-8")
    for pattern, blank in blanks:
        text, count = re.subn(pattern, blank, text)
        assert count, pattern
    (document,) = iter_entities("a.xml", text, Values(variables={}, environ={"DB_PASSWORD": "top-secret"}))
    return document


def _element(name: str, content: str = "") -> tuple[str, str]:
    return rf"(<(?:\w:)?{name}[^>/]*>)[^<]*(</)", rf"\g<1>{content}\2"


def _attribute(element: str, name: str, content: str = "") -> tuple[str, str]:
    return rf'(<(?:\w:)?{element}\b[^>]*? {name}=)"[^"]*"', rf'\1"{content}"'


@pytest.mark.parametrize("blank", ["", " \n "])
def test_what_is_blank_in_a_feed_is_none(blank: str) -> None:
    elements = ("tags", "availabilityFlag", "timezone", "deltacolumn", "queue", "priority")
    attributes = [("cluster", "partition"), *(("ACL", name) for name in ("owner", "group", "permission"))]
    more = [("feed", "description"), ("schema", "location"), ("schema", "provider")]
    document = _read(
        "clicks",
        *(_element(name, blank) for name in elements),
        *(_attribute(*place, blank) for place in (*attributes, *more)),
    )
    assert document.issues == ()
    feed = document.entity
    assert isinstance(feed, Feed)
    primary = feed.clusters["primary"]
    assert (feed.tags, feed.availability_flag, feed.timezone, primary.partition) == ({}, None, "UTC", None)
    assert feed.acl is not None
    assert (feed.acl.owner, feed.acl.group, feed.acl.permission) == (None, None, "*")
    assert primary.import_ is not None
    assert primary.import_.source.extract is not None
    assert primary.import_.source.extract.delta_column is None
    stage = feed.retention_stage_on("primary")
    assert stage is not None
    assert (stage.queue, stage.priority) == (None, None)


def test_what_is_blank_in_a_process_is_none() -> None:
    elements = ("tags", "timezone", "master", "mode", "name", "class", "spark-opts")
    attributes = [("input", "partition"), *(("workflow", name) for name in ("name", "version", "lib"))]
    document = _read("daily-spark", *map(_element, elements), *(_attribute(*place) for place in attributes))
    assert document.issues == ()
    process = document.entity
    assert isinstance(process, Process)
    workflow = process.workflow
    assert (process.timezone, process.inputs["clicks"].partition) == ("UTC", None)
    assert (workflow.name, workflow.version, workflow.lib) == (None, "1.0", ())
    assert (workflow.master, workflow.deploy_mode, workflow.main_class) == (None, None, None)
    assert (workflow.conf, workflow.submit) == ({}, {})


def test_a_password_can_be_empty_and_a_colo_unnamed() -> None:
    source = _read("orders-db", _element("passwordText"), _attribute("datasource", "colo")).entity
    assert isinstance(source, Datasource)
    assert source.interfaces.write is not None
    assert source.interfaces.write.credential is not None
    assert (source.interfaces.write.credential.password, source.colo) == ("", "default")
    cluster = _read("primary", _attribute("cluster", "colo")).entity
    assert isinstance(cluster, Cluster)
    assert cluster.colo == "default"


@pytest.mark.parametrize("recipients", ["NA", "na, ", ""])
def test_a_notification_to_nobody_is_left_out(recipients: str) -> None:
    document = _read("daily-spark", _attribute("notification", "to", recipients))
    assert isinstance(document.entity, Process)
    assert document.entity.notification is None
    assert "<notification> is left out: it names nobody" in [note.message for note in document.notes]


@pytest.mark.parametrize(
    ("name", "blank"),
    [
        ("clicks", _element("groups")),
        ("clicks", _element("frequency")),
        ("clicks", _element("policy")),
        ("clicks", _attribute("cluster", "delay")),
        ("clicks", _attribute("location", "path")),
        ("daily-spark", _element("pipelines")),
        ("daily-spark", _element("timeout")),
        ("daily-spark", _attribute("input", "optional")),
    ],
)
def test_what_falcon_refuses_when_it_is_blank_is_refused(name: str, blank: tuple[str, str]) -> None:
    document = _read(name, blank)
    assert document.issues
    assert document.entity is None


@pytest.mark.parametrize("groups", ["daily_reports", "a+b", "a,,b", "a-b", "a,a", ","])
def test_a_group_has_letters_and_digits(groups: str) -> None:
    (issue,) = _read("clicks", _element("groups", groups)).issues
    assert issue.code == "label"


def test_several_groups_are_separated_by_commas() -> None:
    feed = _read("clicks", _element("groups", "web,raw2,Été")).entity
    assert isinstance(feed, Feed)
    assert feed.groups == ("web", "raw2", "Été")
