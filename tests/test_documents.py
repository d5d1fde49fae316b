"""README, ARCHITECTURE and docs: YAML, commands, Python, links, folders and the numbers of the demo."""

import ast
import re
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
import yaml

import feed_assets
from examples.flights.place import ORIGIN, Demo
from feed_assets.cli.main import main
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.loading.bundles import load_files, usable_bundle
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.validation.rules import validate_bundle
from tests.documents.markdown import DOCS, FENCE, ROOT, codes, fences, plain, tables_of

DOCUMENTS = (ROOT / "ARCHITECTURE.md", ROOT / "README.md", *DOCS)
AS_OF = datetime(2013, 12, 1, tzinfo=UTC)
LONGEST_LINE = 140
LONGEST_PAGE = 400
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")  # [entities](entities.md#rules)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMAND = re.compile(r"\bfeed-assets ([a-z][a-z-]*)")
TARGET = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)\b")
SOURCE_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+\.py|[a-z_]+\.py)`")  # `orchestration/sensors/ticks.py`


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_is_in_order(document: Path) -> None:
    for body in fences(document, "yaml"):
        loaded = load_files(
            [EntityFile(name=document.name, content=body.encode())],
            Values(variables={"DATA_ROOT": "/data"}, environ={}),
        )
        issues = [*loaded.issues, *validate_bundle(loaded.bundle, loaded.sources)]
        assert [issue.render() for issue in issues] == []
        usable, blocked = usable_bundle(loaded, issues)
        assert (len(usable.entities), blocked) == (len(list(yaml.safe_load_all(body))), ())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(document: Path) -> None:
    words = document.read_text("utf-8")
    assert isinstance(main, click.Group)
    for line in codes(" ".join(FENCE.sub("", words).split())):
        if line.startswith("feed-assets "):
            parse_command(main, line.split()[1:])
    code = " ".join([*re.findall(r"`([^`\n]+)`", words), *(body for _, body in FENCE.findall(words))])
    assert set(COMMAND.findall(code)) <= set(main.list_commands(click.Context(main)))
    assert set(TARGET.findall(code)) <= make_targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_have_140_characters_at_most(document: Path) -> None:
    by_hand = re.sub(
        r"(<!-- operations: .*? -->).*?(<!-- end -->)", r"\1\2", document.read_text("utf-8"), flags=re.DOTALL
    )
    lines = enumerate(by_hand.splitlines(), start=1)
    assert [(number, len(line)) for number, line in lines if len(line) > LONGEST_LINE] == []


def test_pages_have_400_lines_at_most() -> None:
    lengths = {page.name: len(page.read_text("utf-8").splitlines()) for page in DOCUMENTS}
    assert {page: lines for page, lines in lengths.items() if lines > LONGEST_PAGE} == {}


def test_each_page_begins_with_a_sentence() -> None:
    begins = {page: page.read_text("utf-8").split("\n", 3)[2] for page in DOCS}
    assert [page.name for page, line in begins.items() if re.match(r"[#|<>]|```|- |`tests/", line)] == []


@pytest.mark.parametrize("entrance", ["README.md", "docs/index.md"])
def test_each_entrance_leads_to_every_page(entrance: str) -> None:
    linked = {Path(link.partition("#")[0]).name for link in LINK.findall((ROOT / entrance).read_text("utf-8"))}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked <= {"index.md"}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_make_help_lists_every_target() -> None:
    listing = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listing.splitlines()} == make_targets()


def test_commands_of_the_readme_and_the_tour_are_accepted_by_dagster_and_us() -> None:
    from dagster._cli import create_dagster_cli

    groups: dict[str, click.Command] = {"dagster": create_dagster_cli(), "feed-assets": main}
    for body in (*fences(ROOT / "README.md", "console"), *fences(ROOT / "docs" / "tour.md", "console")):
        for line in (line.removeprefix("$ ").split("#")[0] for line in body.splitlines()):
            words = line.split(">")[0].split()
            if words and words[0] in groups:
                parse_command(groups[words[0]], words[1:])


def parse_command(command: click.Command, words: list[str]) -> None:
    """Parse a command line down to its last command; nothing is run."""
    while isinstance(command, click.Group):
        context = click.Context(command)
        name = next((word for word in words if not word.startswith("-")), None)
        if name is None:
            return
        found = command.get_command(context, name)
        assert found is not None, name
        command, words = found, words[words.index(name) + 1 :]
    options = {text for option in command.params for text in (*option.opts, *option.secondary_opts)}
    written = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert written <= options, (command.name, written - options)


def test_python_of_the_tour_is_python_and_its_names_are_public() -> None:
    tour = (ROOT / "docs" / "tour.md").read_text("utf-8")
    for body in fences(ROOT / "docs" / "tour.md", "python"):
        ast.parse(body)
    found = re.search(r"`from feed_assets import ([\w,\s]+)`", tour)
    assert found is not None
    assert set(re.split(r",\s+", found[1])) <= set(feed_assets.__all__)


def test_the_folder_table_is_the_package() -> None:
    (table,) = [table for table in tables_of("ARCHITECTURE.md") if table.header[0] == "folder"]
    packages = {path.parent.name for path in (ROOT / "feed_assets").glob("*/__init__.py")}
    assert sorted(map(plain, table.column["folder"])) == sorted(packages)


def test_the_folder_table_has_the_order_that_is_checked() -> None:
    (table,) = [table for table in tables_of("ARCHITECTURE.md") if table.header[0] == "folder"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = next(each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    line_of = {name: number for number, line in enumerate(contract["layers"]) for name in line.split(" | ")}
    lines = [line_of[plain(folder)] for folder in table.column["folder"]]
    assert lines == sorted(lines)
    modules = {path.stem for path in (ROOT / "feed_assets").glob("*.py")} - {"__init__"}
    assert modules | set(map(plain, table.column["folder"])) == line_of.keys()
    below = re.search(
        r"Below all of them stand the modules (.*?)\.\n", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.S
    )
    assert below is not None
    assert {name.removesuffix(".py") for name in codes(below[1])} == modules


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(document.read_text("utf-8")):
        address, _, anchor = link.partition("#")
        if "://" in address:
            continue
        target = (document.parent / address) if address else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target), link


def anchors_of(document: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = HEADING.findall(FENCE.sub("", document.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    for name in SOURCE_FILE.findall(document.read_text("utf-8")):
        places = (ROOT / name, ROOT / "feed_assets" / name)
        assert any(place.exists() for place in places), name


def test_the_numbers_of_instances_in_the_demo_are_those_of_the_example() -> None:
    entities = ROOT / "examples/flights/entities/flights.yaml"
    loaded = load_files(
        [EntityFile(name=entities.name, content=entities.read_bytes())],
        Values(variables={"DATA_ROOT": "/data"}, environ={}),
    )
    expected = {
        (entity.name, str(entity.sequence_on("primary").size))
        for entity in loaded.bundle.entities
        if isinstance(entity, (Feed, Process))
    }
    (summary,) = fences(ROOT / "docs" / "demo.md", "text")
    found = re.findall(r"^ ([a-z][a-z-]*) +([0-9]+) ", summary, re.MULTILINE)
    assert set(found) == expected


def test_the_entities_of_the_demo_have_neither_errors_nor_warnings(tmp_path: Path) -> None:
    """The demo refuses to start otherwise."""
    environ = Demo(folder=tmp_path, port=0, seconds=1.0, s3="http://127.0.0.1:9").environment(ORIGIN)
    assert load_location(load_settings(environ=environ, start=ROOT)).issues == ()
