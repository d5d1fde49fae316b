"""Metadata that people write: what is refused, what is recorded, and documents of many changes."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from feed_assets.catalog.commands import copy_metadata, drop_metadata
from feed_assets.catalog.documents import export_metadata, import_metadata
from feed_assets.catalog.editing import (
    get_metadata,
    list_changes,
    remove_metadata,
    update_metadata,
)
from feed_assets.catalog.store import MetadataStore
from feed_assets.context.operation import OperationContext
from feed_assets.entities.errors import EntityNotFoundError, MetadataRefusedError
from feed_assets.entities.metadata import MetadataKind, Scope
from feed_assets.errors import FeedAssetsError
from feed_assets.log.audit import Audit
from feed_assets.log.messages.outbox import Outbox
from feed_assets.receivers import Topic
from feed_assets.setting_sections import MetadataSettings
from tests.context.contexts import context_of
from tests.instances.harness import LifecycleHarness, at, counted_statements, feed

NOW = at("03T12:00")
CLICKS, VIEWS, BOARD = "feed/clicks", "feed/views", "dashboard/hits"
NESTED = "page struct<url: string>"


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    return LifecycleHarness.of(tmp_path, feed("clicks", tags={"owner": "web"}, schema=NESTED), feed("views"))


@pytest.fixture
def context(lifecycle: LifecycleHarness) -> OperationContext:
    return context_of(lifecycle, NOW)


def said(context: OperationContext, path: str) -> dict[str, str]:
    """What the scope USER says: names of tags have a #."""
    found = get_metadata(context, path, Scope.USER).metadata
    return {f"{'#' if each.kind is MetadataKind.TAG else ''}{each.name}": each.value for each in found}


def tables(context: OperationContext) -> tuple[int, int, int]:
    """How many changes, messages and entries of the audit there are."""
    with context.database.read() as connection:
        changes = sum(len(list_changes(context, each.path, 100)) for each in MetadataStore(connection).all())
        return changes, Outbox(connection).count(0, 1, Topic.METADATA), Audit(connection).count(1)


def bring(context: OperationContext, *mutations: dict[str, Any], dry_run: bool = False) -> list[bool]:
    document = json.dumps({"mutations": mutations})
    done = import_metadata(context.by("bob", dry_run=dry_run), "words.json", document)
    return [each.is_change for each in done]


def test_the_statements_of_an_import_do_not_depend_on_how_many_entities_it_names(context: OperationContext) -> None:
    counts = []
    for number in (2, 20):
        named = [{"entity": f"dashboard/{number}-{each}", "create": {"tags": ["seen"]}} for each in range(number)]
        with counted_statements() as statements:
            assert bring(context, *named) == [True] * number
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_a_change_is_recorded_once_everywhere_and_no_change_nowhere(context: OperationContext) -> None:
    before = tables(context)
    update_metadata(context.by("ann"), CLICKS, {"a": "1"}, ["checked"])
    assert [now - then for now, then in zip(tables(context), before, strict=True)] == [1, 1, 1]
    for dry_run in (False, True):
        again = update_metadata(context.by("bob", dry_run=dry_run), CLICKS, {"a": "1"}, ["checked"])
        assert not again.is_change
    done = update_metadata(context.by("bob", dry_run=True), CLICKS, {"a": "2"}, ())
    assert (done.additions, done.deletions) == (
        {"USER": {"properties": {"a": "2"}, "tags": []}},
        {"USER": {"properties": {"a": "1"}, "tags": []}},
    )
    assert remove_metadata(context.by("ann"), CLICKS, names=["b"], kinds=[MetadataKind.TAG]).is_change is False
    assert [now - then for now, then in zip(tables(context), before, strict=True)] == [1, 1, 1]
    assert said(context, CLICKS) == {"a": "1", "owner": "web", "#checked": ""}
    assert len(list_changes(context, CLICKS, 9)) == 2
    (change, described) = list_changes(context, CLICKS, 9, Scope.USER)
    assert (described.additions.keys(), list_changes(context, CLICKS, 1, Scope.SYSTEM)[0].author) == (
        {"USER"},
        "unknown",
    )
    assert (change.author, change.origin.value) == ("ann", "person")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("feed/click", "Did you mean 'clicks'?"),
        ("process/absent", "there is no process 'absent'"),
        ("cluster/absent", "there is no cluster 'absent'"),
        ("datasource/absent", "there is no datasource 'absent'"),
        ("run/absent", "there is no such run"),
        ("feed/clicks/column/pages", "Did you mean 'page' or 'page.url'?"),
        ("feed/clicks/column/page.uri", "Did you mean 'page.url' or"),
        ("feed/clicks/cluster/primary/instance/2013-01-01T00:00Z", "outside the validity"),
        ("feed/clicks/cluster/absent/instance/2013-11-03T00:00Z", "absent"),
        ("column/page", "Write it like feed/NAME/column/COLUMN."),
        ("instance/x", "Write it like feed/NAME/cluster/CLUSTER/instance/TIME."),
        ("Feed/clicks", "the kind 'Feed'"),
        ("feed", "kinds and names in turn"),
        ("", "'': it is not made of kinds and names in turn"),
        ("dashboard/", "kinds and names in turn"),
        ("dashboard//x/y", "printable characters"),
        ("dashboard/a\nb", "printable characters"),
        (f"dashboard/{'a' * 201}", "printable characters"),
    ],
)
def test_what_is_not_there_or_no_path_is_refused_with_the_next_step(
    context: OperationContext, path: str, error: str
) -> None:
    before = tables(context)
    for write in (lambda: update_metadata(context.by("ann"), path, {}, ["x"]), lambda: get_metadata(context, path)):
        with pytest.raises(FeedAssetsError) as caught:
            write()
        assert error in str(caught.value)
    assert tables(context) == before


