"""The public interface: declare entities in Python, and build Dagster definitions from them or from files.

Names are loaded on first use, so that code without Dagster does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feed_assets.engines.port import Context as Context
    from feed_assets.entities.cluster import Cluster as Cluster
    from feed_assets.entities.common import Locations as Locations
    from feed_assets.entities.common import Retention as Retention
    from feed_assets.entities.common import Validity as Validity
    from feed_assets.entities.datasource import Datasource as Datasource
    from feed_assets.entities.feed import Feed as Feed
    from feed_assets.entities.feed import FeedCluster as FeedCluster
    from feed_assets.entities.feed import LateArrival as LateArrival
    from feed_assets.entities.process import Input as Input
    from feed_assets.entities.process import LateProcess as LateProcess
    from feed_assets.entities.process import Output as Output
    from feed_assets.entities.process import Process as Process
    from feed_assets.entities.process import ProcessCluster as ProcessCluster
    from feed_assets.entities.process import Retry as Retry
    from feed_assets.entities.process import Workflow as Workflow
    from feed_assets.errors import FeedAssetsError as FeedAssetsError
    from feed_assets.loading.process_functions import process as process
    from feed_assets.orchestration.component import FeedAssetsComponent as FeedAssetsComponent
    from feed_assets.orchestration.definitions import build_definitions as build_definitions

    __version__: str

_HOMES = {
    "Cluster": "feed_assets.entities.cluster",
    "Context": "feed_assets.engines.port",
    "Datasource": "feed_assets.entities.datasource",
    "Feed": "feed_assets.entities.feed",
    "FeedAssetsComponent": "feed_assets.orchestration.component",
    "FeedAssetsError": "feed_assets.errors",
    "FeedCluster": "feed_assets.entities.feed",
    "Input": "feed_assets.entities.process",
    "LateArrival": "feed_assets.entities.feed",
    "LateProcess": "feed_assets.entities.process",
    "Locations": "feed_assets.entities.common",
    "Output": "feed_assets.entities.process",
    "Process": "feed_assets.entities.process",
    "ProcessCluster": "feed_assets.entities.process",
    "Retention": "feed_assets.entities.common",
    "Retry": "feed_assets.entities.process",
    "Validity": "feed_assets.entities.common",
    "Workflow": "feed_assets.entities.process",
    "build_definitions": "feed_assets.orchestration.definitions",
    "process": "feed_assets.loading.process_functions",
}

__all__ = [
    "Cluster",
    "Context",
    "Datasource",
    "Feed",
    "FeedAssetsComponent",
    "FeedAssetsError",
    "FeedCluster",
    "Input",
    "LateArrival",
    "LateProcess",
    "Locations",
    "Output",
    "Process",
    "ProcessCluster",
    "Retention",
    "Retry",
    "Validity",
    "Workflow",
    "build_definitions",
    "process",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("feed-assets")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
