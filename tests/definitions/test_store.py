from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.definitions.edits import Put, Remove, read_documents
from feed_assets.definitions.errors import DefinitionsChangedError, DefinitionStoreError
from feed_assets.definitions.folder import DefinitionFolder
from feed_assets.definitions.lists.lookup import FeedLookup
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.graph import DependencyGraph
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import ChangeState, DocumentFormat
from feed_assets.sql.database import Database
from tests.definitions.harness import NO_VALUES, NOW, DefinitionsHarness, feed_text, put, remove


def test_a_new_entity_gets_a_file_of_its_own(harness: DefinitionsHarness) -> None:
    change = harness.change(put("clicks", comment="ours"))
    assert change is not None
    assert (change.number, change.state) == (1, ChangeState.DONE)
    assert harness.files() == {"feed/clicks.yaml": feed_text("clicks", comment="ours")}
    assert harness.hours() == {"clicks": 1}
    assert harness.problems() == []


def test_an_entity_is_changed_where_it_stands(harness: DefinitionsHarness) -> None:
    head, middle = "# all of ours\n---\n", "---  # the second\n"
    harness.write("mine.yaml", head + feed_text("a") + middle + feed_text("b") + "# the end\n")
    harness.change(put("a", 2))
    assert harness.files() == {"mine.yaml": head + feed_text("a", 2) + middle + feed_text("b") + "# the end\n"}
    harness.change(remove("b"))
    assert harness.files() == {"mine.yaml": head + feed_text("a", 2)}
    assert harness.hours() == {"a": 2}


def test_every_version_is_recorded_with_author_time_and_origin(harness: DefinitionsHarness) -> None:
    harness.change(put("clicks", 1), author="ann")
    harness.change(put("clicks", 2), author="bob", now=NOW + timedelta(days=1))
    harness.change(remove("clicks"), author="cid")
    versions = harness.history("clicks")
    assert [(each.version, each.action.value, each.author) for each in versions] == [
        (1, "SUBMITTED", "ann"),
        (2, "UPDATED", "bob"),
        (3, "DELETED", "cid"),
    ]
    assert (versions[1].recorded_at, versions[1].origin) == (NOW + timedelta(days=1), "a test")
    assert (versions[1].text, versions[2].text) == (feed_text("clicks", 2), None)


def test_numbers_of_versions_go_on_after_a_deletion(harness: DefinitionsHarness) -> None:
    for edit in (put("clicks"), remove("clicks"), put("clicks")):
        harness.change(edit)
    assert harness.actions("clicks") == ["SUBMITTED", "DELETED", "SUBMITTED"]
    assert [each.version for each in harness.history("clicks")] == [1, 2, 3]


def test_what_is_so_already_is_no_change(harness: DefinitionsHarness) -> None:
    harness.change(put("clicks"))
    revision = harness.store.load(NOW).revision
    assert harness.change(put("clicks")) is None
    assert harness.change(remove("orders")) is None
    assert harness.change() is None
    assert (harness.actions("clicks"), harness.store.load(NOW).revision) == (["SUBMITTED"], revision)


def test_the_revision_grows_with_every_change(harness: DefinitionsHarness) -> None:
    revisions = [harness.store.load(NOW).revision]
    for edit in (put("clicks"), put("clicks", 2), remove("clicks")):
        harness.change(edit)
        revisions.append(harness.store.load(NOW).revision)
    assert revisions == sorted(set(revisions))


def test_a_comment_is_written_and_makes_no_version(harness: DefinitionsHarness) -> None:
    harness.change(put("clicks"))
    assert harness.change(put("clicks", comment="better")) is not None
    assert harness.files() == {"feed/clicks.yaml": feed_text("clicks", comment="better")}
    assert harness.actions("clicks") == ["SUBMITTED"]
    assert harness.problems() == []


def test_several_edits_are_one_change(harness: DefinitionsHarness) -> None:
    harness.change(put("a"), put("b"))
    change = harness.change(put("a", 2), remove("b"), put("c"))
    assert change is not None
    assert {each.name: each.action.value for each in change.versions} == {
        "a": "UPDATED",
        "b": "DELETED",
        "c": "SUBMITTED",
    }
    assert {version.change_id for name in "abc" for version in harness.history(name)[-1:]} == {change.change_id}
    assert harness.hours() == {"a": 2, "c": 1}


