from pathlib import Path

import pytest

from feed_assets.context.errors import SafeModeError
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.definitions.folder import find_entity
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.changes import update_cluster_dependents, with_version
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.definitions.verbs.verb_results import VerbOutcome
from feed_assets.entities.bundle import entity_digest
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.log.definitions.records import DocumentFormat
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.releases.store import Releases
from tests.definitions.verbs.harness import ALL, CLUSTER, COUNTING, EntityHarness, changed, file_of
from tests.instances.harness import at

VALUES = Values(variables={"DATA": "/data"}, environ={})
BLOCK = """\
kind: feed  # what people click
name: clicks
frequency: hours(1)
locations: {data: "/clicks/${YEAR}-${MONTH}-${DAY}-${HOUR}"}
clusters:
  # the first one
  primary:
    validity: {start: 2013-11-01T00:00Z}  # for ever
  second: {validity: {start: 2013-11-01T00:00Z}}
"""


def _with(text: str, cluster: str, version: int) -> str:
    return with_version(text, DocumentFormat.YAML, ("clusters", cluster), version, VALUES)


def test_a_version_is_put_into_a_block_or_into_braces_and_nothing_else_changes() -> None:
    assert _with(BLOCK, "primary", 2) == BLOCK.replace("    validity", "    version: 2\n    validity", 1)
    assert _with(BLOCK, "second", 2) == BLOCK.replace("second: {", "second: {version: 2, ")
    both = _with(_with(BLOCK, "primary", 2), "second", 3)
    assert _with(both, "primary", 5) == both.replace("version: 2", "version: 5")
    assert with_version(BLOCK, DocumentFormat.YAML, (), 4, VALUES) == BLOCK.replace(
        "name: clicks", "version: 4\nname: clicks"
    )


def test_a_cluster_in_braces_gets_its_version_there() -> None:
    text = "{kind: cluster, name: primary, storage: 'file://${DATA}'}  # all on one line\n"
    assert with_version(text, DocumentFormat.YAML, (), 7, VALUES) == text.replace("name:", "version: 7, name:")


@pytest.mark.parametrize(
    "text",
    [
        "clusters: {primary: &p {validity: {start: 2013-11-01T00:00Z}}, second: *p}\n",
        "clusters:\n  primary: &p\n    validity: {start: 2013-11-01T00:00Z}\n  second: *p\n",
    ],
)
def test_what_cannot_be_edited_alone_is_written_anew(text: str) -> None:
    document = BLOCK.split("clusters:")[0] + text
    entity = find_entity(document, DocumentFormat.YAML, VALUES)
    edited = find_entity(_with(document, "second", 2), DocumentFormat.YAML, VALUES)
    assert isinstance(entity, Feed)
    assert isinstance(edited, Feed)
    assert {name: entry.version for name, entry in edited.clusters.items()} == {"primary": 0, "second": 2}
    assert _with(_with(document, "second", 2), "second", 0) != document
    assert entity_digest(edited) != entity_digest(entity)


def test_an_xml_document_gets_the_attribute() -> None:
    entity = find_entity(BLOCK, DocumentFormat.YAML, VALUES)
    assert isinstance(entity, Feed)
    text = render_falcon(entity)
    edited = with_version(text, DocumentFormat.XML, ("clusters", "second"), 3, VALUES)
    found = find_entity(edited, DocumentFormat.XML, VALUES)
    assert isinstance(found, Feed)
    assert {name: entry.version for name, entry in found.clusters.items()} == {"primary": 0, "second": 3}
    (line,) = [line for line in edited.splitlines() if line not in text.splitlines()]
    assert 'version="3"' in line
    again = with_version(edited, DocumentFormat.XML, ("clusters", "second"), 4, VALUES)
    assert again == edited.replace('version="3"', 'version="4"')


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    harness = EntityHarness.at(tmp_path)
    entity_changes.submit(harness.context(), [file_of(*ALL)], and_schedule=True)
    harness.tick()
    harness.put(ProcessInstanceStatus.SUCCEEDED, at("01"))
    return harness


