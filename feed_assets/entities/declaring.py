"""The entity that declares a process or flow."""

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import parse_flow


def declared_by(name: str) -> tuple[Kind, str]:
    """Return the entity that declares a process or flow: the process itself, or the flow's feed.

    >>> declared_by("clicks@east")
    (<Kind.FEED: 'feed'>, 'clicks')
    """
    flow = parse_flow(name)
    return (Kind.PROCESS, name) if flow is None else (Kind.FEED, flow[0])
