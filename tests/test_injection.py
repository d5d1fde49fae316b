"""What people write into entities never reaches a shell, `eval`, or SQL as text."""

import ast
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from feed_assets.definitions.store import record_declared
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.location import declare_location
from feed_assets.settings import Settings
from tests.databases import open_migrated
from tests.documents.markdown import ROOT

NOW = datetime(2024, 1, 1, tzinfo=UTC)
FORBIDDEN = {"eval", "exec", "compile", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
SQL_TEXT = {"text", "exec_driver_sql", "literal_column"}
CONSTANT_NAMES = {"VERSION_TABLE", "LOCK_KEY", "LOCK_WAIT_SECONDS", "SQLITE_CACHE_KIB", "PROPERTIES_FIELD"}
"""What may stand in SQL that is put together: constants of our own."""


@cache
def calls() -> tuple[tuple[str, str, ast.Call], ...]:
    """Every call in the product: its place, the name of what is called, and itself."""
    return tuple(
        (f"{file.relative_to(ROOT)}:{node.lineno}", name_of(node.func), node)
        for file in (ROOT / "feed_assets").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
    )


def name_of(called: ast.expr) -> str:
    """The name of what is called, such as `os.system`; what stands before a dot is left out where it is no name."""
    match called:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{name_of(value)}.{name}"
    return ""


def test_nothing_is_evaluated_and_no_shell_is_started() -> None:
    found = [
        f"{place} {name}"
        for place, name, call in calls()
        if name in FORBIDDEN or any(word.arg == "shell" for word in call.keywords)
    ]
    assert found == []


def test_sql_is_put_together_from_constants_only() -> None:
    found = [
        f"{place} {part}"
        for place, name, call in calls()
        if name.rpartition(".")[2] in SQL_TEXT
        for argument in call.args
        if isinstance(argument, ast.JoinedStr)
        for value in argument.values
        if isinstance(value, ast.FormattedValue) and (part := ast.unparse(value.value)) not in CONSTANT_NAMES
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE fa_definitions; --", '"$(touch /tmp/x)`id`', "${__import__('os')}", "%s {0}"]
)
def test_hostile_texts_are_kept_as_they_are(text: str, tmp_path: Path) -> None:
    cluster = Cluster(name="primary", storage=f"file://{tmp_path}", description=text)
    feed = Feed(
        name="clicks",
        frequency="days(1)",
        description=text,
        tags={"note": text.replace(",", " ")},
        properties={text: text},
        locations={"data": "/clicks/${YEAR}/${MONTH}/${DAY}"},
        clusters={"primary": {"validity": {"start": "2024-01-01T00:00Z"}}},
    )
    location = declare_location([cluster, feed])
    database = open_migrated(f"sqlite:///{tmp_path / 'state.db'}")
    record_declared(database, location.declared or (), NOW, Settings())
    with database.read() as connection:
        kept = Definitions(connection).find_newest("feed", "clicks")
        assert len(Definitions(connection).newest()) == 2
    assert kept is not None
    assert location.plan.feeds["clicks", "primary"].facts.description == text
    database.close()
