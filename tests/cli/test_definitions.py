import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.definitions.checks.declared_definitions import entity_schema
from feed_assets.entities.common import Kind
from feed_assets.errors import NoAnswerError
from feed_assets.storage.errors import StorageAwayError
from tests.cli.project import run, shown
from tests.entities.samples import BASE

GOOD = "kind: cluster\nname: primary\nstorage: file:///data\n"
WARNED = GOOD + "properties: {colo: x}\n"
BAD = GOOD + "colour: red\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "entities").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEED_ASSETS_STRICT", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "options", "code", "stdout"),
    [
        (GOOD, [], 0, ""),
        (WARNED, [], 0, "warning: entities/a.yaml:4: cluster 'primary': the property 'colo' is hidden"),
        (WARNED, ["--strict"], 1, "warning: "),
        (
            BAD,
            [],
            1,
            "entities/a.yaml:4: cluster 'primary': 'colour' is not a key of a cluster. Did you mean 'colo'?\n",
        ),
        ("", [], 0, "warning: entities: no entity is declared here."),
    ],
)
def test_validate_prints_issues_and_says_by_its_exit_code_whether_there_are_any(
    project: Path, text: str, options: list[str], code: int, stdout: str
) -> None:
    (project / "entities" / "a.yaml").write_text(text)
    result = run("validate", *options)
    assert result.exit_code == code, result.output
    assert result.stdout.replace(f"{project}/", "").startswith(stdout)
    assert bool(result.stdout) == bool(stdout)
    assert "usable: " in result.stderr


def test_files_of_workflows_are_looked_for_in_the_project(project: Path) -> None:
    documents = [{"kind": label.split()[0], **BASE[label]} for label in BASE]
    documents[-1]["workflow"] = {"engine": "sql", "path": "jobs/daily.sql"}
    (project / "entities" / "a.yaml").write_text(yaml.safe_dump_all(documents))
    assert "the file 'jobs/daily.sql' does not exist" in run("validate").stdout
    (project / "jobs").mkdir()
    (project / "jobs" / "daily.sql").touch()
    assert "does not exist" not in run("validate").stdout


def test_wrong_settings_end_with_2(project: Path) -> None:
    (project / "feed_assets.yaml").write_text("entitties: x\n")
    result = run("validate")
    assert result.exit_code == 2
    assert result.stderr.startswith("feed-assets: setting 'entitties': there is no such setting.")


def test_a_mistake_of_ours_ends_with_3_and_no_traceback(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "entities" / "a.yaml").write_text(GOOD)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("feed_assets.definitions.checks.declared_definitions.validate_location", broken)
    result = run("validate")
    assert result.exit_code == 3
    assert result.stderr.startswith("feed-assets: internal error, ZeroDivisionError: oh.")


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (NoAnswerError(endpoint="s3://lake", seconds=20), "s3://lake"),
        (
            StorageAwayError(store="s3://lake", path="", reason="it is away", next_step="Start it."),
            "s3://lake: it is away",
        ),
        (ConnectionRefusedError(111, "Connection refused", "lake"), "lake: Connection refused."),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_away_ends_with_2(project: Path, monkeypatch: pytest.MonkeyPatch, away: Exception, said: str) -> None:
    def fails(*_: object, **__: object) -> None:
        raise away

    monkeypatch.setattr("feed_assets.definitions.checks.declared_definitions.validate_location", fails)
    result = run("validate")
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("arguments", [["-h"], ["schema", "--help"], ["--version"]])
def test_help_is_on_every_level(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.stdout


def test_schema_is_one_for_all_kinds_and_one_for_each() -> None:
    everything = json.loads(run("schema").stdout)
    assert everything == entity_schema()
    assert [choice["then"]["$ref"] for choice in everything["allOf"]] == [
        "#/$defs/Cluster",
        "#/$defs/Datasource",
        "#/$defs/Feed",
        "#/$defs/Process",
    ]
    only = json.loads(run("schema", "--kind", "feed").stdout)
    assert only["properties"] == {"kind": {"enum": ["feed"]}}
    assert "Process" not in only["$defs"]


def _references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        found = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return found.union(*map(_references, schema.values()))
    return set().union(*map(_references, schema)) if isinstance(schema, list) else set()


def test_the_schema_has_all_that_it_refers_to_and_every_key_that_samples_use() -> None:
    schema = entity_schema()
    assert {f"#/$defs/{name}" for name in schema["$defs"]} >= _references(schema)
    for label, document in BASE.items():
        definition = schema["$defs"][label.split()[0].capitalize()]
        assert definition["additionalProperties"] is False
        assert {"kind", *document} <= set(definition["properties"])
        assert set(definition["required"]) <= {"kind", *document}
    assert set(schema["properties"]["kind"]["enum"]) == {kind.value for kind in Kind}


def test_a_warning_on_the_terminal_has_no_traceback(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("validate")
    try:
        raise ValueError("no such place")
    except ValueError:
        record = logging.LogRecord("feed_assets", logging.WARNING, __file__, 1, "it stays", (), sys.exc_info())
    assert logging.lastResort is not None
    logging.lastResort.handle(record)
    assert capsys.readouterr().err == "it stays\n"


def test_a_command_finds_the_project_of_its_path_if_the_working_directory_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := tmp_path / "here").mkdir()
    (entities := tmp_path / "project" / "entities").mkdir(parents=True)
    (entities / "a.yaml").write_text("kind: cluster\nname: primary\nstorage: file://${DATA_ROOT}\n")
    monkeypatch.chdir(here)
    tried = "FEED_ASSETS_VARIABLES__DATA_ROOT in the environment, variables in feed_assets.yaml (not found in "
    assert f"{tried}{here} and above), DATA_ROOT in the environment. Write" in run("validate", str(entities)).stdout
    (tmp_path / "project" / "feed_assets.yaml").write_text("variables: {DATA_ROOT: /data}\n")
    assert run("validate", str(entities)).exit_code == 0
    (here / "feed_assets.yaml").write_text("variables: {OTHER: /data}\n")
    assert f"variables in {here}/feed_assets.yaml" in run("validate", str(entities)).stdout


def test_the_location_that_settings_name_in_vain_is_told_with_its_source(project: Path) -> None:
    (project / "feed_assets.yaml").write_text("entities: nowhere\n")
    message = run("validate").stderr
    assert f"{project}/nowhere: there is no such file or folder." in message
    assert f"The setting 'entities' is 'nowhere', from {project}/feed_assets.yaml; tried in this order: " in message


def test_settings_shows_each_value_with_its_source_and_no_secret(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "feed_assets.yaml").write_text("state: postgresql://me:hidden@host/db\nvariables: {API_TOKEN: hidden}\n")
    monkeypatch.setenv("FEED_ASSETS_SCHEDULE", "explicit")
    text, report = run("settings").stdout, shown("settings")
    found = {each["name"]: (each["value"], each["source"]) for each in report["settings"]}
    assert "hidden" not in text + str(report)
    assert found["state"] == ("postgresql://me:***@host/db", f"{project}/feed_assets.yaml")
    assert found["variables.API_TOKEN"] == ("***", f"{project}/feed_assets.yaml")
    assert found["schedule"] == ("explicit", "FEED_ASSETS_… in the environment")
    assert found["entities"] == ("entities", "the default")
    assert report["project"] == str(project)
    assert text.splitlines()[1] == f"PROJECT_ROOT\t{project}\tthe folder of the settings file"
