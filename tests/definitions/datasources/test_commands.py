import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from feed_assets.cli.main import main
from tests.projects import declare, enter
from tests.shops import PASSWORD, Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture
def ask(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line in a project with the datasource `shop`; the orders are there."""
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    cluster = {"kind": "cluster", "name": "lake", "storage": tmp_path.as_uri()}
    declare(tmp_path, cluster, {"kind": "datasource", **shop.document})
    shop.run(
        "CREATE TABLE orders (id int PRIMARY KEY, day date NOT NULL, customer varchar(40), UNIQUE (day, customer))",
        "CREATE TABLE parcels (id int)",
    )
    return lambda *words: CliRunner().invoke(main, list(words))


def _json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_datasource_tells_what_its_user_may_do_and_what_is_in_it(ask: Callable[..., Result], shop: Shop) -> None:
    found = _json(ask("datasource", "check", "shop", "--output", "json"))
    readonly, write = found["interfaces"]
    assert found["is_good"]
    assert (readonly["tables"], readonly["creates"], write["creates"]) == (2, None, True)
    assert readonly["reads"] == (2 if shop.type == "postgres" else None)
    assert readonly["database"].startswith("PostgreSQL " if shop.type == "postgres" else "MariaDB ")
    tables = _json(ask("datasource", "tables", "shop", "--like", "ord%", "--output", "json"))["tables"]
    assert [(each["schema"], each["name"]) for each in tables] == [(shop.schema, "orders")]
    assert ask("datasource", "tables", "shop", "--schema", "nowhere").stderr == "there is no such table\n"
    columns = _json(ask("datasource", "columns", "shop", "orders", "--output", "json"))["columns"]
    assert [(each["name"], each["ddl"], each["nullable"]) for each in columns] == [
        ("id", "INT", False),
        ("day", "DATE", False),
        ("customer", "STRING", True),
    ]
    assert columns[0]["keys"] == ["primary"]
    assert columns[1]["keys"] == columns[2]["keys"] != []
    assert PASSWORD not in json.dumps([found, tables, columns])


def test_what_keeps_a_datasource_from_being_used_is_told(
    ask: Callable[..., Result], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ask("datasource", "columns", "shop", "absent")
    assert (result.exit_code, "it refuses: " in result.stderr) == (2, True)
    result = ask("datasource", "tables", "shopp")
    assert (result.exit_code, "Did you mean 'shop'?" in result.stderr) == (1, True)
    monkeypatch.setenv("SHOP_PASSWORD", "wrong-word")
    result = ask("datasource", "check", "shop")
    if shop.type == "mysql":  # the PostgreSQL of tests asks for no password
        assert result.exit_code == 1
        assert "it refuses the connection: " in result.output
    assert "wrong-word" not in result.output