@pytest.mark.parametrize(
    "path",
    [
        CLICKS,
        "cluster/primary",
        "feed/clicks/column/page.url",
        "feed/views/column/undeclared",
        "feed/clicks/cluster/primary/instance/2013-11-03T05:00Z",
        BOARD,
        "feed/clicks/page/intro",
    ],
)
def test_what_is_declared_or_of_a_kind_of_ones_own_is_described(context: OperationContext, path: str) -> None:
    update_metadata(context.by("ann"), path, {"a": "1"}, ())
    assert said(context, path)["a"] == "1"


def test_an_instance_is_named_by_any_form_of_its_time(context: OperationContext) -> None:
    path = "feed/clicks/cluster/primary/instance/"
    update_metadata(context.by("ann"), f"{path}2013-11-03", {}, ["checked"])
    assert said(context, f"/{path}2013-11-03T00:00Z/") == {"#checked": ""}
    assert [each.author for each in list_changes(context, f"{path}2013-11-03", 9)] == ["ann"]


def test_the_history_of_what_is_gone_stays(lifecycle: LifecycleHarness) -> None:
    update_metadata(context_of(lifecycle, NOW).by("ann"), VIEWS, {}, ["checked"])
    lifecycle.declare(feed("clicks"))
    context = context_of(lifecycle, NOW)
    with pytest.raises(EntityNotFoundError):
        get_metadata(context, VIEWS)
    assert "ann" in [each.author for each in list_changes(context, VIEWS, 9)]


def test_a_kind_of_ones_own_is_there_as_long_as_it_is_described(context: OperationContext) -> None:
    assert said(context, BOARD) == {}
    update_metadata(context.by("ann"), BOARD, {}, ["public"])
    drop_metadata(context.by("ann"), entity=BOARD)
    with context.database.read() as connection:
        assert MetadataStore(connection).find(BOARD) is None
    assert len(list_changes(context, BOARD, 9)) == 2


def test_what_a_file_says_is_changed_there(context: OperationContext) -> None:
    for change in (
        lambda: update_metadata(context.by("ann"), CLICKS, {"owner": "me"}, ()),
        lambda: remove_metadata(context.by("ann"), CLICKS, names=["owner"], kinds=[MetadataKind.PROPERTY]),
        lambda: bring(context, {"entity": CLICKS, "create": {"properties": {"owner": "me"}}}),
    ):
        with pytest.raises(MetadataRefusedError, match="property 'owner' is declared"):
            change()
    update_metadata(context.by("ann"), CLICKS, {"a": "1"}, ["x"])
    drop_metadata(context.by("ann"), entity=CLICKS)
    bring(context, {"entity": CLICKS, "create": {"tags": ["y"]}})
    assert said(context, CLICKS) == {"owner": "web", "#y": ""}


