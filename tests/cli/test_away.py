"""A database or storage that is away, or of another release, is one sentence and exit code 2, whatever the command; and
commands leave nothing open.
"""

import errno
import gc
import shutil
import socket
from pathlib import Path

import pytest
import yaml
from sqlalchemy import text

from feed_assets.cli.exit_codes import exit_code_of
from feed_assets.engines.errors import ServiceError
from feed_assets.sql.database import open_database
from feed_assets.sql.tables import VERSION_TABLE
from feed_assets.storage.errors import StorageAwayError, StorageFullError
from feed_assets.storage.registry import open_store
from tests.cli.project import run
from tests.cli.test_golden import COMMANDS, prepare
from tests.definitions.verbs.harness import ALL

WITHOUT_STATE = {"validate", "settings", "mirror new", "import-falcon", "export-falcon", "simulate"}
"""Commands that read files only, or keep their record to themselves."""


@pytest.mark.parametrize(
    "url",
    ["sqlite:///{}/absent/state.db", "sqlite:///{}/all.yaml", "postgresql://me@localhost:1/db", "oracle://db", "x"],
)
def test_every_command_says_so_and_ends_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    prepare(tmp_path, monkeypatch)
    shutil.copy(tmp_path / "all.yaml", tmp_path / "entities")
    (tmp_path / "counting.zip").touch()
    monkeypatch.setenv("FEED_ASSETS_STATE", url.format(tmp_path))
    names = [name for name in COMMANDS if name not in WITHOUT_STATE]
    if "absent" not in url:  # once with every command is enough
        names = ["instance list", "entity update", "hold add"]
    for name in names:
        result = run(*(word.replace("<first>", "1") for word in COMMANDS[name]))
        assert (result.exit_code, result.stdout) == (2, ""), (name, result.output)
        assert result.stderr.startswith("feed-assets: state database"), (name, result.stderr)
        assert len(result.stderr.splitlines()) == 1, (name, result.stderr)
        assert "localhost" not in url or "it cannot be used" in result.stderr
        assert "localhost" not in url or "Check that it can be reached" in result.stderr


@pytest.mark.parametrize(("revision", "said"), [("9999", "is newer than"), ("0021", "is another than")])
def test_every_command_refuses_a_state_of_another_release_and_changes_nothing(
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


AWAY = (
    {
        "storage": "s3://lake",
        "storage_options": {"endpoint_url": "http://127.0.0.1:1", "region": "us-east-1", "key": "a", "secret": "b"},
    },
    {"storage": "sftp://me@127.0.0.1:1/lake"},
    {"storage": "az://lake", "storage_options": {"account_name": "shop"}},
)


@pytest.mark.parametrize("place", AWAY, ids=("s3", "sftp", "token"))
def test_a_storage_that_refuses_the_connection_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict[str, object]
) -> None:
    prepare(tmp_path, monkeypatch)
    monkeypatch.setenv("AZURE_MSI_ENDPOINT", "http://127.0.0.1:1/token")
    of_primary = {"validity": {"start": "2013-11-01T00:00Z"}, "retention": {"limit": "days(1)"}}
    kept = {"clusters": {"primary": of_primary}}
    away = [{**each, **{"cluster": place, "feed": kept}.get(str(each["kind"]), {})} for each in ALL]
    (tmp_path / "entities/all.yaml").write_text(yaml.safe_dump_all(away))
    result = run("feed", "notify", "clicks", "2013-11-03T05:00Z")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "127.0.0.1:1" in result.stderr
    for words in (("instance", "listing", "clicks", "--look"), ("retention", "plan")) if place is AWAY[0] else ():
        told = run(*words)
        assert (told.exit_code, told.stdout, told.stderr.splitlines()[-1:]) == (2, "", result.stderr.splitlines())
        assert "s3://lake: nothing answers at http://127.0.0.1:1 (Connection refused). Correct" in told.stderr


def test_a_metastore_that_refuses_the_connection_is_away() -> None:
    with pytest.raises(StorageAwayError, match=r"does not answer at 127\.0\.0\.1:1"):
        open_store("thrift://127.0.0.1:1/web/clicks", {"storage": "file:///lake"}).check_root()


def test_what_this_user_may_not_write_is_refused_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, monkeypatch)
    shutil.copy(tmp_path / "all.yaml", tmp_path / "entities")
    result = run("export-falcon", "--all", "--to", "/sys/feed-assets")  # not even root may
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.startswith("feed-assets: /sys/feed-assets"), result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), 2),
        (socket.gaierror(-2, "Name or service not known"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "entities"), 2),
        (OSError(errno.EROFS, "Read-only file system", "data"), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (StorageFullError(store="file:///lake", path="", reason="full", next_step="Free some."), 1),
        (ServiceError(service="Spark", reason="no answer", next_step="Start it."), 2),
        (OSError(errno.EBADF, "Bad file descriptor"), 3),
        (KeyError("clicks"), 3),
    ],
)
def test_an_exception_says_who_has_to_act(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_a_command_ends_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    gc.disable()
    try:
        assert run("queue", "list").exit_code == 0
        found = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    finally:
        gc.enable()
    assert not [file for file in found if file.startswith(str(tmp_path))]
