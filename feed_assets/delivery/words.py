"""The words of letters for people. Mails about instances have Falcon's subject and lines."""

from feed_assets.masking import mask, mask_values
from feed_assets.state.messages import OutboxMessage, render_payload
from feed_assets.state.payloads import InstanceEnd, InstancePayload
from feed_assets.topics import Topic

_TITLES = {
    Topic.EVICTION: "Path Evicted",
    Topic.METADATA: "Metadata Changed",
    Topic.SLA: "SLA",
    Topic.RETRY: "Retries Used Up",
    Topic.SWEEP: "Sweep Asks",
    Topic.ENTITY: "Entity Changed",
    Topic.HEALTH: "Ticks",
}
_ENDS = {InstanceEnd.SUCCEEDED: "Succeeded", InstanceEnd.FAILED: "Failed"}


def write_lines(message: OutboxMessage) -> list[tuple[str, str]]:
    """Return the keys of a message with their values, as people read them."""
    values = mask_values(render_payload(message.payload))
    return [
        (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in values.items()
    ]


def write_subject(message: OutboxMessage) -> str:
    """Return the subject of a mail: Falcon's for the ends of instances, and its like for others."""
    payload, (kind, name) = message.payload, message.subject
    if isinstance(payload, InstancePayload):
        title = f"Instance {_ENDS[payload.status]}"
        text = f"Falcon {title} : Workflow id:{payload.workflow_id} Name:{name} Type:{kind}"
    else:
        text = f"Falcon {_TITLES[message.topic]} : Name:{name} Type:{kind}"
    return " ".join(mask(text).split())
