"""No command uses a state that another release has made."""

from pathlib import Path

import pytest
from sqlalchemy import text

from feed_assets.sql.database import open_database
from feed_assets.sql.tables import VERSION_TABLE
from tests.cli.project import run
from tests.cli.test_golden import COMMANDS, prepare

WITHOUT_STATE = {"validate", "settings", "mirror new", "import-falcon", "export-falcon", "simulate"}


@pytest.mark.parametrize(("revision", "said"), [("9999", "is newer than"), ("0021", "is another than")])
def test_every_command_refuses_it_in_one_sentence_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str, said: str
) -> None:
    prepare(tmp_path, monkeypatch)
    (tmp_path / "counting.zip").touch()
    monkeypatch.setenv("FEED_ASSETS_ACTIONS", "off")
    database = open_database(f"sqlite:///{tmp_path}/state.db")
    database.migrate()
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    database.close()
    before = contents(tmp_path)
    for name in COMMANDS.keys() - WITHOUT_STATE:
        result = run(*(word.replace("<first>", "1") for word in COMMANDS[name]))
        assert (result.exit_code, result.stdout) == (2, ""), name
        assert result.stderr.count("\n") == 1
        assert f"its schema {revision} {said}" in result.stderr
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    """All files; a SQLite database that is read has an empty log beside it."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and "state.db-" not in file.name}
