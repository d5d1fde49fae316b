"""Every field, setting, rule and code is in a page of the entities, with its default, and none that does not exist."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from feed_assets.definitions.checks.live_checks import LIVE_CHECKS
from feed_assets.entities.bundle import ENTITY_TYPES
from feed_assets.entities.cluster import STORAGE_SCHEMES
from feed_assets.entities.common import Entity, Kind
from feed_assets.entities.workflow import Workflow
from feed_assets.issues import BLOCKED
from feed_assets.loading.messages import _SHAPES
from feed_assets.settings import Settings
from feed_assets.storage.registry import _SCHEMES
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.validation.compatibility import BREAKS_DEPENDENT, STILL_REFERENCED
from feed_assets.validation.rules import RULES
from tests.documents.markdown import NONE, ROOT, Table, codes, plain, tables_of

XML_CODE = re.compile(r"xml-[a-z-]+")  # xml-unknown-element
RULE_NUMBER = re.compile(r"\b[CFP][0-9]+\b")  # F31

ENTITY_TABLES = {
    **{table.section.removesuffix(" †"): table for table in tables_of("docs/entities.md")},
    "Feed": tables_of("docs/feeds.md")[0],
    "Process": tables_of("docs/processes.md")[0],
    "Settings": tables_of("docs/settings.md")[0],
}
FIELD_HEADER = ("field", "type", "default", "meaning")
MODELS: Mapping[str, type[BaseModel]] = {
    "Every entity": Entity,
    **{model.__name__: model for model in ENTITY_TYPES.values()},
}
WRITTEN_ONCE = {
    ("Process", "trigger.when"),
    ("Datasource", "interfaces.readonly.driver"),
    ("Datasource", "interfaces.readonly.credential"),
    ("Datasource", "interfaces.write.driver"),
    ("Datasource", "interfaces.write.credential"),
    ("Feed", "clusters.*.sla"),
    ("Feed", "clusters.*.locations"),
    ("Feed", "clusters.*.lifecycle"),
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
    if value in (None, {}, (), "", frozenset()) or isinstance(value, BaseModel):
        return NONE
    if value == NEVER:
        return render_datetime(NEVER)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
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


def test_the_parts_that_may_be_left_out_are_those_that_are_listed() -> None:
    listed = re.search(
        r"may be left out as a whole.*? are required:(.*?)\. Of", (ROOT / "docs/entities.md").read_text("utf-8"), re.S
    )
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
    assert sorted(codes(row[3])) == sorted(_SCHEMES) == sorted(STORAGE_SCHEMES)


def test_every_setting_is_described_with_its_variable_and_default() -> None:
    expected = set()
    for leaf in leaves_of("Settings", Settings):
        variable = f"FEED_ASSETS_{leaf.path.upper().replace('.', '__')}"
        expected.add((leaf.path, f"{variable}__<NAME>" if leaf.path == "variables" else variable, leaf.default))
    rows = ENTITY_TABLES["Settings"].rows
    assert {(plain(row[0]), plain(row[1]), plain(row[2])) for row in rows} == expected


RULE_TABLE, READING_TABLE = [table for table in tables_of("docs/rules.md") if table.section == "Rules"]


def test_every_rule_is_described_and_no_other() -> None:
    described = [(plain(row[0]), kind) for row in RULE_TABLE.rows for kind in row[1].split(", ")]
    assert sorted(described) == sorted((rule.code, rule.kind.value) for rule in RULES)


def test_every_live_check_is_described_with_the_numbers_that_its_code_names() -> None:
    (table,) = [table for table in tables_of("docs/rules.md") if table.section == "Live checks"]
    assert [(plain(row[0]), row[1]) for row in table.rows] == [(each.code, each.kind.value) for each in LIVE_CHECKS]
    for row, check in zip(table.rows, LIVE_CHECKS, strict=True):
        assert set(RULE_NUMBER.findall(check.probes.__doc__ or "")) == set(RULE_NUMBER.findall(row[3])), check.code


def test_every_check_of_falcon_is_a_rule_or_is_said_to_be_none() -> None:
    sections = ("Rules", "Live checks", "Falcon's checks without a rule")
    tables = [table for table in tables_of("docs/rules.md") if table.section in sections]
    cells = [cell for table in tables if "Falcon" in table.header for cell in table.column["Falcon"]]
    named = {number for cell in cells for number in RULE_NUMBER.findall(cell)}
    lists = (("C", 14), ("F", 31), ("P", 17))
    assert named == {f"{letter}{number}" for letter, last in lists for number in range(1, last + 1)}


def test_codes_of_checks_of_changes_are_described() -> None:
    (table,) = [table for table in tables_of("docs/rules.md") if table.section == "Checks of changes"]
    assert [plain(row[0]) for row in table.rows] == [BREAKS_DEPENDENT, STILL_REFERENCED]


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
    files = [
        *(ROOT / "feed_assets/loading").rglob("*.py"),
        ROOT / "feed_assets/definitions/checks/declared_definitions.py",
    ]
    files += [*(ROOT / "feed_assets/entities").rglob("*.py"), ROOT / "feed_assets/issues.py"]
    found = {code for file in files for code in written_codes(ast.parse(file.read_text("utf-8")))}
    found |= {kind.replace("_", "-") for kind in _SHAPES} | {"value", "unknown-key", "missing-key", BLOCKED}
    assert sorted(code for row in READING_TABLE.rows for code in codes(row[0])) == sorted(found)


def written_codes(tree: ast.AST) -> Iterator[str]:
    """Codes in calls: `refuse("name", …)`, `self._note("duplicate-key", …)`, `Problem(code="yaml-syntax", …)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[:1] if name in ("refuse", "_translated", "_add", "_note", "_issue") else []
            for value in (*first, *(keyword.value for keyword in node.keywords if keyword.arg == "code")):
                if isinstance(value, ast.Constant):
                    yield str(value.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and XML_CODE.fullmatch(node.value):
            yield node.value


NOT_ACTED_ON = re.compile(r"\.notification\b")


def test_what_is_said_not_to_be_acted_on_is_used_by_nothing_that_acts() -> None:
    files = [file for folder in ("instances", "log") for file in (ROOT / "feed_assets" / folder).rglob("*.py")]
    rooms = ("sensors/ticks.py", "runs/process_runs.py", "location/runtime.py")
    files += [ROOT / "feed_assets/orchestration" / name for name in rooms]
    used = {(file.name, found[0]) for file in files for found in NOT_ACTED_ON.finditer(file.read_text("utf-8"))}
    assert used == set(), "something is acted on now: correct 'Declared, not yet acted on' in docs/entities.md"