def test_a_check_that_refuses_leaves_everything_as_it_was(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    seen: list[tuple[set[str], set[str]]] = []

    def refuse(before: LoadedBundle, after: LoadedBundle) -> None:
        seen.append(({each.name for each in before.bundle.entities}, {each.name for each in after.bundle.entities}))
        raise DefinitionsError(location="here", reason="no")

    with pytest.raises(DefinitionsError, match="no"):
        harness.change(put("b"), remove("a"), check=refuse)

    assert seen == [({"a"}, {"b"})]
    assert harness.hours() == {"a": 1}
    with harness.database.read() as connection:
        assert len(Changes(connection).all()) == 1


def test_a_preview_changes_nothing(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    preview = harness.store.preview([put("a", 2), put("b")], now=NOW)
    assert {each.name for each in preview.after.bundle.bundle.feeds} == {"a", "b"}
    assert [each.file for each in preview.files] == ["feed/a.yaml", "feed/b.yaml"]
    assert preview.after.documents["feed", "a"].digest != preview.before.documents["feed", "a"].digest
    assert harness.hours() == {"a": 1}
    assert harness.problems() == []


def test_an_entity_that_cannot_be_read_is_refused_with_its_issues(harness: DefinitionsHarness) -> None:
    text = feed_text("clicks").replace("hours(1)", "hours(0)")
    with pytest.raises(DefinitionsError, match="is not a frequency") as refused:
        harness.change(Put(text=text, source="clicks.yaml"))
    assert [issue.code for issue in refused.value.issues] == ["frequency"]  # type: ignore[attr-defined]
    assert harness.files() == {}


@pytest.mark.parametrize("text", ["name: clicks\n", "kind: fed\nname: x\n", "kind: feed\n", "just text", "a: ["])
def test_a_text_that_does_not_say_what_it_declares_is_refused(harness: DefinitionsHarness, text: str) -> None:
    with pytest.raises(DefinitionsError, match="does not declare an entity"):
        harness.change(Put(text=text, source="clicks.yaml"))


def test_a_broken_entity_is_corrected_where_it_stands(harness: DefinitionsHarness) -> None:
    harness.write("mine.yaml", feed_text("a") + "---\n" + feed_text("b").replace("hours(1)", "hours(0)"))
    assert harness.hours() == {"a": 1}
    harness.change(put("b", 3))
    assert (harness.hours(), list(harness.files())) == ({"a": 1, "b": 3}, ["mine.yaml"])


def test_an_entity_that_is_declared_twice_is_not_touched(harness: DefinitionsHarness) -> None:
    harness.write("one.yaml", feed_text("a"))
    harness.write("two.yaml", feed_text("a", 2))
    edits: list[Put | Remove] = [put("a", 3), remove("a")]
    for edit in edits:
        with pytest.raises(DefinitionStoreError, match=r"declared 2 times, in one\.yaml and two\.yaml"):
            harness.change(edit)


def test_nothing_is_put_into_a_file_that_cannot_be_read(harness: DefinitionsHarness) -> None:
    harness.write("feed/a.yaml", "kind: feed\nname: [\n")
    with pytest.raises(DefinitionsError, match=r"feed/a\.yaml:3: the file is not YAML"):
        harness.change(put("a"))
    assert harness.files() == {"feed/a.yaml": "kind: feed\nname: [\n"}


def test_files_that_others_edit_meanwhile_are_not_overwritten(harness: DefinitionsHarness) -> None:
    harness.change(put("a"), put("b"))
    theirs = feed_text("a", 9)

    def edit_meanwhile(_before: LoadedBundle, _after: LoadedBundle) -> None:
        harness.write("feed/a.yaml", theirs)

    with pytest.raises(DefinitionsChangedError, match=r"feed/a\.yaml changed"):
        harness.change(put("a", 2), put("b", 2), check=edit_meanwhile)
    assert harness.hours() == {"a": 9, "b": 1}


def test_row_125_what_is_declared_outlives_a_restart_and_a_broken_file_keeps_nothing_else_out(
    harness: DefinitionsHarness,
) -> None:
    harness.change(put("a"), put("b"), put("c"))
    harness.write("feed/b.yaml", "kind: feed\nname: [\n")
    (Path(harness.location) / "feed/c.yaml").write_bytes(b"\xff\xfe")
    (Path(harness.location) / "feed/d.yaml").symlink_to("nowhere.yaml")

    loaded = harness.reopened().load(NOW)

    assert [feed.name for feed in loaded.bundle.bundle.feeds] == ["a"]
    assert [(Path(each.file).name, [issue.code for issue in each.issues]) for each in loaded.quarantined] == [
        ("b.yaml", ["yaml-syntax"]),
        ("c.yaml", ["file-encoding"]),
        ("d.yaml", ["file-unreadable"]),
    ]
    assert harness.store.record_found(NOW) == []  # what stood there is not taken for deleted
    harness.write("feed/b.yaml", feed_text("b"))
    harness.write("feed/c.yaml", feed_text("c", 5))
    assert harness.hours() == {"a": 1, "b": 1, "c": 5}


def test_row_126_update_and_delete_leave_every_definition_with_its_time(harness: DefinitionsHarness) -> None:
    days = [NOW + timedelta(days=n) for n in range(4)]
    edits: list[Put | Remove] = [put("a", 1), put("a", 2), remove("a"), put("a", 3)]
    for day, edit in zip(days, edits, strict=True):
        harness.change(edit, now=day)
    assert [(each.recorded_at, each.text) for each in harness.history("a")] == [
        (days[0], feed_text("a", 1)),
        (days[1], feed_text("a", 2)),
        (days[2], None),
        (days[3], feed_text("a", 3)),
    ]


def test_row_127_graph_lookup_and_groups_follow_a_change_of_another_process(harness: DefinitionsHarness) -> None:
    cluster = Put(text="kind: cluster\nname: primary\nstorage: file:///data\n")
    reader = harness.reopened()

    def seen() -> tuple[set[str], list[str], set[str]]:
        bundle = reader.load(NOW).bundle.bundle
        dependents = DependencyGraph.of(bundle).dependents_of([("cluster", "primary")])
        found = FeedLookup(bundle).find("/data/b/2015/01/01/00")
        groups = {group for feed in bundle.feeds for group in feed.groups}
        return {name for _, name in dependents}, [each.feed for each in found], groups

    harness.change(cluster, put("a"))
    assert seen() == ({"a"}, [], set())
    harness.change(Put(text=feed_text("b") + "groups: [web]\n"))
    assert seen() == ({"a", "b"}, ["b"], {"web"})
    harness.write("feed/a.yaml", feed_text("a").replace("/a/", "/b/"))
    assert seen() == ({"a", "b"}, ["a", "b"], {"web"})
    harness.change(remove("a"), remove("b"))
    assert seen() == (set(), [], set())


def test_values_from_outside_are_neither_recorded_nor_a_change(database: Database, tmp_path: Path) -> None:
    text = "kind: cluster\nname: primary\nstorage: ${STORAGE}\nstorage_options: {secret: '${env:SECRET}'}\n"

    def opened(storage: str, secret: str) -> DefinitionsHarness:
        values = Values(variables={"STORAGE": storage}, environ={"SECRET": secret})
        return DefinitionsHarness(database=database, location=str(tmp_path / "entities"), values=values)

    one, other = opened("file:///one", "swordfish"), opened("file:///other", "sesame")
    one.change(Put(text=text))
    assert one.store.load(NOW).bundle.bundle.clusters[0].storage == "file:///one"
    assert other.store.load(NOW).bundle.bundle.clusters[0].storage == "file:///other"
    assert other.store.record_found(NOW) == []
    (version,) = one.history("primary", "cluster")
    assert version.text == text
    assert (one.problems(), other.problems()) == ([], [])


def test_another_value_of_a_reference_is_seen_though_no_file_has_changed(database: Database, tmp_path: Path) -> None:
    environ = {"PLACE": "file:///one"}
    values = Values(variables={}, environ=environ)
    harness = DefinitionsHarness(database=database, location=str(tmp_path / "entities"), values=values)
    harness.change(Put(text="kind: cluster\nname: primary\nstorage: ${env:PLACE}\n"))
    seen = [harness.store.load(NOW).bundle.bundle.clusters[0].storage]
    environ["PLACE"] = "file:///other"
    seen.append(harness.store.load(NOW).bundle.bundle.clusters[0].storage)
    assert seen == ["file:///one", "file:///other"]


def test_who_reads_or_plans_waits_for_no_turn_while_no_change_is_being_made(
    harness: DefinitionsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.change(put("a"))

    def refuse(_: Database) -> None:
        raise AssertionError("it takes a turn")

    monkeypatch.setattr(Database, "changing_definitions", refuse)
    preview = harness.store.preview([put("b")], now=NOW)
    assert (harness.hours(), [each.name for each in preview.after.bundle.bundle.feeds]) == ({"a": 1}, ["a", "b"])


def test_a_reference_that_changes_is_a_change(database: Database, tmp_path: Path) -> None:
    values = Values(variables={"A": "/x", "B": "/x"}, environ={})
    harness = DefinitionsHarness(database=database, location=str(tmp_path / "entities"), values=values)
    for name in "AB":
        harness.change(Put(text=f"kind: cluster\nname: primary\nstorage: file://${{{name}}}\n"))
    assert harness.actions("primary", "cluster") == ["SUBMITTED", "UPDATED"]


def test_a_single_file_holds_all_entities(database: Database, tmp_path: Path) -> None:
    harness = DefinitionsHarness(database=database, location=str(tmp_path / "all.yaml"))
    harness.change(put("a"), put("b"))
    harness.change(put("c"), remove("a"))
    assert (tmp_path / "all.yaml").read_text() == "---\n" + feed_text("b") + "---\n" + feed_text("c")
    with pytest.raises(DefinitionStoreError, match="are in the file"):
        harness.change(Put(text=XML, format=DocumentFormat.XML))
    harness.change(remove("b"), remove("c"))
    assert not (tmp_path / "all.yaml").exists()
    assert harness.hours() == {}


def test_an_entity_that_is_put_in_as_xml_moves_to_a_file_of_its_own(harness: DefinitionsHarness) -> None:
    harness.change(put("a"), put("b"))
    harness.change(Put(text=XML, format=DocumentFormat.XML))
    assert list(harness.files()) == ["feed/a.xml", "feed/b.yaml"]
    assert harness.files()["feed/a.xml"] == XML
    harness.change(put("a", 2))
    assert [each.format.value for each in harness.history("a")] == ["yaml", "xml", "yaml"]
    assert list(harness.files()) == ["feed/a.yaml", "feed/b.yaml"]
    assert harness.problems() == []


XML = """<?xml version="1.0"?>
<feed name="a" xmlns="uri:falcon:feed:0.1">
  <frequency>hours(1)</frequency>
  <timezone>UTC</timezone>
  <clusters>
    <cluster name="primary" type="source">
      <validity start="2015-01-01T00:00Z" end="2099-01-01T00:00Z"/>
      <retention limit="days(2)" action="delete"/>
    </cluster>
  </clusters>
  <locations><location type="data" path="/a/${YEAR}/${MONTH}/${DAY}/${HOUR}"/></locations>
  <ACL owner="me" group="users" permission="0755"/>
  <schema location="/none" provider="none"/>
</feed>
"""


def test_a_file_of_a_user_is_taken_apart_into_edits(harness: DefinitionsHarness) -> None:
    content = "# ours\n---\n" + feed_text("a") + "---\n# nothing\n---\n" + feed_text("b", 2)
    documents = read_documents([EntityFile(name="ours.yaml", content=content.encode())], NO_VALUES)
    harness.change(*(edit for edit, _ in documents.values()))
    assert harness.files() == {"feed/a.yaml": feed_text("a"), "feed/b.yaml": feed_text("b", 2)}


def test_a_store_works_on_every_kind_of_place(database: Database, folder: DefinitionFolder) -> None:
    harness = DefinitionsHarness(database=database, location=folder.location)
    harness.change(put("a"), put("b"))
    harness.change(put("a", 2), remove("b"), put("c"))
    assert harness.hours() == {"a": 2, "c": 1}
    assert harness.problems() == []
    harness.change(remove("a"), remove("c"))
    assert harness.hours() == {}
    harness.change(put("d"))
    assert {feed.name for feed in harness.reopened().load(NOW).bundle.bundle.feeds} == {"d"}
    assert harness.problems() == []


def test_a_removed_entity_does_not_leave_what_it_was_not(harness: DefinitionsHarness) -> None:
    harness.change(put("a"), put("b"))
    harness.change(Remove(key=("process", "a")), remove("b"))
    assert harness.hours() == {"a": 1}
