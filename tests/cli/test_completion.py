"""What a shell proposes, and what commands import before they know what to do."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete

from feed_assets.cli.main import main
from feed_assets.sql.dagster_home import find_state_url
from tests.cli.project import must, run
from tests.definitions.verbs.harness import ALL, CLICKS

HEAVY = {
    *("dagster", "sqlalchemy", "alembic", "pyspark", "pandas", "fsspec", "rich", "py4j", "prometheus_client"),
    "sqlglot",
    "pydantic_settings",
    "lark",
    "sqlalchemy.dialects.postgresql",
    "feed_assets.loading.falcon.documents",
    "feed_assets.loading.falcon.writing",
    "feed_assets.definitions.checks.live_checks",
    "source texts",
    "feed_assets.validation.compatibility",
}
ENTITIES = {"feed_assets.entities.feed", "feed_assets.plan.records", "feed_assets.validation.rules"}
"""What commands need that read entities, and help does not."""
ROOT = Path(__file__).parents[2]


def proposed(line: str) -> list[str]:
    """What a shell proposes for the last word of a line."""
    *words, last = line.split(" ")
    items = ShellComplete(main, {}, "feed-assets", "_FEED_ASSETS_COMPLETE").get_completions(words, last)
    return [item.value for item in items]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ent", ["entity"]),
        ("entity li", ["list"]),
        ("entity list --out", ["--output"]),
        ("entity status ", ["cluster", "datasource", "feed", "process", "clicks", "counting", "counts", "primary"]),
        ("entity status process ", ["counting"]),
        ("entity suspend process c", ["counting"]),
        ("instance list feed c", ["clicks", "counts"]),
        ("instance list co", ["counting", "counts"]),
        ("instance list clicks --clusters p", ["primary"]),
        ("hold add x --feed cl", ["clicks"]),
        ("replication status cl", ["clicks"]),
        ("mirror plan ", ["counting"]),
        ("metadata tag feed/", ["feed/clicks", "feed/counts"]),
        ("lineage show ", ["feed", "process", "clicks", "counting", "counts"]),
        ("lineage show feed c", ["clicks", "counts"]),
        ("lineage group cluster ", ["primary"]),
        ("sla backlog c", ["counting"]),
        ("sla history --name co", ["counting", "counts"]),
        ("sla history --level h", ["high"]),
        ("instance kill process counting --clusters ", ["primary"]),
        ("extension describe da", ["database-export", "database-import"]),
        ("extension job submit dir", ["directory-mirror"]),
        ("extension job update ", []),
    ],
)
def test_commands_options_and_names_are_proposed(declared: Path, line: str, found: list[str]) -> None:
    assert proposed(line) == found


def test_columns_are_those_of_the_named_feed(declared: Path) -> None:
    file = declared / "entities/all.yaml"
    file.write_text(
        yaml.safe_dump_all([each | {"schema": "page string, views bigint"} if each is CLICKS else each for each in ALL])
    )
    assert proposed("lineage column clicks ") == ["page", "views"]
    assert proposed("lineage column counts ") == []


def test_times_are_those_of_the_named_entity(declared: Path) -> None:
    for line in (
        "why counting ",
        "instance triage process counting ",
        "instance triage counting ",
        "feed notify clicks ",
        "lineage show clicks ",
        "lineage show process counting ",
        "lineage column clicks --instance ",
        "facts history counting --start ",
    ):
        times = proposed(line)
        assert len(times) == 20, line
        assert times == sorted(times, reverse=True)
        assert run("why", "counting", times[0]).exit_code == 0


def test_ids_of_holds_come_from_the_state(declared: Path) -> None:
    assert proposed("hold release ") == []
    assert run("hold", "add", "audit", "--feed", "clicks", "--reason", "numbers").exit_code == 0
    assert proposed("hold release a") == ["audit"]
    assert proposed("retention show ") == []


def test_what_cannot_be_found_proposes_nothing(declared: Path) -> None:
    (declared / "feed_assets.yaml").write_text("entitties: x\n")
    assert proposed("entity status process ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    result = must("completion", shell)
    assert f"_FEED_ASSETS_COMPLETE={shell}_complete" in result.stdout


def imported(*arguments: str, cwd: Path, **environ: str) -> set[str]:
    """The heavy packages and modules that a command has imported at its end."""
    code = (
        "import sys, json, linecache\n"
        "from feed_assets.cli.main import main\n"
        "try: main(sys.argv[1:], prog_name='feed-assets')\n"
        "except SystemExit as exc: assert not exc.code\n"
        "read = ['source texts'] if any('entities/' in file for file in linecache.cache) else []\n"
        "print('\\n' + json.dumps([*sys.modules, *read]))\n"
    )
    environ = {"PYTHONPATH": str(ROOT), "HOME": str(cwd), **environ}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, cwd=cwd)
    return (HEAVY | ENTITIES).intersection(json.loads(done.stdout.splitlines()[-1]))


def completing(line: str) -> dict[str, str]:
    words = f"feed-assets {line}"
    return {
        "_FEED_ASSETS_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }


def test_help_and_completion_of_verbs_and_names_import_no_database_and_no_dagster(declared: Path) -> None:
    assert imported("-h", cwd=declared) == set()
    assert imported(cwd=declared, **completing("instance list feed ")) <= ENTITIES | {"lark"}


def test_a_validation_imports_no_database_and_no_dagster(declared: Path) -> None:
    found = imported("validate", cwd=declared)
    assert found == {"feed_assets.entities.feed", "feed_assets.validation.rules", "lark", "sqlglot"}


def test_commands_that_read_the_state_of_a_dagster_home_import_no_dagster(declared: Path) -> None:
    home = declared / "home"
    home.mkdir()
    (declared / "feed_assets.yaml").unlink()
    why = ("why", "counting", "2013-11-03T05:00Z")
    assert imported(*why, cwd=declared, DAGSTER_HOME=str(home)) & HEAVY == {"sqlalchemy", "lark"}
    assert imported(*why, cwd=declared, DAGSTER_HOME=str(home)) & HEAVY == {"sqlalchemy"}  # the plan is cached
    found = imported("entity", "list", cwd=declared, DAGSTER_HOME=str(home))
    assert found & HEAVY == {"sqlalchemy"}  # which says whether a change is under way


HOMES: Iterable[tuple[str, str]] = (
    ("", "sqlite:///{home}/feed_assets.db"),
    ("telemetry: {enabled: false}", "sqlite:///{home}/feed_assets.db"),
    ("storage: {sqlite: {base_dir: /elsewhere}}", "sqlite:///{home}/feed_assets.db"),
    ("storage: {postgres: {postgres_url: {env: PG_URL}}}", "postgresql+psycopg2://me@here/db"),
    (
        "storage: {postgres: {postgres_db: {hostname: h, port: {env: PG_PORT}, username: me, password: 'a/b c', "
        "db_name: d, scheme: postgresql+psycopg2}}}",
        "postgresql+psycopg2://me:a/b%20c@h:6543/d",
    ),
)


@pytest.mark.parametrize(("text", "url"), HOMES)
def test_the_state_beside_a_dagster_home_is_found_as_dagster_finds_it(tmp_path: Path, text: str, url: str) -> None:
    (tmp_path / "dagster.yaml").write_text(text)
    environ = {"PG_URL": "postgresql+psycopg2://me@here/db", "PG_PORT": "6543"}
    assert find_state_url(tmp_path, environ) == url.format(home=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "storage: {custom: {module: a, class: b, config: {}}}",
        "storage: {postgres: {postgres_url: {env: NOT_SET}}}",
        "storage: {postgres: {postgres_db: {hostname: h, username: me, db_name: d, params: {sslmode: require}}}}",
        "storage: {postgres: {postgres_url: x, auth_provider: {gcp_wif: {}}}}",
        "local_artifact_storage: {module: a, class: b, config: {base_dir: /elsewhere}}",
        "storage: [",
    ],
)
def test_a_home_that_is_not_as_usual_is_left_to_dagster(tmp_path: Path, text: str) -> None:
    (tmp_path / "dagster.yaml").write_text(text)
    assert find_state_url(tmp_path, {}) is None


def test_a_relative_or_missing_home_is_left_to_dagster(tmp_path: Path) -> None:
    assert find_state_url(Path("home"), {}) is None
    assert find_state_url(tmp_path / "absent", {}) is None
