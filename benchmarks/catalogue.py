"""Made-up entities that people have described: names, owners, texts, columns and tags of random words."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from feed_assets.catalog.writing import Target, Writing, write_many
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope, Update
from feed_assets.sql.database import Database

OWNERS = 100
WORDS = 20_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_AT_ONCE = 1_000
_TYPES = ("string", "double", "bigint", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entity: what is said of it."""

    name: str
    owner: str
    description: str
    columns: tuple[tuple[str, str], ...]
    tags: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"dataset/{self.name}"

    @property
    def text(self) -> str:
        """Everything in one text, for what searches texts."""
        columns = " ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"{self.name} owner:{self.owner} {self.description} {columns} {' '.join(self.tags)}"

    def writing(self) -> Writing:
        fields = [{"name": name, "type": kind} for name, kind in self.columns]
        schema = json.dumps({"type": "record", "name": self.name, "fields": fields})
        properties = {"owner": self.owner, "description": self.description, "schema": schema}
        said = {MetadataKey(Scope.USER, MetadataKind.PROPERTY, name): value for name, value in properties.items()}
        said |= {MetadataKey(Scope.USER, MetadataKind.TAG, tag): "" for tag in self.tags}
        values = {key: MetadataValue(value, Origin.PROGRAM, "bench") for key, value in said.items()}
        target = Target(path=self.path, kind="dataset", name=self.name, is_declared=False)
        return Writing(target=target, mutations=[Update(values)], author="bench")


def make_words() -> list[str]:
    """Return words that have nothing in common but letters."""
    chance = random.Random(1)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(5, 9)))] = None
    return list(found)


def make_entries(count: int) -> list[Entry]:
    """Return entities; up to a fifth of them are called by a single word, which also stands in the texts of others."""
    chance = random.Random(2)
    words = make_words()
    return [
        Entry(
            name=words[number] if number < min(count // 5, WORDS) else f"{chance.choice(words)}-{number}",
            owner=f"person{number % OWNERS}",
            description=" ".join(chance.choices(words, k=8)),
            columns=tuple((f"{chance.choice(words)}_{number % 50}", chance.choice(_TYPES)) for _ in range(3)),
            tags=tuple(chance.choices(words, k=2)),
        )
        for number in range(count)
    ]


def write_entries(database: Database, entries: list[Entry]) -> Iterator[int]:
    """Say everything by the code that commands and deploys use; yields how many are done."""
    for done in range(0, len(entries), _AT_ONCE):
        some = entries[done : done + _AT_ONCE]
        with database.begin() as connection:
            write_many(connection, [each.writing() for each in some], origin=Origin.PROGRAM, now=NOW)
        yield done + len(some)
