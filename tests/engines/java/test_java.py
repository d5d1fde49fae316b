from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.java.databases import DatabaseAddress, connect, find_password
from feed_assets.engines.java.machine import JavaMachine
from tests.engines.java_tools import DERBY_JARS, DRIVER, make_database, make_keystore

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module")
def machine() -> Iterator[JavaMachine]:
    with JavaMachine() as machine:
        yield machine


@pytest.fixture(scope="module")
def database(machine: JavaMachine, tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_database(machine, tmp_path_factory.mktemp("derby") / "shop", {"me": "pass-word"})


def _address(url: str, **changes: object) -> DatabaseAddress:
    known = {"driver_class": DRIVER, "jars": DERBY_JARS, "user": "me", "password": "pass-word"}
    return DatabaseAddress(url=url, **{**known, **changes})


def test_a_connection_opens_with_the_driver_of_the_jars_and_the_credential(machine: JavaMachine, database: str) -> None:
    connect(machine, _address(database))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "wrong-one"}, "refuses the connection: .*authentication"),
        ({"user": "you"}, "refuses the connection: .*authentication"),
        ({"driver_class": "org.nowhere.Driver"}, "cannot be loaded .*: ClassNotFoundException: org.nowhere.Driver"),
        ({"driver_class": "java.lang.Object"}, "is not a JDBC driver"),
        ({"jars": DERBY_JARS[:1]}, "cannot be loaded from derby-"),
        ({"url": "jdbc:oracle:thin:@host"}, "does not support such addresses"),
    ],
)
def test_what_keeps_a_connection_from_opening_is_said(
    machine: JavaMachine, database: str, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(ServiceError, match=reason):
        connect(machine, _address(**{"url": database, **changes}))


def test_no_password_is_in_a_message(machine: JavaMachine, tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as caught:
        connect(machine, _address(f"jdbc:derby:{tmp_path}/pass-word;password=other-word"))
    assert "pass-word" not in str(caught.value)
    assert "other-word" not in str(caught.value)


def test_a_password_is_found_by_its_alias(machine: JavaMachine, tmp_path: Path) -> None:
    url = make_keystore(machine, tmp_path / "store.jceks", "shop", "pass-word")
    assert find_password(machine, url, "shop") == "pass-word"
    assert find_password(machine, str(tmp_path / "store.jceks"), "shop") == "pass-word"
    assert find_password(machine, url, "other") is None


def test_a_keystore_that_is_none_is_an_error(machine: JavaMachine, tmp_path: Path) -> None:
    (tmp_path / "store.jceks").write_text("no keystore")
    with pytest.raises(ServiceError, match="it cannot be read"):
        find_password(machine, str(tmp_path / "store.jceks"), "shop")


def test_without_java_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServiceError, match="Java: it could not be started: No such file"):
        JavaMachine()


def test_a_machine_that_ends_at_once_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:NoSuchOption")
    with pytest.raises(ServiceError, match="it ended at once"):
        JavaMachine()