def test_a_copy_leaves_what_the_file_of_the_other_says(context: OperationContext) -> None:
    update_metadata(context.by("ann"), VIEWS, {"owner": "ops", "a": "1"}, ["x"])
    copy_metadata(context.by("ann"), entity=VIEWS, to=CLICKS)
    assert said(context, CLICKS) == {"owner": "web", "a": "1", "#x": ""}
    copy_metadata(context.by("ann"), entity=CLICKS, to=BOARD)
    assert said(context, BOARD) == {"owner": "web", "a": "1", "#x": ""}


def test_an_entity_has_room_for_64_kib_and_what_it_has_can_always_be_removed(context: OperationContext) -> None:
    update_metadata(context.by("ann"), CLICKS, {f"key-{number:02d}": "ä" * 2040 for number in range(16)}, ())
    with pytest.raises(MetadataRefusedError, match=r"65,\d\d\d bytes, more than 65,536"):
        update_metadata(context.by("ann"), CLICKS, {"more": "x" * 300}, ())
    remove_metadata(context.by("ann"), CLICKS, names=["key-00"], kinds=[MetadataKind.PROPERTY])
    update_metadata(context.by("ann"), CLICKS, {"more": "x" * 300}, ())


def test_the_strict_setting_holds_wherever_people_write(lifecycle: LifecycleHarness) -> None:
    update_metadata(context_of(lifecycle, NOW).by("ann"), VIEWS, {"link": "https://wiki"}, ())
    strict = context_of(lifecycle, NOW, metadata=MetadataSettings(strict=True))
    for write in (
        lambda: update_metadata(strict.by("ann"), CLICKS, {"link": "https://wiki"}, ()),
        lambda: copy_metadata(strict.by("ann"), entity=VIEWS, to=CLICKS),
        lambda: bring(strict, {"entity": CLICKS, "update": {"properties": {"link": "https://wiki"}}}),
    ):
        with pytest.raises(MetadataRefusedError, match=r"metadata\.strict"):
            write()
    update_metadata(strict.by("ann"), CLICKS, {"link": "the wiki"}, ())


def test_a_document_is_brought_as_a_whole_or_not_at_all_and_once(context: OperationContext) -> None:
    update_metadata(context.by("ann"), VIEWS, {"old": "1", "kept": "1", "mine": "1"}, ["gone"])
    good = (
        {"entity": CLICKS, "update": {"properties": {"a": "1"}, "tags": ["x", "y"]}},
        {
            "entity": VIEWS,
            "create": {"properties": {"mine": "2", "new": "2"}},
            "keep": {"properties": ["kept"]},
            "preserve": {"properties": ["mine"]},
        },
        {"entity": BOARD, "update": {"tags": [{"name": "seen", "origin": "program"}]}},
        {"entity": CLICKS, "remove": {"tags": ["x"]}},
    )
    before = tables(context)
    with pytest.raises(MetadataRefusedError, match=r"^words\.json: mutations\[4\]: .* no feed 'absent'"):
        bring(context, *good, {"entity": "feed/absent", "drop": True})
    with pytest.raises(MetadataRefusedError, match=r"^words\.json: mutations\[1\]: feed/views: "):
        bring(context, good[0], {"entity": VIEWS, "update": {"properties": {"Tags": "1"}}}, *good[1:])
    assert bring(context, *good, dry_run=True) == [True, True, True]
    assert (tables(context), said(context, BOARD)) == (before, {})
    assert bring(context, *good) == [True, True, True]
    assert [now - then for now, then in zip(tables(context), before, strict=True)] == [3, 3, 3]
    assert said(context, CLICKS) == {"a": "1", "owner": "web", "#y": ""}
    assert said(context, VIEWS) == {"kept": "1", "mine": "1", "new": "2"}
    assert bring(context, *good) == [False, False, False]
    bring(context, {"entity": VIEWS, "remove": {"properties": "*"}}, {"entity": BOARD, "drop": True})
    assert (said(context, VIEWS), said(context, BOARD)) == ({}, {})


