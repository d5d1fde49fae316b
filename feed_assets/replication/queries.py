"""What can be asked of copies."""

from dataclasses import dataclass
from typing import Annotated

from feed_assets.entities.common import Kind
from feed_assets.operation import Param
from feed_assets.parameters import End, Newest, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuery:
    """The copies of a feed to some targets (empty: all), from one source (None: all), in a range."""

    feed: Annotated[str, Param("The feed, or the name of a flow.", argument=True, of=(Kind.FEED,))]
    targets: Annotated[
        tuple[str, ...], Param("Only copies to this cluster; may be repeated.", option="cluster", of=(Kind.CLUSTER,))
    ] = ()
    source: Annotated[str | None, Param("Only copies from this cluster.", of=(Kind.CLUSTER,))] = None
    start: Start = None
    end: End = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery(CopyQuery):
    """The copies that are compared: all, or the newest `results`; with `deep` every byte of the targets is read."""

    results: Newest = None
    deep: Annotated[bool, Param("Read every byte of the targets, not only names and sizes.")] = False
