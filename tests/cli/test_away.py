"""A database that is away is one sentence and exit code 2, whatever the command."""

import shutil
from pathlib import Path

import pytest

from tests.cli.project import run
from tests.cli.test_golden import COMMANDS, prepare

WITHOUT_STATE = {"validate", "settings", "mirror new", "import-falcon", "export-falcon", "simulate"}
"""Commands that read files only, or keep their record to themselves."""


@pytest.mark.parametrize(
    "url",
    ["sqlite:///{}/absent/state.db", "sqlite:///{}/all.yaml", "postgresql://me@localhost:1/db", "oracle://db", "x"],
)
def test_every_command_says_so_and_ends_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    prepare(tmp_path, monkeypatch)
    shutil.copy(tmp_path / "all.yaml", tmp_path / "entities")
    monkeypatch.setenv("FEED_ASSETS_STATE", url.format(tmp_path))
    names = [name for name in COMMANDS if name not in WITHOUT_STATE]
    if "absent" not in url:  # once with every command is enough
        names = ["instance list", "entity update", "hold add"]
    for name in names:
        result = run(*COMMANDS[name])
        assert (result.exit_code, result.stdout) == (2, ""), (name, result.output)
        assert result.stderr.startswith("feed-assets: state database"), (name, result.stderr)
        assert len(result.stderr.splitlines()) == 1, (name, result.stderr)
