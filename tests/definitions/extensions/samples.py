"""A recipe that makes a feed of each table, and a process that reads all of them."""

from pathlib import Path

RECIPE = """\
name: shop-tables
description: A feed of each table, and one count.
parameters:
  tables: {type: array, example: [{name: orders, hours: 1}]}
  cluster: {default: primary}
  parallel: {type: integer, default: 2}
  owner: {required: false}
"""
FEEDS = """\
# one of each table
each: param.tables
kind: feed
name: ${param.job}-${item.name}
description: ${param.owner}
frequency: hours(${item.hours})
format: csv
locations: {data: "/${item.name}/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
clusters:
  ${param.cluster}: {validity: {start: 2013-11-01T00:00Z, end: 2013-12-01T00:00Z}}
---
kind: process
name: ${param.job}-count
frequency: hours(1)
parallel: ${param.parallel}
clusters:
  ${param.cluster}: {validity: {start: 2013-11-01T00:00Z, end: 2013-12-01T00:00Z}}
workflow: {engine: sql, path: empty.sql}
"""
TABLES = [{"name": name, "hours": 1} for name in ("orders", "items", "users", "events")]


def files_of(recipe: str = RECIPE, feeds: str = FEEDS, **others: str) -> dict[str, bytes]:
    """The files of the recipe."""
    named = {f"{name}.py": text for name, text in others.items()}
    files = {"extension.yaml": recipe, "README.md": "# Tables of a shop\n", **named}
    return {
        name: text.encode() for name, text in {**files, **({"entities/feeds.yaml": feeds} if feeds else {})}.items()
    }


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
