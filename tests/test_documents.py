"""What README, ARCHITECTURE and docs say is what the code does: tables, examples, commands, links."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import click
import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import feed_assets
from feed_assets.cli.main import main
from feed_assets.entities.bundle import ENTITY_TYPES
from feed_assets.entities.common import Entity, Kind
from feed_assets.entities.datasource import Interface
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import LateProcess, Process, Workflow
from feed_assets.errors import TimingError
from feed_assets.loading.entity_files import EntityFile, load_files, usable_bundle
from feed_assets.loading.interpolation import Values
from feed_assets.loading.messages import _SHAPES
from feed_assets.settings import Settings
from feed_assets.storage.registry import _SCHEMES
from feed_assets.timing import date_format, text
from feed_assets.timing.dates import NEVER, parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.expressions import TIME_FUNCTIONS, parse_time_expression
from feed_assets.timing.frequency import parse_frequency
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import parse_path_template
from feed_assets.timing.text import TextContext, render_text
from feed_assets.timing.windows import parse_window
from feed_assets.validation.rules import RULES, validate_bundle

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = tuple(sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")]))
AS_OF = datetime(2013, 12, 1, tzinfo=UTC)
NONE = "–"
DAY = datetime(2015, 1, 1, tzinfo=UTC)
SEPARATOR = re.compile(r"\|(?:-+\|)+")  # |---|---|
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")  # [entities](entities.md#rules)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # ```yaml … ```
COMMAND = re.compile(r"\bfeed-assets ([a-z]+)")
TARGET = re.compile(r"\bmake ([a-z]+)\b")
SOURCE_FILE = re.compile(r"`((?:feed_assets/)?[a-z_]+(?:/[a-z_]+)*\.py)`")  # `orchestration/ticks.py`
RULE_NUMBER = re.compile(r"\b[CFP][0-9]+\b")  # F31
FEED = re.compile(r"(\S+) from (\S+), (\S+)")  # hours(1) from 2015-01-01T00:00Z, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a document: where it stands, its header, and the text of its cells without backticks."""

    document: str
    section: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def column(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(row[position] for row in self.rows) for position, name in enumerate(self.header)}


def tables_of(name: str) -> list[Table]:
    tables: list[Table] = []
    section = ""
    lines = (ROOT / name).read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            section = line.lstrip("# ")
        if SEPARATOR.fullmatch(line):
            header = cells_of(lines[number - 1])
            rows = []
            for row in lines[number + 1 :]:
                if not row.startswith("|"):
                    break
                rows.append(cells_of(row))
                assert len(rows[-1]) == len(header), f"{name}: {row}"
            tables.append(Table(document=name, section=section, header=header, rows=tuple(rows)))
    return tables


def cells_of(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def plain(cell: str) -> str:
    """The text of a cell that is one piece of code."""
    return cell[1:-1] if cell.startswith("`") and cell.endswith("`") and cell.count("`") == 2 else cell


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fences(document: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(document.read_text("utf-8")) if kind == language]


# Examples of expressions.md.


def sequence(frequency: str, start: str, zone: str) -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(start), frequency=parse_frequency(frequency), timezone=parse_timezone(zone)
    )


def instance_of(frequency: str, start: str, zone: str, n: str) -> str:
    return render_datetime(sequence(frequency, start, zone).at(int(n)))


def time_of(expression: str, moment: str, zone: str) -> str:
    return render_datetime(parse_time_expression(expression).evaluate(parse_datetime(moment), parse_timezone(zone)))


def window_of(start: str, end: str, moment: str, zone: str, feed: str) -> str:
    found = FEED.fullmatch(feed)
    assert found is not None
    window = parse_window(start, end, parse_timezone(zone))
    times = window.instances(parse_datetime(moment), sequence(*found.groups()))
    if not times:
        return "none"
    ends = [times[0]] if len(times) == 1 else [times[0], times[-1]]
    return f"{len(times)}: {' … '.join(f'`{render_datetime(time)}`' for time in ends)}"


