from collections.abc import Iterator

import pytest

from feed_assets.context.operation import OperationContext
from tests.context.contexts import context_of
from tests.metrics.story import NOW, tell_story


@pytest.fixture(scope="package")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperationContext]:
    """What a scrape sees at the end of the story; nothing changes it."""
    lifecycle = tell_story(tmp_path_factory.mktemp("told"))
    yield context_of(lifecycle, NOW)
    lifecycle.database.close()
