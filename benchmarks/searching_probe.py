"""Measures searches among described entities, against a scan of their texts and against the full-text index of the same
database: FTS5 of SQLite, `tsvector` of PostgreSQL. All read a page of 20 entities that are not hidden, the best first
and then by name. Arguments: folder, database system, entities, queries of each kind.
"""

import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from sqlalchemy import Connection, TextClause, bindparam, text

from benchmarks.catalogue import OWNERS, Entry, make_entries, write_entries
from feed_assets.catalog.search.index import SearchIndex
from feed_assets.catalog.search.records import SearchFilter, SearchQuery
from feed_assets.catalog.search.search import parse_query, search
from feed_assets.sql.database import Database, open_database

PAGE = 20
WORD = "word"
PREFIX = "prefix of three letters"
COLUMN = "column"
OWNER = "key:value of 1 %"

_FTS = {
    "sqlite": (
        "CREATE VIRTUAL TABLE peer_index USING fts5(body, content='')",
        "INSERT INTO peer_index(rowid, body) SELECT id, body FROM peer",
        "SELECT peer.id FROM peer_index JOIN peer ON peer.id = peer_index.rowid "
        "WHERE peer_index MATCH :query AND NOT hidden ORDER BY rank, name LIMIT :page",
    ),
    "postgresql": (
        "ALTER TABLE peer ADD COLUMN words tsvector",
        "UPDATE peer SET words = to_tsvector('simple', body); CREATE INDEX peer_words ON peer USING gin(words); "
        "VACUUM ANALYZE",
        "SELECT id FROM peer, to_tsquery('simple', :query) q WHERE words @@ q AND NOT hidden "
        "ORDER BY ts_rank(words, q) DESC, name LIMIT :page",
    ),
}
_SCAN = {
    "sqlite": "SELECT id FROM peer WHERE body LIKE :query AND NOT hidden ORDER BY name LIMIT :page",
    "postgresql": "SELECT id FROM peer WHERE body ILIKE :query AND NOT hidden ORDER BY name LIMIT :page",
}


def main(folder: str, system: str, count: str, repeats: str) -> None:
    """Print the median seconds of each kind of query for each searcher, and how often an exact name came first."""
    entries = make_entries(int(count))
    with open_state(Path(folder), system) as database:
        begun = time.perf_counter()
        for done in write_entries(database, entries):
            print(f"{system}: {done:,} entities", file=sys.stderr)
        written = time.perf_counter() - begun
        lay_peer(database, entries)
        queries = choose_queries(entries, int(repeats))
        found = {kind: measure(database, of_kind) for kind, of_kind in queries.items()}
        names = [each.name for each in entries if "-" not in each.name]
        some = random.Random(4).sample(names, min(len(names), 200))
        first = [search(database, SearchQuery(text=name)).results[0].name == name for name in some]
        with database.read() as connection:
            tokens = connection.scalar(text("SELECT count(*) FROM fa_search_tokens"))
    result = {"kinds": found, "tokens": tokens, "seconds": written, "exact_first": sum(first) / len(first)}
    print(json.dumps(result))


@contextmanager
def open_state(folder: Path, system: str) -> Iterator[Database]:
    """Open an empty database with our tables: a file, or a server of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if system == "sqlite":
        with _migrated(f"sqlite:///{folder}/state.db") as database:
            yield database
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR the package says where it puts its sockets instead
        from pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="feed-assets-bench-pg-") as data:  # a short path for its socket
        server = get_server(data, cleanup_mode="stop")
        try:
            with _migrated(server.get_uri()) as database:
                yield database
        finally:
            server.cleanup()


@contextmanager
def _migrated(url: str) -> Iterator[Database]:
    database = open_database(url)
    database.migrate()
    yield database
    database.close()


def lay_peer(database: Database, entries: Sequence[Entry]) -> None:
    """Give the peers one text for each entity, and their index."""
    create, fill, _ = _FTS[database.dialect]
    rows = [{"id": number, "name": each.name, "body": each.text} for number, each in enumerate(entries, 1)]
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE peer (id integer PRIMARY KEY, name text, hidden boolean, body text)"))
        connection.execute(text("INSERT INTO peer VALUES (:id, :name, false, :body)"), rows)
        connection.execute(text(create))
        *fills, vacuum = fill.split("; ") if database.dialect == "postgresql" else (fill, "ANALYZE")
        for statement in fills:
            connection.execute(text(statement))
    with database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in ("ANALYZE", vacuum):
            connection.execute(text(statement))


def choose_queries(entries: Sequence[Entry], repeats: int) -> dict[str, list[Mapping[str, str]]]:
    """Return queries of each kind, in the three languages."""
    chance = random.Random(3)
    words = [chance.choice(each.description.split()) for each in chance.sample(entries, repeats)]
    columns = [each.columns[0][0] for each in chance.sample(entries, repeats)]
    owners = [f"person{chance.randrange(OWNERS)}" for _ in range(repeats)]
    return {
        WORD: [_query(word, word, f'"{word}"', word) for word in words],
        PREFIX: [_query(f"{word[:3]}*", word[:3], f"{word[:3]}*", f"{word[:3]}:*") for word in words],
        COLUMN: [_query(each, each, f'"{each}"', each.replace("_", " <-> ")) for each in columns],
        OWNER: [_query(f"owner:{each}", f"owner:{each} ", f'"owner {each}"', f"owner <-> {each}") for each in owners],
    }


def _query(ours: str, scan: str, fts5: str, tsquery: str) -> dict[str, str]:
    return {"ours": ours, "scan": f"%{scan}%", "sqlite": fts5, "postgresql": tsquery}


def measure(database: Database, queries: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Return the median seconds of queries: of our statement, of our whole answer, and of the peers' statements."""
    system = database.dialect
    scan = text(_SCAN[system]).bindparams(bindparam("page", PAGE))
    fts = text(_FTS[system][2]).bindparams(bindparam("page", PAGE))
    seconds: dict[str, list[float]] = {"ours": [], "answer": [], "scan": [], "index": []}
    for query in queries:
        with database.read() as connection:
            chosen = SearchFilter(terms=parse_query(query["ours"]))
            seconds["ours"].append(_time(partial(SearchIndex(connection).find, chosen, PAGE, 0)))
            seconds["scan"].append(_time(partial(_ids, connection, scan, query["scan"])))
            seconds["index"].append(_time(partial(_ids, connection, fts, query[system])))
        seconds["answer"].append(_time(partial(search, database, SearchQuery(text=query["ours"]))))
    return {name: median(values) for name, values in seconds.items()}


def _ids(connection: Connection, statement: TextClause, query: str) -> list[int]:
    return list(connection.scalars(statement, {"query": query}))


def _time(ask: Callable[[], object]) -> float:
    """Return the seconds of a question that was asked once before: everything is in memory."""
    if not ask():
        raise LookupError(ask)
    begun = time.perf_counter()
    ask()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(*sys.argv[1:])