class Hours:
    """The available hours of a day, as a window asks for them."""

    def __init__(self, hours: Iterable[int]) -> None:
        self._hours = sorted(hours)

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        return [hour for hour in reversed(self._hours) if hour <= not_after_index][:count]

    def available_between(self, first: int, last: int) -> list[int]:
        return [hour for hour in self._hours if first <= hour <= last]


def data_driven_of(start: str, end: str, moment: str, now: str, hours: str) -> str:
    feed = sequence("hours(1)", render_datetime(DAY), "UTC")
    record = Hours(map(int, hours.split()))
    found = parse_window(start, end).resolve_data_driven(parse_datetime(moment), feed, record, parse_datetime(now))
    return "waits" if found is None else " ".join(map(str, found)) or "nothing"


def path_of(template: str, zone: str, moment: str) -> str:
    return parse_path_template(template).render(parse_datetime(moment), parse_timezone(zone))


def time_of_path(template: str, zone: str, path: str) -> str:
    found = parse_path_template(template).parse(path, parse_timezone(zone))
    return "none" if found is None else render_datetime(found)


def rendered(written: str) -> str:
    context = TextContext(
        nominal_time=parse_datetime("2009-09-02T10:30Z"),
        timezone=parse_timezone("America/New_York"),
        user="ann",
        cluster={"name": "primary", "colo": "nyc", "tier": "gold"},
        properties={"region": "us"},
        inputs={"clicks": ("/c/1", "/c/0")},
    )
    return render_text(written, context)


def refusal_of(what: str, written: str) -> str:
    parsers: Mapping[str, Callable[[str], object]] = {
        "frequency": parse_frequency,
        "date": parse_datetime,
        "zone": parse_timezone,
        "expression": parse_time_expression,
        "window": lambda pair: parse_window(*pair.split(" to ")),
        "template": parse_path_template,
        "text": rendered,
    }
    with pytest.raises(TimingError) as refused:
        parsers[what](written)
    return str(refused.value)


EVALUATORS: Mapping[tuple[str, ...], Callable[..., str]] = {
    ("frequency", "start", "time zone", "n", "instance"): instance_of,
    ("expression", "T", "time zone", "result"): time_of,
    ("from", "to", "T", "process zone", "feed", "instances"): window_of,
    ("from", "to", "T", "now", "available hours", "reads"): data_driven_of,
    ("template", "time zone", "instance", "path"): path_of,
    ("template", "time zone", "path", "time"): time_of_path,
    ("text", "result"): rendered,
    ("what", "text", "because"): refusal_of,
}
EXPRESSION_TABLES = tables_of("docs/expressions.md")
EXAMPLES = [
    pytest.param(table.header, tuple(map(plain, row)), id=" ".join(map(plain, row[:3])))
    for table in EXPRESSION_TABLES
    if table.header in EVALUATORS
    for row in table.rows
]


@pytest.mark.parametrize(("header", "row"), EXAMPLES)
def test_an_example_of_the_expressions_gives_the_result_that_is_written(
    header: tuple[str, ...], row: tuple[str, ...]
) -> None:
    *given, expected = row
    result = EVALUATORS[header](*given)
    if header[-1] == "because":
        assert expected in result
    else:
        assert result == expected


def test_every_table_of_the_expressions_but_the_comparison_is_evaluated() -> None:
    assert {table.header for table in EXPRESSION_TABLES} - EVALUATORS.keys() == {("here", "Falcon")}


def test_every_function_and_date_letter_has_an_example_or_a_mention() -> None:
    written = " ".join(cell for table in EXPRESSION_TABLES for row in table.rows for cell in row)
    functions = {*TIME_FUNCTIONS, *text._FUNCTIONS}
    assert {name for name in functions if f"{name}(" not in written} == set()
    variables = {f"${{{name}}}" for name in text._TIME_VARIABLES}
    assert {name for name in variables if name not in written} == set()
    assert f"`{' '.join(date_format._LETTERS)}`" in (ROOT / "docs/expressions.md").read_text("utf-8")


# Entities, settings and rules of entities.md.

