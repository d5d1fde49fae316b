"""Every operation with every kind of principal and of entity, by each way, as the table of docs/security.md says."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import pytest
import requests
from starlette.routing import BaseRoute, Route

from feed_assets.cli.main import main
from feed_assets.log.audit import Audit
from feed_assets.operation_list import find_operation, list_operations
from feed_assets.server.application import build_application
from feed_assets.server.routes import LOOKS
from feed_assets.server.ui.addresses import FILES
from feed_assets.server.ui.forms import page_token
from feed_assets.server.ui.login import LOGIN
from feed_assets.settings import load_settings
from tests.access.cells import OPERATIONS, ROWS, WHO, Cell, fill, list_cells, words_of
from tests.access.project import EXTENSION, KEEPER, START, Served, read_files, restore, served, submit_jobs
from tests.cli.project import run
from tests.documents.markdown import ROOT
from tests.drills import IS_DRILL, drill_seed
from tests.projects import be

REFUSED = re.compile(
    "may not change or act on|This is for |This is an entity of|It is not known who asks|may not ask on behalf|"
    "This needs the right|only superusers change the state itself"
)
LOOKED_AT = {
    "completion": ["completion", "bash"],
    "metrics": ["metrics", "--once"],
    "simulate": ["simulate", "--from", START, "--to", START],
    "serve": ["serve", "--port", "-1"],
    "try": ["try", "counts", "never"],
}
"""Words of commands that else have no end, or work."""
T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch, served(folder, patch) as found:
        submit_jobs(folder)
        yield found, folder


def choose(cells: Sequence[T], number: int) -> list[T]:
    """All cells, or others in each run."""
    return [*cells] if IS_DRILL else random.Random(drill_seed(moves=True)).sample(cells, number)


def ask(server: Served, cell: Cell, who: str) -> requests.Response:
    body: dict[str, Any] = {"data": cell.body} if isinstance(cell.body, bytes) else {"json": cell.body}
    if cell.way == "form":
        body = {"data": {**cell.body, "page": page_token(who), "back": "/ui"}}
    told: dict[str, Any] = {"params": {**server.clients[who].params, **cell.query}, "allow_redirects": False}
    return server.clients[who].request(cell.method, f"{server.url}{cell.path}", **body, **told, timeout=60)


def list_changes(server: Served) -> list[object]:
    with server.database.read() as connection:
        return [each for each in Audit(connection).newest(100_000) if each.action != "do as"]


@pytest.mark.sample
def test_row_134_who_may_what_is_as_the_table_says(server: tuple[Served, Path]) -> None:
    """What is refused changes nothing. It is asked first."""
    served, folder = server
    cells = choose([(cell, who) for cell in list_cells(folder) for who in WHO], 150)
    before, wrong = list_changes(served), list[object]()
    files = read_files(folder)
    for cell, who in (each for each in cells if each[0].status_for(each[1]) != 200):
        answer = ask(served, cell, who)
        if answer.status_code != cell.status_for(who):
            wrong.append((who, cell, answer.status_code, answer.text[:300]))
    assert list_changes(served) == before
    for cell, who in (each for each in cells if each[0].status_for(each[1]) == 200):
        answer = ask(served, cell, who)
        if answer.status_code in (401, 403) or (answer.status_code >= 500 and answer.status_code != 503):
            wrong.append((who, cell, answer.status_code, answer.text[:300]))
        restore(folder, files)
    assert not wrong, wrong


@pytest.mark.sample
def test_commands_that_ask_a_server_may_what_its_table_says(
    server: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, folder = server
    cells = [each for each in list_cells(folder) if each.way == "http" and each.row != "extension job validate"]
    for cell, who in choose([(cell, who) for cell in cells for who in WHO], 40):
        name, _, asker = who.partition(" via ")
        token = str(served.clients[who].headers.get("Authorization", "")).removeprefix("Bearer ")
        monkeypatch.setenv("FEED_ASSETS_TOKEN", token)
        file = folder / ("body.json" if cell.row == "metadata import" else "body.yaml")
        file.write_bytes(cell.body if isinstance(cell.body, bytes) else b"")
        words = words_of(find_operation(cell.row), cell.given, file if isinstance(cell.body, bytes) else None)
        told = run("--server", served.url, *(["--do-as", name] if asker else []), *words)
        is_refused = REFUSED.search(told.stderr) is not None
        assert is_refused == (cell.status_for(who) != 200), (who, words, told.output)
        assert told.exit_code if is_refused else told.exit_code != 3, (who, words, told.output)


def iter_commands(group: click.Command, context: click.Context, *words: str) -> Iterator[str]:
    if not isinstance(group, click.Group):
        yield " ".join(words)
        return
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from iter_commands(found, click.Context(found, parent=context), *words, name)


@pytest.mark.sample
def test_commands_on_the_database_change_it_for_superusers_only(
    server: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads is for everybody there; what changes something is never done in the name of others."""
    operations = {each.name: each for each in list_operations().items}
    changing = {name for name, does, _ in ROWS if does != "reads"} | {"state rebuild"}
    commands = [*iter_commands(main, click.Context(main))]
    assert {*commands} - {"state rebuild", "simulate", "metrics", "completion"} == operations.keys()
    (file := server[1] / "all.yaml").write_bytes(b"")
    for name in choose(commands, 8):
        operation = operations.get(name)
        given = {} if operation is None else fill(operation).given
        given |= {"switch": "on"} if name == "admin safemode" else {}
        words = LOOKED_AT.get(name) or (words_of(operation, given, file) if operation else name.split(" "))
        asked = [("ann", words, name in changing)]
        if name in changing and (operation is None or "author" in operation.given):
            asked.append((KEEPER, [*words, "--author", "bob"], True))
        if operation is not None and any(each.name == "look" for each in operation.parameters):
            asked.append(("ann", [*words, "--look"], True))
        if "dry_run" in given or name not in changing:
            asked.append((KEEPER, words, False))
        for who, line, is_refused in asked:
            be(who, monkeypatch)
            told = run(*line)
            found = re.search("only superusers change the state itself|the author is who asks", told.stderr)
            assert (found is not None) == is_refused, (who, line, told.output)


