"""Measures Dagster's own question for assets, GraphQL's `assetsOrError` with a filter, and the same by our search: in
one process, over the same names. Arguments: folder, assets, repeats.
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import dagster as dg
import uvicorn
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster_graphql.test.utils import execute_dagster_graphql
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.applications import Starlette

from feed_assets.catalog.search.records import SearchQuery
from feed_assets.catalog.search.search import search
from feed_assets.catalog.writing import Target, Writing, write_many
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope, Update
from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database

_SAID = "key { path } definition { description groupName tags { key value } metadataEntries { label } }"
FILTERED = f"""
query Find($prefix: [String!]!) {{
  assetsOrError(prefix: $prefix) {{ ... on AssetConnection {{ nodes {{ {_SAID} }} }} }}
}}
"""
EVERYTHING = f"{{ assetsOrError {{ ... on AssetConnection {{ nodes {{ {_SAID} }} }} }} }}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def build_peer(count: int) -> dg.Definitions:
    """Build assets without code, in groups of ten."""
    return dg.Definitions(
        assets=[
            dg.AssetSpec(["lake", f"team-{number // 10}", f"table-{number}"], metadata={"team": f"team-{number // 10}"})
            for number in range(count)
        ]
    )


def main(folder: str, count: str, repeats: str) -> None:
    """Print the median seconds of both for ten of the assets."""
    size = int(count)
    module = Path(folder) / "peer_definitions.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"from benchmarks.searching_peer import build_peer\n\ndefs = build_peer({size})\n")
    database = describe(Path(folder), size)
    target = InProcessWorkspaceLoadTarget(
        InProcessCodeLocationOrigin(
            loadable_target_origin=LoadableTargetOrigin(python_file=str(module), working_directory=str(folder))
        )
    )
    teams = [f"team-{number * 7 % (size // 10)}" for number in range(int(repeats))]
    with dg.DagsterInstance.local_temp() as instance, WorkspaceProcessContext(instance, target) as process:
        context = process.create_request_context()
        theirs = [_time(partial(ask_dagster, context, team)) for team in teams]
        browsing = [_time(partial(browse_dagster, context, team)) for team in teams[:3]]
        with serving(create_app_from_workspace_process_context(process)) as connection:
            theirs_by_http = [_time(partial(ask_webserver, connection, team)) for team in teams]
    ours = [_time(partial(ask, database, team)) for team in teams]
    with serving(build_server(Path(folder), database)) as connection:
        by_http = [_time(partial(ask_server, connection, team)) for team in teams]
    database.close()
    found = {"theirs": theirs, "browsing": browsing, "ours": ours}
    found |= {"theirs_by_http": theirs_by_http, "by_http": by_http}
    print(json.dumps({name: median(times) for name, times in found.items()}))


def describe(folder: Path, count: int) -> Database:
    """Describe the same names."""
    database = open_database(f"sqlite:///{folder}/state.db")
    database.migrate()
    key = MetadataKey(Scope.USER, MetadataKind.PROPERTY, "team")
    writings = [
        Writing(
            target=Target(path=f"table/table-{number}", kind="table", name=f"table-{number}", is_declared=False),
            mutations=[Update({key: MetadataValue(f"team-{number // 10}", Origin.PROGRAM, "bench")})],
            author="bench",
        )
        for number in range(count)
    ]
    with database.begin() as connection:
        write_many(connection, writings, origin=Origin.PROGRAM, now=NOW)
    return database


def ask_dagster(context: Any, team: str) -> int:
    """Ask for the assets whose keys begin so."""
    result = execute_dagster_graphql(context, FILTERED, {"prefix": ["lake", team]})
    return len(result.data["assetsOrError"]["nodes"])


def browse_dagster(context: Any, team: str) -> int:
    """Ask for all assets and look through them, as Dagster's pages do: no question finds words of metadata."""
    result = execute_dagster_graphql(context, EVERYTHING)
    return sum(team in node["key"]["path"] for node in result.data["assetsOrError"]["nodes"])


def ask(database: Database, team: str) -> int:
    return len(search(database, SearchQuery(text=f"team:{team}")).results)


def build_server(folder: Path, database: Database) -> Starlette:
    """Return our application, of a project without definitions."""
    (folder / "entities").mkdir()
    (folder / "feed_assets.yaml").write_text(f"state: sqlite:///{folder}/state.db\n")
    return build_application(load_settings(start=(folder,)), database)


@contextmanager
def serving(application: Starlette) -> Iterator[HTTPConnection]:
    """Serve an application on the loopback; yields a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        connection = HTTPConnection(*listening.getsockname())
        yield connection
        connection.close()
        server.should_exit = True
        thread.join()


def ask_webserver(connection: HTTPConnection, team: str) -> int:
    """Ask Dagster's webserver for the assets whose keys begin so."""
    asked = {"query": FILTERED, "variables": {"prefix": ["lake", team]}}
    connection.request("POST", "/graphql", json.dumps(asked), {"Content-Type": "application/json"})
    return len(json.loads(connection.getresponse().read())["data"]["assetsOrError"]["nodes"])


def ask_server(connection: HTTPConnection, team: str) -> int:
    """Ask the server the same."""
    connection.request("GET", f"/api/v1/search?text=team:{team}")
    return len(json.loads(connection.getresponse().read())["results"])


def _time(question: Callable[[], int]) -> float:
    """Return the seconds of a question that was asked once before, and finds ten."""
    if question() != 10:
        raise LookupError(question)
    begun = time.perf_counter()
    question()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(*sys.argv[1:])