ENTITY_TABLES = {table.section.removesuffix(" †"): table for table in tables_of("docs/entities.md")}
FIELD_HEADER = ("field", "type", "default", "meaning")
MODELS: Mapping[str, type[BaseModel]] = {
    "Every entity": Entity,
    **{model.__name__: model for model in ENTITY_TYPES.values()},
}
WRITTEN_ONCE = {
    ("Datasource", "interfaces.readonly.driver"),
    ("Datasource", "interfaces.readonly.credential"),
    ("Datasource", "interfaces.write.driver"),
    ("Datasource", "interfaces.write.credential"),
    ("Feed", "clusters.*.sla"),
    ("Feed", "clusters.*.locations"),
    ("Process", "clusters.*.sla"),
    ("Process", "notification"),
    ("Process", "late_process.inputs"),
}
"""Parts that a table names as a whole, because it, or another one, lists what they hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A field as people write it, and its default: `required`, `–`, or the value."""

    path: str
    default: str


def leaves_of(name: str, model: type[BaseModel], prefix: str = "") -> Iterator[Leaf]:
    own = model.model_fields.keys() - (Entity.model_fields.keys() if model in ENTITY_TYPES.values() else set())
    for field_name, info in model.model_fields.items():
        if field_name not in own:
            continue
        path = f"{prefix}{info.alias or field_name}"
        inner, is_map = held_by(info.annotation)
        if inner is None or (name, path) in WRITTEN_ONCE:
            yield Leaf(path=path, default=default_of(info))
        else:
            yield from leaves_of(name, inner, f"{path}.*." if is_map else f"{path}.")


def held_by(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a field holds, if any, and whether it holds a map of them."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return held_by(arguments[0])
    if origin in (Union, UnionType):
        found = [held_by(option) for option in arguments if option is not NoneType]
        return next((each for each in found if each[0]), (None, False))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return held_by(arguments[1])[0], True
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return (annotation if is_model else None), False


def default_of(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or value == {} or value == () or isinstance(value, BaseModel):
        return NONE
    if value == NEVER:
        return render_datetime(NEVER)
    if isinstance(value, bool):
        return str(value).lower()
    return value.value if isinstance(value, StrEnum) else str(value)


def documented_leaves(table: Table) -> set[Leaf]:
    return {Leaf(path=plain(row[0]), default=plain(row[2])) for row in table.rows}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "Datasource"])
def test_every_field_of_an_entity_is_described_with_its_default(name: str) -> None:
    table = ENTITY_TABLES[name]
    assert table.header == FIELD_HEADER
    assert documented_leaves(table) == set(leaves_of(name, MODELS[name]))


def test_every_field_of_a_datasource_is_described_with_its_default() -> None:
    expected = set()
    for leaf in leaves_of("Datasource", ENTITY_TYPES[Kind.DATASOURCE]):
        if leaf.path.endswith(("readonly.properties", "write.properties")):
            expected.add(Leaf(path="interfaces.*.properties", default=leaf.default))
        elif (leaf.path.rpartition(".")[2]) not in ("driver", "credential"):
            expected.add(leaf)
    assert documented_leaves(ENTITY_TABLES["Datasource"]) == expected
    assert {"driver", "credential"} <= Interface.model_fields.keys()
    assert "workflow" in ENTITY_TABLES["Process"].column["meaning"][-2]
    assert held_by(LateProcess.model_fields["inputs"].annotation) == (Workflow, True)


def test_the_parts_that_may_be_left_out_are_those_that_are_listed() -> None:
    listed = re.search(r"may be left out as a whole.*?:(.*?)\. Of", (ROOT / "docs/entities.md").read_text("utf-8"), re.S)
    assert listed is not None
    named = {code for code in codes(listed[1]) if "*" not in code}
    assert named == {name for model in MODELS.values() for name in optional_parts(model)}


