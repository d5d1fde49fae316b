"""What files say of entities and what people say of them, by commands: who has said what, whatever comes first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli import project
from tests.cli.project import must as run
from tests.cli.project import shown
from tests.definitions.verbs.harness import ALL, CLICKS, CLUSTER, COUNTING, COUNTS, changed

SHOP = {
    "kind": "datasource",
    "name": "shop",
    "type": "postgres",
    "interfaces": {"readonly": {"endpoint": "jdbc:postgresql://host/shop"}},
    "driver": {"class": "org.postgresql.Driver", "jars": ["postgresql.jar"]},
    "credential": {"user": "reader", "password_file": "reader.password"},
}
MORE = [
    changed(CLICKS, name=f"more{number}", locations={"data": f"/more{number}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"})
    for number in range(5)
]
COLUMNS = changed(CLICKS, schema="id bigint, country string")
TEN = (CLUSTER, SHOP, COLUMNS, COUNTS, COUNTING, *MORE)
SAID = {"properties": {"tier": "gold"}, "tags": ["public"]}
OF_COLUMN = {"columns": {"country": {"properties": {"standard": "ISO-3166"}}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_STATE", database_url)
    monkeypatch.setenv("FEED_ASSETS_NOW", "2013-11-03T12:00Z")
    project.prepare(tmp_path)
    return tmp_path


def deploy(folder: Path, *documents: Mapping[str, Any]) -> None:
    write(folder, *documents)
    run("apply", "--yes")


def write(folder: Path, *documents: Mapping[str, Any]) -> None:
    (folder / "entities" / "all.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))


def says(document: Mapping[str, Any], **said: Any) -> dict[str, Any]:
    return changed(document, metadata=said)


def path_of(document: Mapping[str, Any]) -> str:
    return f"{document['kind']}/{document['name']}"


def said_of(entity: str) -> dict[str, tuple[str, str]]:
    """Each property or tag in the scope USER: its value, and the channel by which it came."""
    found = shown("metadata", "get", entity, "--scope", "user")["metadata"]
    return {each["name"]: (each["value"], each["origin"]) for each in found}


def deploy_ten(folder: Path, said: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Deploy ten entities that say something else than before; a cluster is changed alone, in safe mode."""
    run("admin", "safemode", "on")
    deploy(folder, says(TEN[0], **said), *(says(each, **before) for each in TEN[1:]))
    run("admin", "safemode", "off")
    deploy(folder, *(says(each, **said) for each in TEN))


def test_a_deploy_replaces_what_earlier_files_said_and_nothing_else(folder: Path) -> None:
    paths, less = [path_of(each) for each in TEN], {"properties": {"tier": "silver"}}
    deploy(folder, *(says(each, **SAID) for each in TEN))
    declared = {"tier": ("gold", "definition"), "public": ("", "definition")}
    assert [said_of(path) for path in paths] == [declared] * len(TEN)

    for path in paths:
        run("metadata", "put", path, "note=mine")
        run("metadata", "tag", path, "seen")
    mine = {"note": ("mine", "person"), "seen": ("", "person")}
    assert [said_of(path) for path in paths] == [declared | mine] * len(TEN)

    deploy_ten(folder, less, SAID)
    assert [said_of(path) for path in paths] == [{"tier": ("silver", "definition")} | mine] * len(TEN)

    deploy_ten(folder, {}, less)
    assert [said_of(path) for path in paths] == [mine] * len(TEN)


def test_what_a_file_says_is_changed_there(folder: Path) -> None:
    deploy(folder, *ALL[:1], says(COLUMNS, **SAID, **OF_COLUMN), *ALL[2:])
    lines = (folder / "entities" / "all.yaml").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "tier: gold" in line)
    refused = run("metadata", "put", "feed/clicks", "tier=lead", code=1)
    assert f"property 'tier' is declared in all.yaml:{at}" in refused.stderr.replace("entities/", "")
    assert "declared in" in run("metadata", "untag", "feed/clicks", "public", code=1).stderr
    at = next(number for number, line in enumerate(lines, 1) if "standard:" in line)
    refused = run("metadata", "remove", "feed/clicks/column/country", "standard", code=1)
    assert f"all.yaml:{at}" in refused.stderr
    assert said_of("feed/clicks")["tier"] == ("gold", "definition")


def test_a_key_that_a_file_claims_is_the_files_and_the_plan_and_the_change_say_what_was_there(folder: Path) -> None:
    deploy(folder, CLUSTER, COLUMNS)
    run("metadata", "put", "feed/clicks", "owner=ann", "--author", "ann")
    run("metadata", "put", "feed/clicks/column/country", "standard=mine", "--author", "bob")
    (folder / "new.yaml").write_text(yaml.safe_dump(says(COLUMNS, properties={"owner": "ops"}, **OF_COLUMN)))
    planned = run("plan", "new.yaml")
    assert "property 'owner' was 'ann', of ann; the file says it now" in planned.output
    assert "property 'standard' was 'mine', of bob; the file says it now" in planned.output

    run("apply", "new.yaml", "--yes")
    assert said_of("feed/clicks") == {"owner": ("ops", "definition")}
    newest = shown("metadata", "history", "feed/clicks")["changes"][0]
    assert newest["origin"] == "definition"
    assert newest["previous"]["USER"]["properties"] == {"owner": "ann"}
    assert "claimed" not in run("plan", "new.yaml").output


def test_a_wrong_name_is_refused_with_its_line_before_anything_changes(folder: Path) -> None:
    deploy(folder, CLUSTER, COLUMNS)
    write(folder, CLUSTER, says(COLUMNS, properties={"a b": "x"}, tags=["ok"]))
    lines = (folder / "entities" / "all.yaml").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "a b" in line)
    refused = run("apply", "--yes", code=1)
    assert f"all.yaml:{at}: feed 'clicks': property 'a b': a name has 1 to 50 letters" in refused.stderr
    assert run("search", "ok").stdout.splitlines()[1:] == []


def test_a_deleted_entity_has_no_metadata_and_begins_anew(folder: Path) -> None:
    deploy(folder, CLUSTER, says(COLUMNS, **SAID, **OF_COLUMN), COUNTS, COUNTING)
    run("metadata", "put", "feed/clicks", "note=mine")
    run("metadata", "put", "feed/clicks/column/id", "note=key")
    run("metadata", "put", "process/counting", "note=kept")
    first = shown("metadata", "get", "feed/clicks")["uid"]
    run("entity", "delete", "process", "counting")
    run("entity", "delete", "feed", "clicks")

    assert shown("search", "mine key gold")["results"] == []
    assert "there is no feed 'clicks'" in run("metadata", "get", "feed/clicks", code=1).stderr
    assert "kept" not in run("search", "kept").stdout
    changes = shown("metadata", "history", "feed/clicks")["changes"]
    assert changes[0]["additions"] == {}
    assert changes[0]["deletions"]["USER"]["properties"] == {"tier": "gold", "note": "mine"}

    deploy(folder, CLUSTER, COLUMNS, COUNTS)
    assert said_of("feed/clicks") == {}
    assert shown("metadata", "get", "feed/clicks")["uid"] != first
