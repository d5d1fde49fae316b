"""Which extensions there are: ours, those of packages, and those that are registered."""

import sys
from pathlib import Path

import pytest
import yaml

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.extensions import jobs, registry
from feed_assets.definitions.extensions.recipes import Given, make_entities
from feed_assets.definitions.verbs.verb_results import VerbResult
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.loading.entity_files import Values
from tests.definitions.extensions.samples import RECIPE, files_of, lay
from tests.definitions.verbs.harness import CLUSTER, EntityHarness

MIRROR = {"source": ["primary:/models"], "target": "primary:/copies", "start": "2013-11-01T00:00Z", "remove": "true"}
FALCON = {
    "jobClusterName": "primary",
    "jobValidityStart": "2013-11-01T00:00Z",
    "sourceDir": "/models",
    "sourceCluster": "primary",
    "targetDir": "/copies",
    "targetCluster": "primary",
    "removeDeletedFiles": "true",
}
VALUES = Values(variables={}, environ={})


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    harness = EntityHarness.at(tmp_path)
    lay(tmp_path, {"entities/cluster.json": b"", "empty.sql": b"select 1", "data/models/a": b"a"})
    (tmp_path / "entities/cluster.yaml").write_text("\n".join(f"{name}: {value}" for name, value in CLUSTER.items()))
    return harness


def submit(harness: EntityHarness, extension: str, **given: object) -> VerbResult:
    result = jobs.submit_job(harness.context(), extension, "nightly", Given(values=given))
    assert isinstance(result, VerbResult)
    return result


def test_row_137_an_extension_of_a_package_is_named_by_its_version(
    harness: EntityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = harness.folder / "site"
    point = b"[feed_assets.extensions]\npacked = packed_shop.tables\n"
    lay(
        site / "packed_shop-1.2.dist-info",
        {"METADATA": b"Name: packed-shop\nVersion: 1.2\n", "entry_points.txt": point},
    )
    lay(site / "packed_shop/tables", files_of(RECIPE.replace("shop-tables", "packed")))
    monkeypatch.syspath_prepend(str(site))
    shown = {each.extension.name: each.extension.made_by for each in registry.list_extensions(harness.context())}
    assert shown.keys() == {"database-export", "database-import", "directory-mirror", "packed"}
    assert shown["packed"] == "packed-shop 1.2"
    submit(harness, "packed", tables=[])
    (job,) = jobs.list_jobs(harness.context())
    assert (job.job.made_by, job.current) == ("packed-shop 1.2", True)
    lay(harness.folder / "recipe", files_of(RECIPE.replace("shop-tables", "packed")))
    with pytest.raises(VerbRefusedError, match="an installed extension has this name"):
        registry.register_extension(harness.context(), harness.folder / "recipe")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(site)])
    assert not jobs.show_job(harness.context(), "nightly").current
    with pytest.raises(VerbRefusedError, match="extension 'packed': there is none of this name"):
        jobs.update_jobs(harness.context(), ["nightly"], None)
    jobs.delete_job(harness.context(), "nightly")
    assert harness.declared(Kind.PROCESS) == ()