def optional_parts(model: type[BaseModel]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        inner, is_map = held_by(info.annotation)
        if inner is not None and inner is not Workflow:
            if not is_map and not info.is_required():
                yield info.alias or name
            yield from optional_parts(inner)


def test_choices_are_written_where_a_field_has_them() -> None:
    for name, model in MODELS.items():
        described = {plain(row[0]): row[3] for row in ENTITY_TABLES[name].rows}
        for path, choices in choices_of(name, model):
            if path in described:
                assert {choice.value for choice in choices} <= set(codes(described[path])), path


def choices_of(name: str, model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[StrEnum]]]:
    for field_name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or field_name}"
        inner, is_map = held_by(info.annotation)
        options = [info.annotation, *get_args(info.annotation)]
        for option in options:
            if isinstance(option, type) and issubclass(option, StrEnum) and not path.startswith("late_process"):
                yield path, option
        if inner is not None and (name, path) not in WRITTEN_ONCE:
            yield from choices_of(name, inner, f"{path}.*." if is_map else f"{path}.")


def test_storage_schemes_are_those_that_can_be_opened() -> None:
    (row,) = [row for row in ENTITY_TABLES["Cluster"].rows if row[0] == "`storage`"]
    assert sorted(codes(row[3])) == sorted(_SCHEMES)


def test_every_setting_is_described_with_its_variable_and_default() -> None:
    expected = set()
    for leaf in leaves_of("Settings", Settings):
        variable = f"FEED_ASSETS_{leaf.path.upper().replace('.', '__')}"
        expected.add((leaf.path, f"{variable}__<NAME>" if leaf.path == "variables" else variable, leaf.default))
    rows = ENTITY_TABLES["Settings"].rows
    assert {(plain(row[0]), plain(row[1]), plain(row[2])) for row in rows} == expected


RULE_TABLE, READING_TABLE = [table for table in tables_of("docs/entities.md") if table.section == "Rules"]


def test_every_rule_is_described_and_no_other() -> None:
    described = [(plain(row[0]), kind) for row in RULE_TABLE.rows for kind in row[1].split(", ")]
    assert sorted(described) == sorted((rule.code, rule.kind.value) for rule in RULES)


def test_rules_name_the_numbers_of_falcon_that_their_code_names() -> None:
    described = {plain(row[0]): set(RULE_NUMBER.findall(row[3])) for row in RULE_TABLE.rows}
    for rule in RULES:
        assert set(RULE_NUMBER.findall(rule.check.__doc__ or "")) <= described[rule.code], rule.code


def test_warnings_are_marked_as_such() -> None:
    marked = {plain(row[0]) for row in RULE_TABLE.rows if row[2].endswith("(w)")}
    assert marked == {rule.code for rule in RULES if "WARNING" in _source_of(rule.check)}


