"""What a recipe makes of what is given to it, and what is said of mistakes in either."""

from typing import Any

import pytest

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.extensions.recipes import Given, check_given, make_entities, read_given, read_recipe
from feed_assets.definitions.extensions.records import Extension
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.feed import Feed
from feed_assets.loading.entity_files import EntityFile, Values
from tests.definitions.extensions.samples import FEEDS, RECIPE, TABLES, files_of

VALUES = Values(variables={}, environ={"OWNER": "ann"})
BUILD = """
from feed_assets.entities.feed import Feed

def build(parameters):
    wanted = [each["name"] for each in parameters["tables"]]
    place = {"data": "/x/${YEAR}-${MONTH}-${DAY}"}
    start = {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}}
    yield {"kind": "feed", "name": wanted[0], "frequency": "days(1)", "locations": place, "clusters": start}
    named = {"name": parameters["job"], "frequency": "days(1)"}
    yield Feed.model_validate({**named, "locations": place, "clusters": start})
"""


def file(name: str, text: str) -> EntityFile:
    return EntityFile(name=name, content=text.encode(errors="surrogateescape"))


def extension(files: dict[str, bytes]) -> Extension:
    recipe = read_recipe(files, "shop")
    return Extension(recipe=recipe, made_by="sha256:1", is_enabled=True, files=files)


def made(files: dict[str, bytes], **given: object) -> list[dict[str, Any]]:
    found = extension(files)
    parameters = check_given(found.recipe, Given(values={"tables": TABLES[:1], **given}), "nightly")
    return [dict(each.content) for each in make_entities(found, parameters, VALUES, "nightly")]


def issues(error: pytest.ExceptionInfo[DefinitionsError]) -> list[str]:
    return [each.render() for each in error.value.issues]


def test_a_document_is_made_once_an_entry_and_values_keep_their_types() -> None:
    feed, process = made(files_of())
    assert (feed["name"], feed["frequency"]) == ("nightly-orders", "hours(1)")
    assert list(feed["clusters"]) == ["primary"]
    assert "description" not in feed, "what is not given is left out"
    assert process["parallel"] == 2
    assert [each["name"] for each in made(files_of(), tables=TABLES)][:-1] == [
        f"nightly-{each['name']}" for each in TABLES
    ]


@pytest.mark.parametrize("text", ["a: b\n- c", "${item.name}", "{x: 1}", "# no comment", "${YEAR}"])
def test_a_value_is_never_read_as_yaml_nor_filled_again(text: str) -> None:
    assert made(files_of(), owner=text)[0]["description"] == text


def test_a_part_of_an_entry_may_be_missing_if_it_is_said_so() -> None:
    feeds = FEEDS.replace("format: csv", "format: ${item.format?}")
    assert "format" not in made(files_of(feeds=feeds))[0]
    assert made(files_of(feeds=feeds), tables=[{**TABLES[0], "format": "json"}])[0]["format"] == "json"


def test_a_dollar_before_a_reference_leaves_it() -> None:
    feeds = FEEDS.replace("description: ${param.owner}", "description: $${param.owner}")
    assert made(files_of(feeds=feeds))[0]["description"] == "${param.owner}"


def test_a_reference_to_the_environment_stays_and_is_checked_with_its_value() -> None:
    assert made(files_of(), owner="${env:OWNER}")[0]["description"] == "${env:OWNER}"
    with pytest.raises(DefinitionsError) as error:
        made(files_of(), owner="${env:NOBODY}")
    assert "shop-tables/entities/feeds.yaml:5: feed 'nightly-orders': ${env:NOBODY} has no value" in issues(error)[0]