def test_what_is_exported_can_be_imported_where_it_changes_nothing_and_elsewhere(
    context: OperationContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    update_metadata(context.by("ann"), "feed/clicks/column/page.url", {"a": "1"}, ["x"])
    bring(context, {"entity": BOARD, "update": {"properties": {"b": {"value": "2", "origin": "program"}}}})
    exported = export_metadata(context)
    assert [each["entity"] for each in exported] == [BOARD, CLICKS, "feed/clicks/column/page.url"]
    assert exported[0]["update"] == {"properties": {"b": {"value": "2", "origin": "program"}}}
    assert exported[1]["update"] == {"properties": {"owner": {"value": "web", "origin": "definition"}}}
    assert bring(context, *exported) == [False, False, False]
    assert export_metadata(context, CLICKS) == exported[1:]
    assert export_metadata(context, kinds=["column"]) == exported[2:]
    folder = tmp_path_factory.mktemp("elsewhere")
    elsewhere = context_of(LifecycleHarness.of(folder, feed("clicks", tags={"owner": "web"}, schema=NESTED)), NOW)
    assert bring(elsewhere, *exported) == [True, False, True]
    assert export_metadata(elsewhere) == exported


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON"),
        ("null", "words.json: it is neither text nor an object"),
        ("{}", "mutations: it is missing"),
        ('{"mutations": {}}', "mutations: it is not a list"),
        ('{"version": 1, "mutations": []}', "version: it is not a version"),
        ('{"mutations": [{"entity": "feed/clicks"}]}', "mutations[0]: it has not one of update, create"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {"tags": ["a"]}, "drop": true}]}', "has not one of"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {}}]}', "neither properties nor tags"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {"tags": "a"}}]}', "update.tags: it is not a list"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {"tags": [1]}}]}', "update.tags[0]: it is neither text"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {"properties": {"a": 1}}}]}', "properties.a: it is nei"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {"properties": null}}]}', "properties: it is not an obj"),
        ('{"mutations": [{"entity": "feed/clicks", "update": {"scope": "SYSTEM"}}]}', "scope: there is no such key"),
        ('{"mutations": [{"entity": "feed/clicks", "remove": {"tags": "all"}}]}', "neither a list of names nor *"),
        ('{"mutations": [{"entity": "feed/clicks", "drop": true, "keep": {"tags": ["a"]}}]}', "belong to a create"),
        (
            '{"mutations": [{"entity": "feed/clicks", "create": {"tags": ["a"]}, "keep": {"tags": "*"}}]}',
            "keep and preserve have names",
        ),
        (
            '{"mutations": [{"entity": "feed/clicks", "update": {"tags": [{"name": "a", "origin": "system"}]}}]}',
            "what this program says is not imported",
        ),
        (
            '{"mutations": [{"entity": "feed/clicks", "update": {"tags": [{"name": "a", "origin": "me"}]}}]}',
            "it is not one of person, program and definition",
        ),
    ],
)
def test_what_is_no_document_is_refused_with_the_place_and_an_example(
    context: OperationContext, text: str, reason: str
) -> None:
    with pytest.raises(MetadataRefusedError) as caught:
        import_metadata(context.by("ann"), "words.json", text)
    assert reason in str(caught.value)
    assert 'Write it like {"mutations": ' in str(caught.value)


@pytest.fixture
def writers(database_url: str, tmp_path: Path) -> Iterator[LifecycleHarness]:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), state=database_url)
    yield lifecycle
    lifecycle.database.close()


@pytest.mark.both_databases
def test_of_ten_writers_at_once_none_is_lost(writers: LifecycleHarness) -> None:
    def write(number: int) -> None:
        context = context_of(writers, NOW)
        update_metadata(context.by(f"writer {number}"), CLICKS, {f"key-{number}": "1"}, [f"tag-{number}"])

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(write, range(10))) == [None] * 10
    context = context_of(writers, NOW)
    names = [f"{name}-{number}" for name in ("key", "#tag") for number in range(10)]
    assert sorted(said(context, CLICKS)) == sorted(names)
    described = 2  # the feed and its cluster
    assert tables(context) == (10 + described, 10 + described, 10)
