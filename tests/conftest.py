"""What all tests share: fixtures of real servers, started on first use."""

import pytest
from hypothesis import Phase, settings

from tests.java_start import start_lightly
from tests.servers import metastore_port, postgres_url

__all__ = ["metastore_port", "postgres_url"]

# for mutants, where it is enough that an example fails
settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate], database=None)

start_lightly()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that nobody waits for one worker in the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
