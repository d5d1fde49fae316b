"""What differs here from Falcon for an imported entity, and its Hive script as SQL of this program."""

import re
from collections.abc import Collection, Iterator
from difflib import unified_diff
from pathlib import Path

from feed_assets.engines.workflow.arguments import parameter_name
from feed_assets.engines.workflow.sql_code import find_query
from feed_assets.engines.workflow.sql_script import parse_statements
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import LocationKind
from feed_assets.entities.datasource import Datasource, Interface
from feed_assets.entities.feed import Feed, find_targets
from feed_assets.entities.process import Process
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.issues import FieldPath
from feed_assets.timing.templates import find_variables

_LAST_YEAR = 2099
"""What Falcon's documents write for no end."""
_TABLE = re.compile(r"\$\{(?:\w+:)?falcon_(\w+)_database\}\s*\.\s*\$\{(?:\w+:)?falcon_\1_table\}")
_FILTER = re.compile(r"\$\{(?:\w+:)?falcon_\w+_filter(?:_hive)?\}")  # ${falcon_clicks_filter}
_PARAMETER = re.compile(r"(['\"]?)\$\{(?:hiveconf:|hivevar:)?(\w+)\}\1")  # '${hiveconf:day}'


def iter_differences(entity: AnyEntity, bundle: Bundle) -> Iterator[tuple[FieldPath, str]]:
    """Yield what docs/falcon.md says of an entity like this one, each with its place; `bundle` has all entities."""
    match entity:
        case Cluster(storage=storage, name=name):
            others = [each.name for each in bundle.clusters if each.storage == storage and each.name != name]
            if others:
                yield ("storage",), f"the storage is that of cluster {' and '.join(others)}, too: a path is one place"
        case Datasource():
            for path, name in _iter_files(entity):
                if "://" not in name:
                    yield path, f"{name} is a file of this machine, in Falcon one of HDFS: write hdfs://… for that"
        case Feed():
            yield from _iter_of_feed(entity)
        case Process() if entity.workflow.engine is WorkflowEngine.SQL:
            yield (
                ("workflow",),
                "a SQL script reads each input as a view with its instances alone; its last result becomes the output, "
                "so it does not insert",
            )


def _iter_files(source: Datasource) -> Iterator[tuple[FieldPath, str]]:
    """Yield the jars and files of passwords that a datasource names."""
    holders: dict[FieldPath, Datasource | Interface | None] = {
        (): source,
        ("interfaces", "readonly"): source.interfaces.readonly,
        ("interfaces", "write"): source.interfaces.write,
    }
    for path, holder in holders.items():
        if holder is not None and holder.driver is not None:
            yield from (((*path, "driver", "jars", n), jar) for n, jar in enumerate(holder.driver.jars))
        if holder is not None and holder.credential is not None and holder.credential.password_file is not None:
            yield (*path, "credential", "password_file"), holder.credential.password_file


def _iter_of_feed(feed: Feed) -> Iterator[tuple[FieldPath, str]]:
    kept = {name: entry for name, entry in feed.clusters.items() if entry.retention and entry.retention.limit}
    ended = [name for name, entry in kept.items() if entry.validity.end.year < _LAST_YEAR]
    for names, message in (
        (
            [*kept],
            "runs as often as its limit requires, in Falcon at the feed's frequency, and removes only what matches a "
            "path to the last letter",
        ),
        (
            [name for name in ended if (found := kept[name].retention) and found.after_validity],
            "goes on after the end of the validity, in Falcon it stops then: write after_validity: false for that",
        ),
    ):
        if names:
            yield ("clusters", names[0], "retention"), f"retention on {' and '.join(names)} {message}"
    for name in feed.clusters:
        for kind in LocationKind:
            locations = feed.locations_on(name)
            text = locations.find(kind) if locations is not None else None
            if locations is not None and text is not None and find_variables(text) != find_variables(locations.data):
                message = f"locations.{kind} is shared by instances: it is as old as the youngest of them"
                yield ("locations", kind.value), message
    for name, entry in feed.clusters.items():
        if entry.import_ is not None and not entry.import_.source.extract.history:
            message = f"the import on {name} reads the whole table for the newest due instance only, in Falcon for each"
            yield ("clusters", name, "import"), f"{message}: write extract: {{history: true}} for that"
    if any(find_targets(feed)):
        message = "replicas are replaced as a whole, and keep files that a source without a manifest has lost"
        yield ("clusters",), message
        if feed.properties.get("ignoreErrors", "").lower() == "true":
            message = (
                "ignoreErrors: if a file cannot be copied nothing is published; Falcon publishes what it could copy"
            )
            yield ("properties", "ignoreErrors"), message


def compare_script(process: Process, source: str) -> tuple[str, ...]:
    """Return the lines of the difference between a Hive script, found beside its document, and what runs here; none if
    there is no script, or nothing to change.
    """
    path = Path(process.workflow.path)
    places = (path, Path(source).parent / path.name)
    text = next((text for place in places if (text := _read_script(place)) is not None), None)
    if process.workflow.engine is not WorkflowEngine.SQL or text is None:
        return ()
    name = f"{path.stem}.sql"
    changed = adapt_script(text, process.outputs)
    return tuple(unified_diff(text.splitlines(), changed.splitlines(), path.name, name, lineterm=""))


def _read_script(path: Path) -> str | None:
    """Return a script; None if there is no such file, or it cannot be read."""
    try:
        return path.read_text("utf-8", "replace") if path.is_file() else None
    except OSError:  # such as a name that is too long, or a file of somebody else
        return None


def adapt_script(text: str, outputs: Collection[str]) -> str:
    """Return a Hive script of Falcon as a SQL workflow: inputs are views, properties are parameters, and the result of
    a query is an output instead of what is inserted into its table.

    >>> adapt_script("INSERT INTO TABLE ${falcon_out_database}.${falcon_out_table} SELECT '${day}' FROM a", ["out"])
    'SELECT :day FROM a'
    """
    text = _FILTER.sub("true", _TABLE.sub(r"\1", text))
    text = _PARAMETER.sub(r":\2", text)
    for statement in parse_statements(text):
        found = find_query(statement.text)
        if found is None:
            continue
        begins, query, names = found
        output = next((name for name in outputs if parameter_name(name) in names), None)
        marker = f"-- output: {output}\n" if output is not None and len(outputs) > 1 else ""
        changed = statement.text[:begins] + marker + statement.text[query:]
        text = text.replace(statement.text, changed, 1)
    return text
