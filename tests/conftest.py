"""What all tests share: fixtures of real servers, started on first use, and tiers."""

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import Phase, settings

from feed_assets import command_lines, masking
from feed_assets.plan import location
from feed_assets.plan.location import Location
from tests.commands import Offer, offering_function, require_command
from tests.databases import database, database_url, share_statements, state_url
from tests.java_start import start_lightly
from tests.servers import (
    azure_server,
    hdfs_cluster,
    locking_metastore_port,
    metastore_port,
    postgres_url,
    rest_catalog_port,
    s3_options,
    s3_server,
)
from tests.shops import mariadb_port, postgres_port, shop, shop_mariadb, shop_postgres
from tests.tiers import Tiers

__all__ = [
    "azure_server",
    "database",
    "database_url",
    "hdfs_cluster",
    "locking_metastore_port",
    "mariadb_port",
    "metastore_port",
    "postgres_port",
    "postgres_url",
    "rest_catalog_port",
    "s3_options",
    "s3_server",
    "shop",
    "shop_mariadb",
    "shop_postgres",
    "state_url",
]

# How long an example takes says something of the machine.
settings.register_profile("undated", deadline=None)
# for mutants, where it is enough that an example fails
settings.register_profile("unshrunk", deadline=None, phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("undated")

_numbers = count()
start_lightly()
share_statements()


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test hides is not hidden from the next."""
    monkeypatch.setattr(masking, "_secrets", masking._Secrets())


@pytest.fixture(autouse=True)
def _kept_plans(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command of a test has compiled the next one finds, as commands beside a Dagster home do; to compile it
    again took a third of the time of tests with many commands.
    """
    find, keep = location._find_cached, location._keep
    folder = tmp_path_factory.getbasetemp() / f"plans-{next(_numbers)}"

    def find_kept(cache: Path | None, digest: str) -> Location | None:
        return find(cache, digest) if cache else find(folder, f"{Path.cwd()} {digest}")

    def keep_found(cache: Path | None, digest: str, found: Location) -> None:
        keep(cache, digest, found) if cache else keep(folder, f"{Path.cwd()} {digest}", found)

    monkeypatch.setattr(location, "_find_cached", find_kept)
    monkeypatch.setattr(location, "_keep", keep_found)


@pytest.fixture(autouse=True)
def offers(monkeypatch: pytest.MonkeyPatch) -> list[Offer]:
    """Every command that a message offers in a test: each is one that the command line accepts."""
    join, found = command_lines.shlex.join, []

    def checked(words: Iterable[str]) -> str:
        words = list(words)
        command = join(words)
        verb = require_command(words[1:])
        found.append(Offer(f"{offering_function()}: {verb}", command))
        return command

    monkeypatch.setattr(command_lines, "shlex", SimpleNamespace(join=checked))
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files.")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(), "tiers")