def test_the_names_of_falcon_come_from_lines_and_all_other_values_from_yaml() -> None:
    recipe = read_recipe(files_of(), "shop")
    lines = read_given([file("a.properties", '# tables\ntables = [{"name": "a", "hours": 2}]\nparallel=3\n')], {})
    assert check_given(recipe, lines, "nightly") == {"tables": [{"name": "a", "hours": 2}], "parallel": 3}
    both = read_given([file("a.yaml", "tables: []\nowner: ann\n")], {"owner": "bob"})
    assert check_given(recipe, both, "nightly") == {"tables": [], "owner": "bob"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tabels: []", "a.yaml:1: extension 'shop-tables' has no parameter 'tabels'. Did you mean 'tables'?"),
        ("tables: orders", "a.yaml:1: parameter 'tables' is of type array, not 'orders'."),
        ("tables: []\nparallel: many", "a.yaml:2: parameter 'parallel' is of type integer, not 'many'."),
        ("tables: []\nparallel: true", "a.yaml:2: parameter 'parallel' is of type integer, not true."),
        ("owner: ann", "a.yaml:1: parameter 'tables' is missing."),
        (
            "tables:\n- name: a\n  password: x",
            "a.yaml:3: tables.0.password would stand as it is in the file of the job.",
        ),
        ("tables: [", "a.yaml:2: the file is not YAML from here on"),
        ("\n" * 50 + "tables: {}", "a.yaml:51: parameter 'tables' is of type array, not a map."),
        ("tables: []\nowner: \udcff", "a.yaml:2: the file is not UTF-8 text"),
    ],
)
def test_what_is_given_wrongly_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(DefinitionsError) as error:
        check_given(read_recipe(files_of(), "shop"), read_given([file("a.yaml", text)], {}), "nightly")
    assert any(each.startswith(said) for each in issues(error)), issues(error)
    assert "password: x" not in str(error.value)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("${item.hours}", "${item.hour}", "feeds.yaml:6: ${item.hour} has no value. Did you mean 'hours'?"),
        ("${param.cluster}:", "${param.custer}:", "feeds.yaml:10: ${param.custer} has no value."),
        ("hours(${item.hours})", "hours(${item})", "feeds.yaml:6: ${item} is a map, and stands inside a text."),
        (
            "each: param.tables",
            "each: param.tabels",
            "feeds.yaml:2: 'param.tabels' names no parameter that is an array.",
        ),
        ("each: param.tables", "each: param.owner", "feeds.yaml:2: 'param.owner' names no parameter that is an array."),
        ("each: param.tables\n", "", "feeds.yaml:3: ${item.name} has no value."),
        ("format: csv", "fromat: csv", "feeds.yaml:7: feed 'nightly-orders': 'fromat' is not a key of a feed."),
    ],
)
def test_a_mistake_in_a_document_is_told_with_its_line(before: str, after: str, said: str) -> None:
    with pytest.raises(DefinitionsError) as error:
        made(files_of(feeds=FEEDS.replace(before, after, 1)), owner="ann")
    assert any(f"entities/{said}" in each for each in issues(error)), issues(error)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("parameters:", "parametres:", "shop/extension.yaml:3: 'parametres' is not a key of an extension. Did you"),
        ("type: integer", "type: int", "shop/extension.yaml:6: parameters.parallel.type: 'int' is not one of string,"),
        ("default: 2", "default: two", "shop/extension.yaml:6: the default of parameter 'parallel' is of another type"),
        ("owner:", "job:", "shop/extension.yaml:7: 'job' is the name of the job."),
    ],
)
def test_a_mistake_in_a_recipe_is_told_with_its_line(before: str, after: str, said: str) -> None:
    with pytest.raises(DefinitionsError) as error:
        read_recipe(files_of(RECIPE.replace(before, after)), "shop")
    assert any(each.startswith(said) for each in issues(error)), issues(error)


def test_a_folder_has_a_recipe_and_one_way_to_make_entities() -> None:
    for files in ({}, files_of(feeds=""), files_of(build=BUILD)):
        with pytest.raises(DefinitionsError, match="Name the folder of a recipe"):
            read_recipe(files, "shop")


def test_two_entities_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionsError) as error:
        made(files_of(), tables=[*TABLES[:1], *TABLES[:1]])
    assert "feeds.yaml:4: the extension makes two of feed 'nightly-orders'" in issues(error)[0]
    with pytest.raises(VerbRefusedError, match="job 'nightly' of extension 'shop-tables': nothing is made of these"):
        made(files_of(feeds=FEEDS.partition("---\n")[0]), tables=[])


def test_a_function_returns_entities_or_what_a_file_would_say() -> None:
    files = files_of(feeds="", build=BUILD)
    assert [each["name"] for each in made(files)] == ["orders", "nightly"]
    parameters = {"tables": TABLES[:1]}
    assert isinstance(make_entities(extension(files), parameters, VALUES, "nightly")[1].entity, Feed)


@pytest.mark.parametrize(("code", "said"), [("1 / 0", "ZeroDivisionError"), ("sys.exit(0)", "SystemExit: 0")])
def test_a_function_that_fails_is_named(code: str, said: str) -> None:
    with pytest.raises(VerbRefusedError, match=rf"build in shop-tables/build\.py has failed: {said}"):
        made(files_of(feeds="", build=f"import sys\ndef build(parameters):\n    {code}\n"))


def test_what_a_function_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    made(files_of(feeds="", build=f"{BUILD}\n    print('tables')\n"))
    assert capsys.readouterr() == ("", "tables\n")
