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


TEXT = """kind: feed
name: orders
frequency: days(1)
schema: id INT, day DATE, customer STRING
locations: {data: '/orders/${YEAR}-${MONTH}-${DAY}'}
clusters:
  lake:
    type: source
    validity: {start: '2013-11-03T00:00Z'}
    import:
      source: {name: shop, table: orders}
"""
Ask = Callable[..., Result]


def _enter(shop: Shop, folder: Path, patch: pytest.MonkeyPatch) -> Ask:
    """The command line in a project with the datasource `shop`; the orders are there."""
    enter(folder, patch)
    patch.setenv("SHOP_PASSWORD", PASSWORD)
    cluster = {"kind": "cluster", "name": "lake", "storage": folder.as_uri()}
    declare(folder, cluster, {"kind": "datasource", **shop.document})
    shop.run(
        "CREATE TABLE orders (id int PRIMARY KEY, day date NOT NULL, customer varchar(40), UNIQUE (day, customer))",
        "CREATE TABLE parcels (id int, at time)",
    )
    return lambda *words: CliRunner().invoke(main, list(words))


@pytest.fixture
def ask(shop_postgres: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return _enter(shop_postgres, tmp_path, monkeypatch)


def _json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_datasource_tells_what_its_user_may_do_and_what_is_in_it(ask: Ask, shop_postgres: Shop) -> None:
    found = _json(ask("datasource", "check", "shop", "--output", "json"))
    readonly, write = found["interfaces"]
    assert found["is_good"]
    assert readonly["database"].startswith("PostgreSQL ")
    assert (readonly["tables"], readonly["reads"], readonly["creates"], write["creates"]) == (2, 2, None, True)
    tables = _json(ask("datasource", "tables", "shop", "--like", "ord%", "--output", "json"))["tables"]
    assert [(each["schema"], each["name"]) for each in tables] == [(shop_postgres.schema, "orders")]
    columns = _json(ask("datasource", "columns", "shop", "orders", "--output", "json"))["columns"]
    assert [(each["name"], each["type"], each["ddl"], each["nullable"], each["keys"]) for each in columns] == [
        ("id", "int4", "INT", False, ["primary"]),
        ("day", "date", "DATE", False, ["orders_day_customer_key"]),
        ("customer", "varchar(40)", "STRING", True, ["orders_day_customer_key"]),
    ]
    (_, at) = _json(ask("datasource", "columns", "shop", "parcels", "--output", "json"))["columns"]
    assert (at["type"], at["ddl"]) == ("time", "STRING")  # as an import reads it
    assert PASSWORD not in json.dumps([found, tables, columns])


def test_what_keeps_a_datasource_from_being_used_is_told(
    shop_mariadb: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = _enter(shop_mariadb, tmp_path, monkeypatch)
    result = ask("datasource", "tables", "shopp")
    assert (result.exit_code, "Did you mean 'shop'?" in result.stderr) == (1, True)
    monkeypatch.setenv("SHOP_PASSWORD", "wrong-word")
    result = ask("datasource", "check", "shop")
    assert (result.exit_code, "it refuses the connection: " in result.output) == (1, True)
    assert "wrong-word" not in result.output


def test_a_feed_of_a_table_is_written_with_the_types_of_the_database(ask: Ask, shop_postgres: Shop) -> None:
    words = ("import", "new", "orders", "--datasource", "shop", "--table", "orders", "--to", "entities/orders.yaml")
    result = ask(*words, "--start", "2013-11-03T00:00Z")
    assert result.exit_code == 0, result.output
    assert Path("entities/orders.yaml").read_text() == TEXT.replace(
        "table: orders", f"table: {shop_postgres.schema}.orders"
    )
    assert ask("validate").exit_code == 0
    again = ask(*words)
    assert (again.exit_code, "feed 'orders' is already declared" in again.stderr) == (1, True)


def test_a_plan_of_an_import_tells_what_the_next_run_would_read(ask: Ask, shop_postgres: Shop, tmp_path: Path) -> None:
    def plan(source: dict[str, Any], schema: str, code: int = 0) -> Any:
        what = {"source": {"name": "shop", "table": "orders", **source}}
        arguments = {"--split-by": "id", "--num-mappers": "2"}
        on = {"type": "source", "validity": {"start": "2013-11-03T00:00Z"}, "import": {**what, "arguments": arguments}}
        feed = {"kind": "feed", "name": "orders", "frequency": "days(1)", "clusters": {"lake": on}, "schema": schema}
        path = {"data": "/orders/${YEAR}-${MONTH}-${DAY}"}
        (tmp_path / "entities/orders.yaml").write_text(json.dumps({**feed, "locations": path}))
        result = ask("import", "plan", "orders", "--output", "json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    shop_postgres.run("INSERT INTO orders SELECT n, '2013-11-03', 'c' || n FROM generate_series(1, 9) n")
    mark = {"type": "incremental", "delta_column": "id", "by": "mark"}
    found = plan({"where": "id > 2", "extract": mark}, "id int, day date, customer string")
    assert (found["where"], found["above"], found["upto"]) == ("id > 2", None, "number 9")
    split = "feed_assets_split"
    assert (found["condition"], found["parts"]) == ('"id" <= 9', [f"{split} < 6 OR {split} IS NULL", f"{split} >= 6"])
    assert found["columns"][0] == {"name": "id", "type": "int4", "ddl": "INT", "schema": "int"}
    window = {"type": "incremental", "delta_column": "day", "by": "window"}
    fields = {"fields": {"includes": ["id", "day"]}}
    found = plan({"extract": window, **fields}, "id int, customer string", code=1)
    assert found["differences"] == ["missing: customer", "not declared: day"]
    assert found["condition"].startswith('"day" >= TIMESTAMP \'')