def _source_of(function: Callable[..., object]) -> str:
    tree = ast.parse(Path(function.__code__.co_filename).read_text("utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function.__name__]
    return ast.unparse(found[0])


def test_every_code_of_reading_is_described_and_no_other() -> None:
    files = [*(ROOT / "feed_assets/loading").glob("*.py"), ROOT / "feed_assets/operations/definitions.py"]
    files += (ROOT / "feed_assets/entities").glob("*.py")
    found = {code for file in files for code in written_codes(ast.parse(file.read_text("utf-8")))}
    found |= {kind.replace("_", "-") for kind in _SHAPES} | {"value", "unknown-key", "missing-key"}
    assert sorted(code for row in READING_TABLE.rows for code in codes(row[0])) == sorted(found)


def written_codes(tree: ast.AST) -> Iterator[str]:
    """Codes in calls: `refuse("name", …)`, `self._note("duplicate-key", …)`, `Problem(code="yaml-syntax", …)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[:1] if name in ("refuse", "_translated", "_add", "_note") else []
            for value in (*first, *(keyword.value for keyword in node.keywords if keyword.arg == "code")):
                if isinstance(value, ast.Constant):
                    yield str(value.value)


NOT_ACTED_ON = re.compile(
    r"\.(retention_limit|late_cut_off|is_late|sla|retry|role|archive_to|notification|should_start_in|should_end_in"
    r"|late_process|stats|meta|tmp|datasources|catalog|on_timeout)\b"
)


def test_what_is_said_not_to_be_acted_on_is_used_by_nothing_that_acts() -> None:
    files = [file for folder in ("lifecycle", "storage", "state") for file in (ROOT / "feed_assets" / folder).glob("*.py")]
    files += [ROOT / "feed_assets/orchestration" / name for name in ("ticks.py", "materialization.py", "runtime.py")]
    used = {(file.name, found[0]) for file in files for found in NOT_ACTED_ON.finditer(file.read_text("utf-8"))}
    assert used == set(), "something is acted on now: correct 'Declared, not yet acted on' in docs/entities.md"


# README, ARCHITECTURE, and all documents.


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_yaml_is_in_order(document: Path) -> None:
    for body in fences(document, "yaml"):
        loaded = load_files(
            [EntityFile(name=document.name, content=body.encode())],
            Values(variables={"DATA_ROOT": "/data"}, environ={}),
        )
        issues = [*loaded.issues, *validate_bundle(loaded.bundle, loaded.sources, AS_OF)]
        assert [issue.render() for issue in issues] == []
        usable, blocked = usable_bundle(loaded, issues)
        assert (len(usable.entities), blocked) == (len(list(yaml.safe_load_all(body))), ())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_exist(document: Path) -> None:
    words = document.read_text("utf-8")
    assert isinstance(main, click.Group)
    code = " ".join([*re.findall(r"`([^`\n]+)`", words), *(body for _, body in FENCE.findall(words))])
    assert set(COMMAND.findall(code)) <= main.commands.keys()
    assert set(TARGET.findall(code)) <= make_targets()


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_make_help_lists_every_target() -> None:
    listing = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listing.splitlines()} == make_targets()


def test_commands_of_the_readme_are_accepted_by_dagster_and_us() -> None:
    from dagster._cli import create_dagster_cli

    groups: dict[str, click.Command] = {"dagster": create_dagster_cli(), "feed-assets": main}
    for body in fences(ROOT / "README.md", "console"):
        for line in (line.removeprefix("$ ").split("#")[0] for line in body.splitlines()):
            words = line.split(">")[0].split()
            if words and words[0] in groups:
                parse_command(groups[words[0]], words[1:])


def parse_command(command: click.Command, words: list[str]) -> None:
    """Parse a command line down to its last command; nothing is run."""
    while isinstance(command, click.Group):
        context = click.Context(command)
        name = next(word for word in words if not word.startswith("-"))
        found = command.get_command(context, name)
        assert found is not None, name
        command, words = found, words[words.index(name) + 1 :]
    options = {text for option in command.params for text in (*option.opts, *option.secondary_opts)}
    written = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert written <= options, (command.name, written - options)


def test_python_of_the_readme_is_python_and_its_names_are_public() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for body in fences(ROOT / "README.md", "python"):
        ast.parse(body)
    found = re.search(r"`from feed_assets import ([\w,\s]+)`", readme)
    assert found is not None
    assert set(re.split(r",\s+", found[1])) <= set(feed_assets.__all__)


def test_the_folder_table_is_the_package() -> None:
    (table,) = tables_of("ARCHITECTURE.md")
    packages = {path.parent.name for path in (ROOT / "feed_assets").glob("*/__init__.py")}
    assert sorted(map(plain, table.column["folder"])) == sorted(packages)


def test_the_folder_table_has_the_order_that_is_checked() -> None:
    (table,) = tables_of("ARCHITECTURE.md")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = next(each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    line_of = {name: number for number, line in enumerate(contract["layers"]) for name in line.split(" | ")}
    lines = [line_of[plain(folder)] for folder in table.column["folder"]]
    assert lines == sorted(lines)
    modules = {path.stem for path in (ROOT / "feed_assets").glob("*.py")} - {"__init__"}
    assert modules | set(map(plain, table.column["folder"])) == line_of.keys()
    below = re.search(r"Below all of them stand the modules (.*?)\.\n", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    assert below is not None
    assert {name.removesuffix(".py") for name in codes(below[1])} == modules


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    for name in SOURCE_FILE.findall(document.read_text("utf-8")):
        places = (ROOT / name, ROOT / "feed_assets" / name)
        assert any(place.exists() for place in places), name


def test_the_numbers_of_instances_in_the_readme_are_those_of_the_example() -> None:
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
    (summary,) = fences(ROOT / "README.md", "text")
    found = re.findall(r"^ ([a-z][a-z-]*) +([0-9]+) ", summary, re.MULTILINE)
    assert set(found) == expected
