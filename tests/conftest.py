"""What all tests share: fixtures of real servers, started on first use, and tiers."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from hypothesis import Phase, settings

from feed_assets import command_lines, masking
from tests.commands import require_command
from tests.java_start import start_lightly
from tests.servers import metastore_port, postgres_url
from tests.tiers import Tiers

__all__ = ["metastore_port", "postgres_url"]

# How long an example takes says something of the machine.
settings.register_profile("undated", deadline=None)
# for mutants, where it is enough that an example fails
settings.register_profile("unshrunk", deadline=None, phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("undated")

start_lightly()


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test hides is not hidden from the next."""
    monkeypatch.setattr(masking, "_secrets", masking._Secrets())


@pytest.fixture(autouse=True)
def _commands_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that a message offers in any test is one that the command line accepts."""
    join = command_lines.shlex.join

    def checked(words: Iterable[str]) -> str:
        words = list(words)
        if words[:1] == ["feed-assets"]:
            require_command(words[1:])
        return join(words)

    monkeypatch.setattr(command_lines, "shlex", SimpleNamespace(join=checked))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files.")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(), "tiers")