OTHER = changed(CLUSTER, properties={"queue": "fast"})


def switch(harness: EntityHarness, *, is_on: bool) -> None:
    set_safe_mode(harness.database, is_on=is_on, author="root", now=harness.now)


def effective(harness: EntityHarness) -> list[str]:
    with harness.database.read() as connection:
        return [f"{row.effective_from:%dT%H}" for row in Releases(connection).of("counting", "primary")]


def versions(context: EntityContext) -> dict[str, int]:
    bundle = context.store.load(context.now).bundle.bundle
    entries = {entity.name: entity.clusters["primary"].version for entity in (*bundle.feeds, *bundle.processes)}
    return {"primary": bundle.get_cluster("primary").version, **entries}


def test_row_105_a_cluster_is_updated_in_safe_mode_only_and_its_dependents_follow_afterwards(
    harness: EntityHarness,
) -> None:
    with pytest.raises(SafeModeError, match="update of a cluster: it is only allowed during safe mode"):
        entity_changes.update(harness.context(), [file_of(OTHER)])
    switch(harness, is_on=True)
    result = entity_changes.update(harness.context(), [file_of(OTHER)])
    assert result.outcomes[0].notes == (
        "its version is 1; update-cluster-dependents applies it to feeds and processes",
    )
    assert versions(harness.context()) == {"primary": 1, "clicks": 0, "counts": 0, "counting": 0}
    harness.tick()
    assert effective(harness) == ["01T00"]
    switch(harness, is_on=False)
    followed = update_cluster_dependents(harness.context(), "primary")
    assert [each.name for each in followed.outcomes] == ["clicks", "counts", "counting"]
    assert versions(harness.context()) == {"primary": 1, "clicks": 1, "counts": 1, "counting": 1}
    assert effective(harness) == ["01T00", "03T13"]
    again = update_cluster_dependents(harness.context(), "primary")
    assert [each.outcome for each in again.outcomes] == [VerbOutcome.UNCHANGED]


def test_row_105_the_version_stays_where_nothing_that_is_seen_changes(harness: EntityHarness) -> None:
    switch(harness, is_on=True)
    entity_changes.update(harness.context(), [file_of(changed(CLUSTER, description="in New York"))])
    assert versions(harness.context())["primary"] == 0
    entity_changes.update(harness.context(), [file_of(OTHER)])
    entity_changes.update(harness.context(), [file_of(changed(OTHER, tags={"a": "b"}))])
    assert versions(harness.context())["primary"] == 1
    entity_changes.update(harness.context(), [file_of(changed(OTHER, colo="nyc"))])
    assert versions(harness.context())["primary"] == 2


def test_row_105_a_dry_run_writes_no_versions(harness: EntityHarness) -> None:
    switch(harness, is_on=True)
    entity_changes.update(harness.context(), [file_of(OTHER)])
    switch(harness, is_on=False)
    dry = update_cluster_dependents(harness.context(dry_run=True), "primary")
    assert [each.outcome for each in dry.outcomes] == [VerbOutcome.UPDATED] * 3
    assert versions(harness.context())["counting"] == 0


def test_comments_in_the_files_of_dependents_stay(harness: EntityHarness) -> None:
    written = file_of(COUNTING).content.decode().replace("parallel", "parallel") + "# kept by hand\n"
    entity_changes.update(
        harness.context(), [EntityFile(name="c.yaml", content=("parallel: 2  # two\n" + written).encode())]
    )
    switch(harness, is_on=True)
    entity_changes.update(harness.context(), [file_of(OTHER)])
    switch(harness, is_on=False)
    update_cluster_dependents(harness.context(), "primary")
    text = harness.context().load().documents[Kind.PROCESS, "counting"].text
    assert "# two" in text
    assert "# kept by hand" in text
