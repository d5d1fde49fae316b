"""The schemas of Falcon's documents of version 0.1, by kind."""

from collections.abc import Mapping

from feed_assets.entities.common import Kind
from feed_assets.loading.falcon.cluster_schema import CLUSTER, DATASOURCE
from feed_assets.loading.falcon.feed_schema import FEED
from feed_assets.loading.falcon.grammar import Element
from feed_assets.loading.falcon.process_schema import PROCESS

SCHEMAS: Mapping[Kind, Element] = {
    Kind.CLUSTER: CLUSTER,
    Kind.DATASOURCE: DATASOURCE,
    Kind.FEED: FEED,
    Kind.PROCESS: PROCESS,
}


def namespace_of(kind: Kind) -> str:
    """Return the namespace of a kind's documents.

    >>> namespace_of(Kind.FEED)
    'uri:falcon:feed:0.1'
    """
    return f"uri:falcon:{kind.value}:0.1"
