"""The door for programs outside of runs: read, write and search metadata, with the project's own settings."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from feed_assets.catalog.editing import MetadataResult, get_metadata, update_metadata
from feed_assets.catalog.search.records import PAGE, SearchQuery
from feed_assets.catalog.search.search import SearchResult, search
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.definitions.ownership import require_own_database
from feed_assets.engines.run_metadata import render_text
from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import Origin, Scope
from feed_assets.project_homes import state_unknown
from feed_assets.settings import Settings, load_settings, project_environment
from feed_assets.sql.dagster_home import find_state
from feed_assets.sql.database import open_state_database


class OpenMetadata:
    """The metadata of a project; made by `open_metadata`. Feeds and processes are those that were declared then."""

    def __init__(self, context: OperationContext, author: str) -> None:
        self._context = context
        self._author = author

    def get(self, entity: str) -> Mapping[str, Any]:
        """Return what is said of an entity: `{"USER": {"properties": {…}, "tags": […]}, "SYSTEM": {…}}`.

        Raises:
            MetadataRefusedError: this is no path of an entity.
            EntityNotFoundError: it does not exist.
        """
        return get_metadata(self._now(), entity).by_scope()

    def put(
        self, entity: str, properties: Mapping[str, object] = EMPTY, *, tags: Collection[str] = ()
    ) -> MetadataResult:
        """Add properties and tags to an entity, and overwrite properties that are there; return the change.

        Raises:
            MetadataRefusedError: a name or value cannot be written, or a file says it.
            EntityNotFoundError: the entity does not exist.
        """
        texts = {name: render_text(entity, name, value) for name, value in properties.items()}
        return update_metadata(self._now().by(self._author), entity, texts, tags, origin=Origin.PROGRAM)

    def tag(self, entity: str, *tags: str) -> MetadataResult:
        """Add tags to an entity; return the change. Errors are those of `put`."""
        return self.put(entity, tags=tags)

    def search(
        self, query: str, *, kinds: Collection[str] = (), scope: str | None = None, offset: int = 0, limit: int = PAGE
    ) -> tuple[SearchResult, ...]:
        """Return the entities that a query finds, as `feed-assets search` does, the best first.

        Raises:
            MetadataRefusedError: this is no query, or no scope.
        """
        if scope is not None and scope.upper() not in list(Scope):
            reason, next_step = "there is no such scope", "Write user or system."
            raise MetadataRefusedError(entity=f"scope {scope!r}", reason=reason, next_step=next_step)
        of_scope = Scope(scope.upper()) if scope is not None else None
        wanted = SearchQuery(text=query, kinds=tuple(kinds), scope=of_scope, offset=offset, limit=limit)
        return search(self._context.database, wanted).results

    def _now(self) -> OperationContext:
        return replace(self._context, as_of=self._context.clock.now())


@contextmanager
def open_metadata(
    *, author: str, folder: Path | None = None, settings: Settings | None = None
) -> Iterator[OpenMetadata]:
    """Open the metadata of a project for a program outside of runs. What it writes is of the origin `program`.

    ```python
    with open_metadata(author="nightly-check") as metadata:
        metadata.put("feed/flights", {"checked": "2013-11-03"}, tags=["reviewed"])
    ```

    Args:
        author: who writes, for the history.
        folder: where the search for `feed_assets.yaml` begins, as that of commands, which read `.env` beside it; None
            means the working directory.
        settings: None reads them (see `load_settings`).

    Raises:
        SettingsError: a setting is wrong, or nothing names the state, or it is that of another project.
        StateError: the state cannot be used.
        DefinitionsError: the location of the definitions cannot be read.
    """
    start = folder or (Path.cwd() if settings is None else settings.root)
    with project_environment(start):
        settings = settings or load_settings(start=start)
        url = find_state(settings, os.environ)
        if url is None:
            raise state_unknown(settings, (*settings.tried[:-1], "the Dagster instance of DAGSTER_HOME"))
        database = open_state_database(url, settings)
        try:
            database.migrate()
            require_own_database(database, settings)
            yield OpenMetadata(open_context(settings, database), author)
        finally:
            database.close()
