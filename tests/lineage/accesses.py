"""Accesses in a few words: `P1/run1: D1 read, D2 write` or `run1: D1 write, D2 read (program1)`."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from feed_assets.lineage.windows import Access, DataAccess, Relation, Touching

FIRST = datetime(2013, 11, 1, tzinfo=UTC)


def data(name: str, cluster: str = "primary") -> Touching:
    return Touching("feed", name, cluster)


def program(name: str, cluster: str = "primary") -> Touching:
    return Touching("process", name, cluster)


def written(relation: Relation) -> str:
    return f"{relation.data.name},{relation.program.name},{relation.access}"


def read_accesses(lines: Iterable[str]) -> Iterator[DataAccess]:
    """The accesses of some runs, each an hour after the one before. An unknown one is none here."""
    for number, line in enumerate(lines):
        runner, _, touched = line.partition(": ")
        name, _, run = runner.rpartition("/")
        touched, _, behind = touched.partition(" (")
        name = name or behind.rstrip(")").replace("program", "P") or run
        for each in touched.split(", "):
            of, access = each.split()
            if access != "unknown":
                yield DataAccess(data(of), program(name), Access(access), run, FIRST + timedelta(hours=number))
