from pathlib import Path

import pytest

from feed_assets.engines.databases.credentials import find_password
from feed_assets.engines.errors import ServiceError
from feed_assets.engines.java.machine import JavaMachine
from tests.engines.java_tools import make_keystore

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_a_password_is_found_by_its_alias(machine: JavaMachine, tmp_path: Path) -> None:
    url = make_keystore(machine, tmp_path / "store.jceks", "shop", "pass-word")
    assert find_password(machine, url, "shop") == "pass-word"
    assert find_password(machine, str(tmp_path / "store.jceks"), "shop") == "pass-word"
    assert find_password(machine, url, "other") is None


def test_a_keystore_that_is_none_is_an_error(machine: JavaMachine, tmp_path: Path) -> None:
    (tmp_path / "store.jceks").write_text("no keystore")
    with pytest.raises(ServiceError, match="it cannot be read"):
        find_password(machine, str(tmp_path / "store.jceks"), "shop")
