"""The files of a new project: a cluster, two feeds, a process, some days of data, and what Dagster and editors need.

The texts are in `templates`, where `@{name}` stands for a value.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import unquote, urlsplit

from feed_assets.definitions.checks.declared_definitions import entity_schema
from feed_assets.settings import ENV_FILE

CLUSTER = "primary"
DAYS = 3
"""How many days of orders are in a new project: the days before the one on which it is made."""

SCHEMA_FILE = "entities.schema.json"
_PRODUCTS = ("coffee", "tea", "cocoa")


class _Text(Template):
    delimiter = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleEntities:
    """The choices of the example entities.

    `storage` is the storage URL of the cluster. `jobs` is the importable module of the process's function. The data
    are those of the days before `as_of`.
    """

    storage: str
    jobs: str
    as_of: datetime

    @property
    def days(self) -> list[str]:
        """The days whose orders have arrived, oldest first, as in `2013-11-03`."""
        return [f"{self.as_of - timedelta(days=back):%Y-%m-%d}" for back in range(DAYS, 0, -1)]


def iter_entity_files(example: ExampleEntities, schema: str | None) -> Iterator[tuple[str, str]]:
    """Yield the entity files, by name. `schema` is the path of the schema for editors, from the folder of the files."""
    values = {
        "cluster": CLUSTER,
        "storage": example.storage,
        "jobs": example.jobs,
        "start": f"{example.days[0]}T00:00Z",
        "schema": schema or "",
    }
    for name in ("cluster.yaml", "orders.yaml", "daily_revenue.yaml"):
        text = read_template(name, values)
        yield name, text if schema else text.partition("\n")[2]


def iter_data_files(example: ExampleEntities) -> Iterator[tuple[str, str]]:
    """Yield the orders of some days, by path below the storage of the cluster."""
    for number, day in enumerate(example.days):
        yield f"orders/{day}/orders.csv", _orders(number)
        yield f"orders/{day}/_SUCCESS", ""


def iter_project_files(
    name: str, example: ExampleEntities, dagster_home: Path, postgres: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield every file of a project, by path below its folder.

    Args:
        name: the name of the project.
        example: the choices of the example entities.
        dagster_home: the absolute path of the Dagster home.
        postgres: the URL of the database of Dagster and of feed-assets; None means SQLite.
    """
    package = package_name(name)
    values = {
        "distribution": name,
        "package": package,
        "today": f"{example.as_of:%Y-%m-%d}",
        "yesterday": example.days[-1],
        "start": f"{example.days[0]}T00:00Z",
        "end": f"{example.days[1]}T00:00Z",
    }
    for file in ("README.md", "pyproject.toml", "definitions.py", "feed_assets.yaml"):
        yield file, read_template(file, values)
    yield f"{package}/__init__.py", read_template("package_init.py", values)
    yield f"{package}/jobs.py", read_template("jobs.py")
    for file, text in iter_entity_files(example, f"../{SCHEMA_FILE}"):
        yield f"entities/{file}", text
    yield SCHEMA_FILE, json.dumps(entity_schema(), indent=2) + "\n"
    yield ".vscode/settings.json", read_template("vscode_settings.json", {"schema": SCHEMA_FILE})
    yield "tests/test_daily_revenue.py", read_template("test_daily_revenue.py", values)
    yield ".gitignore", read_template("gitignore")
    yield ENV_FILE, _env_file(dagster_home, postgres)
    yield "dagster_home/dagster.yaml", read_dagster_yaml(is_postgres=postgres is not None)
    for file, text in iter_data_files(example):
        yield f"data/{file}", text


def read_dagster_yaml(*, is_postgres: bool) -> str:
    """Return the dagster.yaml of a Dagster home on SQLite or on PostgreSQL."""
    return read_template("dagster_postgres.yaml" if is_postgres else "dagster_sqlite.yaml")


def read_template(name: str, values: dict[str, str] | None = None) -> str:
    """Return the text of a template; without values it is returned as it is."""
    text = (files(__package__) / "templates" / f"{name}.template").read_text("utf-8")
    return text if values is None else _Text(text).substitute(values)


def package_name(name: str) -> str:
    """Return the name of a project's Python package.

    >>> package_name("Web-shop 2")
    'web_shop_2'
    """
    return re.sub(r"\W+", "_", name).strip("_").lower()  # "Web-shop 2" → "web_shop_2"


def _env_file(dagster_home: Path, postgres: str | None) -> str:
    lines = [read_template("env", {"dagster_home": str(dagster_home)}).rstrip("\n")]
    if postgres is not None:
        parts = urlsplit(postgres)
        values = {
            "HOST": parts.hostname or "localhost",
            "PORT": str(parts.port or 5432),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "DB": unquote(parts.path.lstrip("/")),
        }
        lines += [f"DAGSTER_PG_{name}={_quoted(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    """Return a value of an .env file that is not expanded."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return value if re.fullmatch(r"[\w.:/-]*", value) else f"'{escaped}'"


def _orders(number: int) -> str:
    """Return a day's orders as CSV; every day has other ones."""
    lines = ["order_id,product,quantity,price"]
    for order in range(1, 9 + number):
        product = _PRODUCTS[(order + number) % len(_PRODUCTS)]
        lines.append(f"{1000 * (number + 1) + order},{product},{1 + (order * 7 + number) % 4},{2 + order % 3}.50")
    return "\n".join(lines) + "\n"
