"""The public door: declare entities in Python, build Dagster definitions from them or from files.

Names are loaded on first use, so that what needs no Dagster does not load it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feed_assets.engines.port import Context as Context
    from feed_assets.entities.cluster import Cluster as Cluster
    from feed_assets.entities.datasource import Datasource as Datasource
    from feed_assets.entities.feed import Feed as Feed
    from feed_assets.entities.process import Process as Process
    from feed_assets.loading.process_functions import process as process
    from feed_assets.orchestration.component import FeedAssetsComponent as FeedAssetsComponent
    from feed_assets.orchestration.definitions import build_definitions as build_definitions

_HOMES = {
    "Cluster": "feed_assets.entities.cluster",
    "Context": "feed_assets.engines.port",
    "Datasource": "feed_assets.entities.datasource",
    "Feed": "feed_assets.entities.feed",
    "Process": "feed_assets.entities.process",
    "FeedAssetsComponent": "feed_assets.orchestration.component",
    "build_definitions": "feed_assets.orchestration.definitions",
    "process": "feed_assets.loading.process_functions",
}

__all__ = [
    "Cluster",
    "Context",
    "Datasource",
    "Feed",
    "FeedAssetsComponent",
    "Process",
    "build_definitions",
    "process",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