def as_route(found: BaseRoute) -> Route:
    assert isinstance(found, Route)
    return found


def test_every_route_page_and_path_has_a_cell_and_what_it_asks_a_row(server: tuple[Served, Path]) -> None:
    served, folder = server
    cells = list_cells(folder)
    asked = {(each.method, each.rule) for each in cells}
    routes = build_application(load_settings(), served.database).routes
    found = {(method, each.path) for each in map(as_route, routes) for method in {*(each.methods or ())} - {"HEAD"}}
    text = (ROOT / "docs/security.md").read_text()
    named = {("GET", path) for path in LOOKS if f"`{path}`" in text} | {("GET", path) for path in FILES}
    assert found - asked - named == {("POST", LOGIN), ("POST", f"{LOGIN[:-2]}out")}
    rows = {name for name, *_ in ROWS}
    assert rows == {each.name for each in list_operations().items}
    assert {each.row for each in cells} - {""} <= rows
    assert {each.row for each in cells if each.way == "http"} == {each.name for each in OPERATIONS}


def test_extensions_and_their_list_tell_of_no_job_that_made_what_is_hidden(server: tuple[Served, Path]) -> None:
    for who, jobs in (("ann", ["shown", "zqjob"]), ("bob", ["shown"])):
        told = server[0].ask(who, find_operation("extension list"), {}).json()["extensions"]
        assert [each["jobs"] for each in told if each["name"] == EXTENSION] == [jobs]
        shown = [each["name"] for each in server[0].ask(who, find_operation("extension job list"), {}).json()["jobs"]]
        assert (server[0].ask(who, find_operation("extension show"), {"name": EXTENSION}).json()["jobs"], shown) == (
            jobs,
            jobs,
        )


def test_row_133_nobody_may_anything(server: tuple[Served, Path]) -> None:
    for operation in OPERATIONS:
        assert server[0].ask("nobody", operation, {}).status_code == 401
