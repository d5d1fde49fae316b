"""Whatever a request gives: the answer is one that the document knows, and no place beside the project is touched."""

import io
import json
import socket
import stat
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from feed_assets.operation import Does
from feed_assets.server.openapi import describe_routes
from feed_assets.server.routes import list_routes
from tests.drills import drill, sized
from tests.server.project import open_project, serve
from tests.server.wild import IN_JSON, IN_QUERY, Asker

opened: list[str] = []
"""The paths of opened files whose name says that they are not for us."""
SECRET = "the-secret-of-another"


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and SECRET in str(arguments[0]):
        opened.append(str(arguments[0]))


@cache
def _watch_files() -> None:
    """For good, and only where it is needed: it would take a twentieth of the time of all other tests."""
    sys.addaudithook(_note)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the project, beside which there are others."""
    (tmp_path / "in" / "project").mkdir(parents=True)
    return tmp_path / "in" / "project"


@pytest.fixture
def asker(folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    def connect(_: socket.socket, address: object) -> None:
        opened.append(str(address))
        raise OSError("away")

    _watch_files()
    database = open_project(folder, monkeypatch, state=database_url)
    monkeypatch.delenv("FEED_ASSETS_NOTIFY__OPS__URL")  # nobody is told
    monkeypatch.setattr(socket.socket, "connect", connect)
    yield Asker(serve(database), json.loads(json.dumps(describe_routes())))
    database.close()


def _list_beside(folder: Path) -> set[Path]:
    """List what stands beside the project and at its top, but for the state and its actions."""
    found = {*folder.parents[1].rglob("*")} - {*folder.glob("*/**/*")}
    return {each for each in found if not each.name.startswith(("state.db", "actions"))}


def _zip(**members: tuple[int, bytes]) -> bytes:
    """Return a zip with members by name, each with the mode of its file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, (mode, content) in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return packed.getvalue()


@pytest.mark.long
@pytest.mark.sample
def test_nothing_that_a_request_gives_is_a_place_of_the_server(asker: Asker, folder: Path) -> None:
    secret = folder.parents[1] / SECRET
    secret.write_text("kind: feed\nname: of-another\n")
    made = folder.parents[1] / "made"
    places = (str(secret), f"../../{SECRET}", secret.as_uri(), f"http://169.254.0.1/{SECRET}", str(made), "../../made")
    link, plain = stat.S_IFLNK | 0o777, stat.S_IFREG | 0o644
    bodies = [each.encode() for each in places]
    bodies += [_zip(**{"all.yaml": (link, each)}) for each in bodies]
    bodies += [_zip(**{each: (plain, b"x")}) for each in places]
    before, turn, each_of = _list_beside(folder), count(), sized(8, 1)
    opened.clear()
    for route in list_routes():
        tried = [(name, each) for name, _ in asker.iter_parameters(route) for each in places]
        answers = [asker.ask(route, {name: each}) for name, each in tried if next(turn) % each_of == 0]
        if route.file is not None:
            answers += [asker.ask(route, {}, each) for each in bodies]
        assert [each.text for each in answers if "of-another\n" in each.text or each.status_code >= 500] == [], (
            route.path
        )
    assert opened == []
    assert _list_beside(folder) == before


def test_numbers_have_an_end_and_a_walk_ends_where_nothing_follows(asker: Asker) -> None:
    asked = "/api/v1/lineage/column?feed=clicks&column=url&levels="
    assert asker.client.get(f"{asked}{2**53}").status_code == 200
    refused = asker.client.get(f"{asked}{2**53 + 1}")
    assert (refused.status_code, "at most 9,007,199,254,740,992" in refused.text) == (400, True)


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.parametrize("each_of", [61, drill(1)])
def test_wild_values_have_answers_that_the_document_knows(asker: Asker, folder: Path, each_of: int) -> None:
    turn, wrong = count(), []
    for route in list_routes():
        values = IN_JSON if asker.takes_json(route) else IN_QUERY
        for name, _ in asker.iter_parameters(route):
            for value in values:
                if next(turn) % each_of == 0:
                    answer = asker.ask(route, {name: value})
                    if str(answer.status_code) not in asker.describe(route)["responses"]:
                        wrong.append((route.path, name, repr(value)[:40], answer.status_code, answer.text[:300]))
        if route.does is not Does.READS:
            asker.client.post("/api/v1/admin/safemode", json={"switch": "off"})
            asker.client.post("/api/v1/entity/submit-and-schedule", content=(folder / "all.yaml").read_bytes())
    assert wrong == []
