"""Whatever a request gives: the answer is one that the document knows, and no place beside the project is touched."""

import json
import socket
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from feed_assets.operation import Does
from feed_assets.server.openapi import describe_routes
from feed_assets.server.routes import list_routes
from tests.drills import drill
from tests.server.project import open_project, serve
from tests.server.wild import IN_JSON, IN_QUERY, Asker

opened: list[str] = []
"""The paths of opened files whose name says that they are not for us."""
SECRET = "the-secret-of-another"


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and SECRET in str(arguments[0]):
        opened.append(str(arguments[0]))


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

    database = open_project(folder, monkeypatch, state=database_url)
    monkeypatch.setattr(socket.socket, "connect", connect)
    yield Asker(serve(database), json.loads(json.dumps(describe_routes(list_routes()))))
    database.close()


def test_numbers_have_an_end_and_a_walk_ends_where_nothing_follows(asker: Asker) -> None:
    asked = "/api/v1/lineage/column?feed=clicks&column=url&levels="
    assert asker.client.get(f"{asked}{2**53}").status_code == 200
    refused = asker.client.get(f"{asked}{2**53 + 1}")
    assert (refused.status_code, "at most 9,007,199,254,740,992" in refused.text) == (400, True)


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.parametrize("each_of", [17, drill(1)])
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
        if route.operation.does is not Does.READS:
            asker.client.post("/api/v1/admin/safemode", json={"switch": "off"})
            asker.client.post("/api/v1/entity/submit-and-schedule", content=(folder / "all.yaml").read_bytes())
    assert wrong == []
