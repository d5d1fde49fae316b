"""docs/security.md: what each operation needs, and what else is asked for, each in a row."""

import re
from inspect import getmodule
from pathlib import Path

import pytest

from feed_assets.access.rights import Needs
from feed_assets.access.table import ALL_OF_IT, SELECTS, find_named, find_need
from feed_assets.cli.main import _LATER
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import list_operations
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.routes import LOOKS
from feed_assets.server.ui.records import Page
from feed_assets.server.ui.table import PAGES
from tests.documents.markdown import ROOT

PAGE = ROOT / "docs/security.md"
FINDS = ("extension job show", "lineage run")
"""They ask whether what they find may be read."""
TABLE = re.compile(r"(<!-- rights -->\n).*?(<!-- end -->\n)", re.DOTALL)


def describe(operation: Operation) -> str:
    """Who may, by the table of the program."""
    given = {each.name: "x" if each.type is str else each.default for each in operation.parameters} | {
        "namespace": None
    }
    given |= {each.name: ("x",) for each in operation.parameters if each.type is str and each.is_several}
    given |= dict.fromkeys(("namespace", "switch"))
    given |= {each.name: False for each in operation.parameters if each.param.needs}
    given["kind"] = next(("cluster" for each in operation.parameters if each.param.proposes == "groups"), None)
    need = find_need(operation, given)
    named = {needs for _, needs in find_named(operation, given, need)}
    required = {each.name: given[each.name] for each in operation.parameters if each.is_required}
    if any(each.name == "switch" for each in operation.parameters):
        return "admins; its status everybody who is known"
    if need in (Needs.ADMIN, Needs.SUPERUSER):
        return str(need)
    if operation.name in FINDS:
        return "who may read all that it finds"
    if operation.name in SELECTS:
        return "owners and groups of all that it finds"
    if operation.right is Does.DECLARES and operation.context == "EntityContext":
        would = "changes" if operation.does is Does.DECLARES else "would change"
        return f"owners and groups of all that it {would}, before and after; of clusters superusers"
    if need is Needs.OWNER:
        is_needed = any(needs is Needs.OWNER for _, needs in find_named(operation, required, need))
        alone = "" if is_needed else "; superusers without a name"
        return f"owners and groups of all that it names{alone}" if Needs.OWNER in named else "superusers"
    alone = "; superusers without a name, if something is hidden" if operation.name in ALL_OF_IT else ""
    alone += (
        "; of another namespace superusers" if any(each.name == "namespace" for each in operation.parameters) else ""
    )
    return f"who may read what it names{alone}" if named else f"everybody who is known{alone}"


def test_row_134_each_operation_has_its_row(request: pytest.FixtureRequest) -> None:
    rows = [f"| `{each.name}` | {each.does} | {describe(each)} |" for each in list_operations().items]
    table = "\n".join(["", "| operation | does | who may |", "|---|---|---|", *rows, "", ""])
    text = PAGE.read_text()
    expected = TABLE.sub(lambda found: found[1] + table + found[2], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected


def test_what_asks_for_what_it_selects_is_an_operation_that_does_so() -> None:
    operations = {each.name: each for each in list_operations().items}
    assert operations.keys() >= SELECTS
    asking = {path for path in (ROOT / "feed_assets").rglob("*.py") if "require_acts(" in path.read_text()}
    rooms = {path.parts[len(ROOT.parts) + 1] for path in asking}
    for name in SELECTS:
        module = getmodule(operations[name].function)
        assert module is not None
        assert Path(module.__file__ or "").parts[len(ROOT.parts) + 1] in rooms, name


def test_all_else_that_is_asked_for_is_named_or_asks_operations() -> None:
    text = PAGE.read_text()
    assert [each for each in (*LOOKS, *_LATER) if f"`{each}`" not in text] == []
    names = {each.name for each in list_operations().items}
    assert {each.operation for each in ALIASES} <= names
    assert all(isinstance(each, Page) for each in PAGES)
    forms = [each.path.partition("/do/")[2].replace("/", " ") for each in PAGES if "/do/" in each.path]
    assert forms
    assert {each for each in forms if each in names} | {"metadata put", "metadata remove"} >= {*forms} - {"log in"}
