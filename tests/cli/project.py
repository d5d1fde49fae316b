"""A project folder with a state database, and `feed-assets` given in it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from feed_assets.cli import main as cli
from feed_assets.context.heartbeat import note_tick
from feed_assets.sql.database import open_database
from tests.databases import lay_tables
from tests.definitions.verbs.harness import ALL


def prepare(folder: Path, *, schedule: str = "automatic") -> None:
    """Settings, folders, and one file `all.yaml` to submit."""
    (folder / "entities").mkdir()
    (folder / "data").mkdir()
    (folder / "counting.sql").write_text("select count(*) as n from clicks")
    (folder / "feed_assets.yaml").write_text(f"schedule: {schedule}\nstate: sqlite:///{folder}/state.db\n")
    lay_tables(folder / "state.db")
    let_ticks_come(f"sqlite:///{folder}/state.db")
    (folder / "all.yaml").write_text(yaml.safe_dump_all(ALL, sort_keys=False))


def let_ticks_come(url: str, *, until: timedelta = timedelta(0)) -> None:
    """As if Dagster was at work on each cluster of the tests until some time ago."""
    database = open_database(url)
    for cluster in ("primary", "backup", "east", "west", "here"):
        note_tick(database, cluster, datetime.now(UTC) - until)


def below(text: str) -> str:
    """What stands below the names of the columns."""
    return text.partition("\n")[2]


def rows(text: str) -> list[list[str]]:
    """The cells of a piped table, without the names of the columns."""
    return [line.split("\t") for line in below(text).splitlines()]


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Give a command; the result has output and exit code."""
    return CliRunner().invoke(cli.main, list(arguments), prog_name="feed-assets", input=stdin)


def must(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    """Give a command that ends with this code."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    return result


def shown(*arguments: str, code: int = 0) -> Any:
    """The JSON form of what a command says."""
    return json.loads(must(*arguments, "--output", "json", code=code).stdout)


def set_clock(project: Path, now: str) -> None:
    """Let the time of the data stand still."""
    replay = {"origin": now, "real_start": now, "speed": 1, "until": now}
    settings = {"state": f"sqlite:///{project}/state.db", "demo": {"replay": replay}}
    (project / "feed_assets.yaml").write_text(yaml.safe_dump(settings))


def ok(result: Result) -> str:
    """What a command prints that succeeds."""
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(result: Result) -> str:
    """What a command says that ends with 1."""
    assert result.exit_code == 1, result.output
    return result.stderr


def table(result: Result) -> list[list[str]]:
    """The rows of what a command prints."""
    return rows(ok(result))
