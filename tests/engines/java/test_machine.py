from pathlib import Path

import pytest

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.java.machine import JavaMachine

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_without_java_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServiceError, match="Java: it could not be started: No such file"):
        JavaMachine()


def test_a_machine_that_ends_at_once_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:NoSuchOption")
    with pytest.raises(ServiceError, match="it ended at once"):
        JavaMachine()


def test_a_file_at_a_url_is_fetched_once_and_gone_with_the_machine(tmp_path: Path) -> None:
    (tmp_path / "driver.jar").write_text("1")
    with JavaMachine() as machine:
        found = machine.fetch(f"file://{tmp_path}/driver.jar")
        assert (found.name, found.read_text()) == ("0-driver.jar", "1")
        assert machine.fetch(f"file://{tmp_path}/driver.jar") == found
        with pytest.raises(ServiceError, match=r"absent\.jar: it cannot be fetched"):
            machine.fetch(f"file://{tmp_path}/absent.jar")
    assert not found.exists()
