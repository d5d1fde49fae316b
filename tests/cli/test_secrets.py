"""No secret is in what any command prints, nor in what it leaves behind."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from feed_assets import masking
from tests.cli.project import run
from tests.cli.test_golden import COMMANDS, prepare, run_commands
from tests.drills import drill

FROM_OUTSIDE = "s3cr+t/Planted\\w 4711"
IN_CLEAR = "Cl3ar-planted-7"
DEFINITIONS = {"all.yaml", "changed.yaml", "updated.yaml", "wrong.yaml", "entities", "imported"}


Project = tuple[Path, dict[str, Result]]


@pytest.fixture(scope="module")
def projects() -> dict[tuple[str, ...], Project]:
    """The projects that were made, by the options of their commands; tests come in any order."""
    return {}


@pytest.fixture(params=[pytest.param((), id="text"), drill(("--output", "json"), id="json")])
def project(
    request: pytest.FixtureRequest,
    projects: dict[tuple[str, ...], Project],
    tmp_path_factory: pytest.TempPathFactory,
) -> Project:
    """A project with secrets in all of its definitions, and what each command printed there."""
    if request.param not in projects:
        projects[request.param] = make_project(tmp_path_factory.mktemp("secrets"), *request.param)
    return projects[request.param]


def make_project(folder: Path, *options: str) -> Project:
    with pytest.MonkeyPatch.context() as patch:
        prepare(folder, patch)
        patch.setenv("PLANTED", FROM_OUTSIDE)
        for file in (folder / f"{name}.yaml" for name in ("all", "changed", "updated", "wrong")):
            documents = [*map(_planted, yaml.safe_load_all(file.read_text()))]
            wrong = WRONG if file.stem == "wrong" else ()
            file.write_text(yaml.safe_dump_all([*documents, *wrong], sort_keys=False))
        printed = {}
        for name, result in run_commands(folder, *options):
            printed[name] = result
            patch.setattr(masking, "_secrets", masking._Secrets())  # the next command is another process
        printed["entity definition"] = run("entity", "definition", "process", "counting")
        printed["entity definition of a version"] = run("entity", "definition", "feed", "clicks", "--version", "1")
        printed["entity definition as XML"] = run("entity", "definition", "cluster", "primary", "--format", "xml")
        return folder, printed


def _planted(document: Mapping[str, object]) -> dict[str, object]:
    properties = {"door": "${env:PLANTED}", "door.address": "db://me:${env:PLANTED}@here", "db.password": IN_CLEAR}
    return {**document, "description": "behind ${env:PLANTED}", "properties": properties}


WRONG = (
    {
        "kind": "datasource",
        "name": "shop",
        "type": "postgres",
        "driver": {"class": "org.postgresql.Driver", "jars": ["nowhere.jar"]},
        "interfaces": {"readonly": {"endpoint": "jdbc:postgresql://here/shop?user=me&password=" + IN_CLEAR}},
        "credential": {"user": "me", "password": "${env:PLANTED}", "password_file": IN_CLEAR},
    },
    {"kind": "feed", "name": "doors", "frequency": "${env:PLANTED}"},
)
"""Mistakes whose messages would quote what is written."""


def test_every_command_succeeds_as_without_secrets(project: Project) -> None:
    _, printed = project
    failed = {name: result.output for name, result in printed.items() if result.exit_code not in (0, 1)}
    assert failed == {}
    assert {*printed} >= {*COMMANDS}


@pytest.mark.parametrize("part", ["Planted", "planted-7"], ids=["environment", "clear text"])
def test_no_command_prints_a_secret(project: Project, part: str) -> None:
    _, printed = project
    told = {name: result.output for name, result in printed.items() if part in result.output}
    assert told == {}
    assert "${env:PLANTED}" in printed["entity definition"].output
    assert "***" in printed["entity definition"].output


def test_no_secret_of_the_environment_is_left_in_a_file(project: Project) -> None:
    folder, _ = project
    files = [file for file in folder.rglob("*") if file.is_file() and not DEFINITIONS.intersection(file.parts)]
    assert folder / "state.db" in files
    assert [file for file in files if b"Planted" in file.read_bytes()] == []
