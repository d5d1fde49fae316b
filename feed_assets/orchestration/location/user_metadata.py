"""What people and programs say of feeds, processes and columns, read once when a location is loaded for Dagster.

What files say is in the plan. A run loads the location again, and shows nothing: it does not read. In Dagster, the
context that tells the two apart is not public; `tests/orchestration/test_user_metadata.py` checks it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import MetadataKey
from feed_assets.masking import get_logger
from feed_assets.settings import Settings

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMetadata:
    """What is said, by the path of the entity; the `revision` of the state, None if it was not asked."""

    said: Mapping[str, Mapping[MetadataKey, str]] = field(default_factory=lambda: EMPTY)
    revision: str | None = None


def load_user_metadata(settings: Settings) -> UserMetadata:
    """Read what people and programs say, in one query. A state that is not there yet, or cannot be asked, says nothing.

    The state is that of the settings, or beside the Dagster instance of DAGSTER_HOME.
    """
    if DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION:
        return UserMetadata()
    # Measured: these import SQLAlchemy, which a run does not need to load its location.
    from feed_assets.state.cursors import Cursors
    from feed_assets.state.dagster_home import find_state_url
    from feed_assets.state.database import open_database
    from feed_assets.state.errors import StateError
    from feed_assets.state.metadata_store import REVISION, MetadataStore

    home = os.environ.get("DAGSTER_HOME")
    url = settings.state or (find_state_url(Path(home), os.environ) if home else None)
    if url is None:
        return UserMetadata()
    database = open_database(url, settings.namespace)
    try:
        if not database.exists():
            return UserMetadata(revision="")
        with database.read() as connection:
            said = MetadataStore(connection).said_beside_files()
            return UserMetadata(said=said, revision=Cursors(connection).get(REVISION) or "")
    except StateError as exc:
        _logger.info("Dagster shows no metadata of people and programs: %s", exc)
        return UserMetadata()
    finally:
        database.close()
