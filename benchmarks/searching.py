"""(j) Searches among 100,000 described entities, on SQLite and PostgreSQL: against a scan of their texts, against the
full-text index of the same database, and against Dagster's own question for assets.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, faster

SYSTEMS = {"sqlite": ("LIKE", "FTS5"), "postgresql": ("ILIKE", "tsvector and GIN")}
SCAN_AT_LEAST, INDEX_AT_LEAST, DAGSTER_AT_LEAST, SERVER_AT_LEAST = 20, 1, 50, 5


def measure_searching(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure each kind of query on both databases, whether an exact name comes first, and Dagster's question."""
    count, repeats, assets = scale.choose((100_000, 40, 5_000), (20_000, 20, 1_000), (300, 2, 100))
    for system, (scan, index) in SYSTEMS.items():
        say(f"searching: {count:,} entities on {system}; takes minutes")
        found = run_probe("searching_probe", folder / system, system, count, repeats)
        shutil.rmtree(folder / system, ignore_errors=True)
        size = f"{count:,} entities, {found['tokens']:,} words, {system}"
        for kind, of in found["kinds"].items():
            answer = f"the whole answer, with what is said of 20 entities: {of['answer'] * 1_000:,.1f} ms"
            name = f"search for a {kind}; {size}"
            yield faster(
                Part.SEARCHING, name, of["ours"], f"{scan} of a text", of["scan"], at_least=SCAN_AT_LEAST, note=answer
            )
            yield faster(Part.SEARCHING, name, of["ours"], index, of["index"], at_least=INDEX_AT_LEAST)
        yield Figure(
            part=Part.SEARCHING,
            name=f"exact names that come first; {size}",
            ours=100 * found["exact_first"],
            unit=" %",
            target="100 %",
            is_met=found["exact_first"] == 1,
        )
    say("searching: Dagster's question")
    asked = run_probe("searching_peer", folder / "peer", assets, repeats)
    name = f"the whole answer to a search that finds 10 of {assets:,} assets by a property"
    graphql = "Dagster's GraphQL assetsOrError"
    yield faster(
        Part.SEARCHING,
        name,
        asked["ours"],
        f"{graphql} of all assets, looked through",
        asked["browsing"],
        at_least=DAGSTER_AT_LEAST,
        note="no filter of Dagster finds words of metadata",
    )
    prefix = f"{graphql} with a prefix of keys"
    yield faster(Part.SEARCHING, name, asked["ours"], prefix, asked["theirs"])
    by_http = f"{name}, by HTTP"
    webserver = f"the webserver's {prefix}"
    yield faster(
        Part.SEARCHING, by_http, asked["by_http"], webserver, asked["theirs_by_http"], at_least=SERVER_AT_LEAST
    )