def test_a_package_that_cannot_be_imported_is_named(harness: EntityHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    point = b"[feed_assets.extensions]\nbroken = broken_shop\n"
    lay(
        harness.folder / "site/broken-1.dist-info",
        {"METADATA": b"Name: broken\nVersion: 1\n", "entry_points.txt": point},
    )
    monkeypatch.syspath_prepend(str(harness.folder / "site"))
    with pytest.raises(VerbRefusedError, match="its package broken_shop cannot be used: ModuleNotFoundError"):
        registry.find_extension(harness.context(), "broken")
    listed = {each.extension.name: each for each in registry.list_extensions(harness.context())}
    assert (listed["broken"].status, listed["directory-mirror"].status) == ("broken", "enabled")
    assert "its package broken_shop cannot be used" in listed["broken"].extension.recipe.description


def test_what_is_left_out_of_a_recipe_is_said(harness: EntityHarness) -> None:
    lay(harness.folder / "recipe", {**files_of(), "helper.py": b"", "sql/count.sql": b""})
    (told,) = registry.register_extension(harness.context(), harness.folder / "recipe").outcomes
    assert "no part of it: helper.py, sql" in told.notes


def declare_shop(harness: EntityHarness) -> None:
    """A datasource that can be read and written, and is not there."""
    endpoint = {"endpoint": "jdbc:postgresql://nowhere/shop"}
    shop = {
        "kind": "datasource",
        "name": "shop",
        "type": "postgres",
        "driver": {"class": "a.Driver", "jars": ["a.jar"]},
        "interfaces": {"readonly": endpoint, "write": endpoint},
        "credential": {"user": "ann", "password": "x"},
    }
    (harness.folder / "entities/shop.yaml").write_text(yaml.safe_dump(shop))


def test_a_feed_of_each_table_is_imported_as_it_is_asked(harness: EntityHarness) -> None:
    declare_shop(harness)
    tables = [
        {"feed": "orders", "table": "public.orders", "split_by": "id", "mappers": 4},
        {"feed": "items", "table": "i"},
    ]
    given = {"datasource": "shop", "cluster": "primary", "start": "2013-11-01T00:00Z", "tables": tables}
    planned = jobs.validate_job(
        harness.context(), "database-import", "shop", Given(values={**given, "folder": "/shop"})
    )
    assert [each.label for each in planned.difference.entities] == ["feed 'items'", "feed 'orders'"]
    assert [each.message for each in planned.errors] == []
    extension = registry.find_extension(harness.context(), "database-import")
    orders, items = make_entities(extension, given, VALUES, "shop")
    assert isinstance(orders.entity, Feed)
    source = orders.entity.clusters["primary"].import_
    assert source is not None
    assert (source.source.table, source.arguments) == ("public.orders", {"--split-by": "id", "--num-mappers": "4"})
    assert items.content["clusters"]["primary"]["import"]["arguments"] == {}
    assert orders.content["locations"]["data"] == "/orders/${YEAR}-${MONTH}-${DAY}"


def test_a_feed_for_each_table_is_exported_as_it_is_asked(harness: EntityHarness) -> None:
    declare_shop(harness)
    names: dict[str, object] = {"datasource": "shop", "cluster": "primary", "start": "2013-11-01T00:00Z"}
    tables = [
        {"feed": "sums", "table": "sums", "schema": "a int", "load": "replace", "instance_column": "day"},
        {"feed": "prices", "table": "p", "schema": "b int", "load": "allowinsert", "update_key": "b"},
    ]
    given = Given(values={**names, "tables": tables})
    planned = jobs.validate_job(harness.context(), "database-export", "shop", given)
    assert [each.label for each in planned.difference.entities] == ["feed 'prices'", "feed 'sums'"]
    assert [each.message for each in planned.errors] == []
    made = make_entities(registry.find_extension(harness.context(), "database-export"), given.values, VALUES, "shop")
    exports = [each.content["clusters"]["primary"]["export"] for each in made]
    assert exports[0]["target"]["load"] == {"type": "replace", "instance_column": "day"}
    assert exports[1]["target"]["load"] == {"type": "allowinsert"}
    assert [each["arguments"] for each in exports] == [{}, {"--update-key": "b"}]


@pytest.mark.parametrize("given", [MIRROR, FALCON], ids=["ours", "those of Falcon"])
def test_our_mirror_is_the_one_that_mirror_new_writes(harness: EntityHarness, given: dict[str, object]) -> None:
    submit(harness, "directory-mirror", **given)
    (process,) = harness.context().load().bundle.bundle.processes
    mirror = process.workflow.mirror
    assert mirror is not None
    assert (process.order, process.catch_up, process.frequency.render()) == ("LAST_ONLY", "latest", "days(1)")
    assert mirror.removed_files == "remove"
    assert mirror.target.directory == "/copies"
    assert process.retry is not None
    assert process.retry.attempts == 3
