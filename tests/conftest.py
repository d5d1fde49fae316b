"""What all tests share: fixtures of real servers, started on first use."""

import pytest
from hypothesis import Phase, settings

from tests.java_start import start_lightly
from tests.servers import metastore_port, postgres_url

__all__ = ["metastore_port", "postgres_url"]

# How long an example takes says something of the machine.
settings.register_profile("undated", deadline=None)
# for mutants, where it is enough that an example fails
settings.register_profile("unshrunk", deadline=None, phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("undated")

start_lightly()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that nobody waits for one worker in the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
