"""A store of definitions with short words for what tests do with it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets.definitions.edits import Edit, Put, Remove
from feed_assets.definitions.folder import DefinitionFolder, open_folder
from feed_assets.definitions.journal import Journal
from feed_assets.definitions.store import Check, DefinitionStore
from feed_assets.definitions.verification import verify_store
from feed_assets.loading.entity_files import Values
from feed_assets.log.definitions.records import Change, DefinitionVersion
from feed_assets.log.definitions.store import Definitions
from feed_assets.sql.database import Database

NOW = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NO_VALUES = Values(variables={}, environ={})


def feed_text(name: str, hours: int = 1, comment: str = "") -> str:
    """A feed as people write it."""
    head = f"# {comment}\n" if comment else ""
    return (
        f"{head}kind: feed\n"
        f"name: {name}\n"
        f"frequency: hours({hours})  # how often\n"
        'locations: {data: "/' + name + '/${YEAR}/${MONTH}/${DAY}/${HOUR}"}\n'
        "clusters:\n"
        "  primary: {validity: {start: 2015-01-01T00:00Z}}\n"
    )


def put(name: str, hours: int = 1, **fields: Any) -> Put:
    """Declare a feed."""
    return Put(text=feed_text(name, hours, **fields))


def remove(name: str) -> Remove:
    """Declare a feed no longer."""
    return Remove(key=("feed", name))


@dataclass(slots=True, kw_only=True)
class DefinitionsHarness:
    """A store at a location; `reopened` is what another process would see."""

    database: Database
    location: str
    values: Values = NO_VALUES
    _store: DefinitionStore | None = None

    @property
    def folder(self) -> DefinitionFolder:
        return open_folder(self.location)

    @property
    def store(self) -> DefinitionStore:
        if self._store is None:
            self._store = self.reopened()
        return self._store

    def reopened(self) -> DefinitionStore:
        return DefinitionStore(self.database, self.folder, self.values)

    def change(
        self, *edits: Edit, author: str = "me", now: datetime = NOW, check: Check | None = None
    ) -> Change | None:
        return self.store.change(edits, author=author, origin="a test", now=now, check=check)

    def recover(self) -> list[Change]:
        """Finish or undo interrupted changes, as whoever changes or records definitions next does first."""
        with self.database.changing_definitions():
            return Journal(self.database, self.folder, self.values).recover(NOW)

    def hours(self) -> dict[str, int]:
        """The frequency of each feed that can be used."""
        return {feed.name: feed.frequency.count for feed in self.store.load(NOW).bundle.bundle.feeds}

    def files(self) -> dict[str, str]:
        """What is written where, in a local folder."""
        root = Path(self.location)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_text() for path in files}

    def write(self, name: str, text: str) -> None:
        """Edit a file by other means."""
        file = Path(self.location) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def history(self, name: str, kind: str = "feed") -> list[DefinitionVersion]:
        with self.database.read() as connection:
            return Definitions(connection).history(kind, name)

    def actions(self, name: str, kind: str = "feed") -> list[str]:
        return [version.action.value for version in self.history(name, kind)]

    def problems(self) -> list[str]:
        """What the checker says."""
        issues = verify_store(self.database, self.folder, self.values, NOW)
        return [f"{issue.severity.value} {issue.code}: {issue.render()}" for issue in issues]
