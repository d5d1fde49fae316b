"""Paths that others know, over the project of a harness."""

from collections.abc import Callable
from datetime import datetime

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from feed_assets.access.principals import Principal
from feed_assets.cli.door import Door, Screen
from feed_assets.context.operation import OperationContext
from feed_assets.definitions.store import open_store
from feed_assets.server.aliases.endpoint import mount_aliases
from feed_assets.server.waiting import Threads
from feed_assets.settings import Settings
from tests.context.contexts import context_of
from tests.instances.harness import LifecycleHarness


def serve_paths(open_context: Callable[[], OperationContext]) -> TestClient:
    """Return a client of the paths that others know."""

    def open_door(_: Request, screen: Screen) -> Door:
        settings = Settings(actions="off")
        database = open_context().database
        return Door(
            settings=settings,
            database=database,
            principal=Principal(name="ann"),
            open_context=open_context,
            open_store=lambda: open_store(database, settings),
            screen=screen,
        )

    return TestClient(Starlette(routes=mount_aliases(open_door, Threads())), raise_server_exceptions=False)


def serve_paths_of(lifecycle: LifecycleHarness, as_of: datetime) -> TestClient:
    """Return a client of the paths that others know, at a time."""
    return serve_paths(lambda: context_of(lifecycle, as_of))
