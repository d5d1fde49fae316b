"""The process of a mirror, for jobs: the same that `mirror new` writes."""

from collections.abc import Mapping
from typing import Any

from feed_assets.context.errors import NewEntityError
from feed_assets.entities.common import Kind
from feed_assets.replication.mirrors.queries import MirrorRequest
from feed_assets.replication.mirrors.templates import make_document
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.sequence import parse_frequency

_START = "jobValidityStart"


def build(parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the process. A job is made anew later, so that its start is not the day on which that happens.

    Raises:
        NewEntityError: the parameters do not say what to mirror, or since when.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    job, start = given.pop("job"), given.pop("start", None) or given.get(_START)
    if start is None:
        raise NewEntityError(what="mirror", reason="it has no start", next_step=f"Give it with start, or {_START}.")
    ours = ("name", "source", "target", "cluster", "frequency", "end", "remove", "snapshots")
    own = {name: given.pop(name, None) for name in ours}
    begins = parse_datetime(start)
    request = MirrorRequest(
        name=own["name"] or (None if "jobName" in given else job),
        sources=tuple(own["source"] or ()),
        target=own["target"],
        cluster=own["cluster"],
        frequency=parse_frequency(own["frequency"]) if own["frequency"] else None,
        start=begins,
        end=parse_datetime(own["end"]) if own["end"] else None,
        removes=bool(own["remove"]),
        snapshots=own["snapshots"],
        properties=given,
    )
    return [{"kind": Kind.PROCESS.value, **make_document(request, begins)[0]}]
