"""The index and the descriptions are proved and mended, and hold after writers were killed."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, func, insert, select, update

from feed_assets.catalog.reindexing import Reindexed, reindex
from feed_assets.catalog.tables import entity_metadata, metadata_changes, metadata_entities, search_tokens
from feed_assets.entities.metadata import MetadataKind, Scope
from feed_assets.log.messages.outbox import outbox
from feed_assets.log.tables import audit
from feed_assets.sql.database import Database
from tests.catalog.described import Described, described
from tests.definitions.workers import FORK
from tests.drills import drill_seed, sized
from tests.instances.harness import feed

PATIENCE = 60.0


@pytest.fixture
def found(tmp_path: Path, state_url: str) -> Iterator[Described]:
    with described(tmp_path, feed("flights", schema="carrier string, dep_delay double"), state=state_url) as one:
        yield one


def check(found: Described, *, dry_run: bool = True) -> Reindexed:
    return reindex(found.later().by("ann", dry_run=dry_run))


def faults(done: Reindexed) -> tuple[int, int, int, int | None]:
    return (done.missing, done.extra, done.orphans, done.descriptions)


def test_what_is_written_is_sound_and_nothing_is_noted(found: Described) -> None:
    found.say("feed/flights", {"checked": "yes"}, ["public"])
    found.say("dashboard/otd", {"owner": "ann"})
    found.drop("dashboard/otd")
    with found.lifecycle.database.read() as connection:
        before = connection.scalar(select(func.count()).select_from(audit))
    for dry_run in (True, False):
        done = check(found, dry_run=dry_run)
        assert (done.is_sound, done.entities, faults(done)) == (True, 4, (0, 0, 0, 0))
    with found.lifecycle.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(audit)) == before


def test_faults_of_the_index_are_found_then_mended_and_noted(found: Described) -> None:
    found.say("feed/flights", {"checked": "yes"}, ["public"])
    extra = {"token": "odd", "field": "odd", "scope": Scope.USER, "weight": 1, "number": None}
    with found.lifecycle.database.begin() as connection:
        connection.execute(delete(search_tokens).where(search_tokens.c.token == "public"))
        connection.execute(update(search_tokens).where(search_tokens.c.token == "yes").values(weight=7))
        connection.execute(insert(search_tokens), [{**extra, "entity": 1}, {**extra, "entity": 99}])
    assert faults(check(found)) == (2, 2, 1, 0)
    assert found.find("public") == []
    assert faults(check(found, dry_run=False)) == (2, 2, 1, 0)
    assert faults(check(found)) == (0, 0, 0, 0)
    assert (found.find("public"), found.find("odd")) == (["flights"], [])
    with found.lifecycle.database.read() as connection:
        newest = connection.execute(select(audit).order_by(audit.c.seq.desc()).limit(1)).one()
    assert (newest.action, newest.author) == ("metadata reindex", "ann")


def test_descriptions_that_are_not_what_is_declared_are_written_again(found: Described) -> None:
    is_type = (entity_metadata.c.name == "type") & (entity_metadata.c.kind == MetadataKind.PROPERTY)
    with found.lifecycle.database.begin() as connection:
        connection.execute(update(entity_metadata).where(is_type).values(value="nonsense"))
        connection.execute(delete(metadata_entities).where(metadata_entities.c.path == "feed/flights"))
        connection.execute(
            update(metadata_entities).where(metadata_entities.c.kind == "cluster").values(path="cluster/gone")
        )
    wrong = check(found)
    assert (wrong.descriptions, wrong.orphans > 0, found.find("dep_delay:double")) == (5, True, [])
    check(found, dry_run=False)
    assert check(found).is_sound
    assert (found.find("dep_delay:double"), found.find("type:nonsense")) == (["flights"], [])
    assert sorted(each.entity for each in found.page("*").results) == [
        "cluster/primary",
        "feed/flights",
        "feed/flights/column/carrier",
        "feed/flights/column/dep_delay",
    ]


@pytest.mark.sample
def test_writers_that_are_killed_leave_whole_changes_only(found: Described) -> None:
    """Each change has its message and its audit row, and the index is what the metadata say."""
    writes, kills = sized((60, 3), (500, 25))
    chance = random.Random(drill_seed())
    database = found.lifecycle.database
    before = counts(database)
    for kill in range(kills):
        written = counts(database)[0] - before[0]
        until = written + chance.randint(1, max(1, (writes - written) // (kills - kill)))
        worker = FORK.Process(target=write, args=(found, written, writes), daemon=True)
        worker.start()
        give_up = time.monotonic() + PATIENCE
        while counts(database)[0] - before[0] < until and worker.is_alive() and time.monotonic() < give_up:
            time.sleep(chance.uniform(0, 0.01))
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        assert check(found).is_sound
        changes, messages, audited = (now - then for now, then in zip(counts(database), before, strict=True))
        assert changes == messages == audited >= min(until, writes)
    assert worker.exitcode == -signal.SIGKILL


def write(found: Described, first: int, end: int) -> None:
    """Say something new of one of some entities, again and again."""
    for number in range(first, end):
        path = ("feed/flights", "feed/flights/column/carrier", f"dashboard/d{number % 7}")[number % 3]
        found.say(
            path, {"checked": f"{os.getpid()} {number} times", f"key{number % 5}": str(number)}, [f"t{number % 11}"]
        )
    time.sleep(PATIENCE)


def counts(database: Database) -> tuple[int, int, int]:
    """Changes, messages about them, and audited changes."""
    with database.read() as connection:
        return (
            connection.scalar(select(func.count()).select_from(metadata_changes)) or 0,
            connection.scalar(select(func.count()).select_from(outbox).where(outbox.c.topic == "metadata")) or 0,
            connection.scalar(select(func.count()).select_from(audit).where(audit.c.action == "metadata")) or 0,
        )
