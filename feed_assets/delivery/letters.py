"""Write letters: messages as programs and people read them. Mails about instances have Falcon's subject and body."""

from html import escape

from feed_assets.delivery.port import Letter
from feed_assets.json_form import render_document
from feed_assets.masking import mask, mask_values
from feed_assets.state.messages import InstanceEnd, InstancePayload, OutboxMessage, render_payload
from feed_assets.topics import Topic

_TITLES = {
    Topic.EVICTION: "Path Evicted",
    Topic.METADATA: "Metadata Changed",
    Topic.SLA: "SLA",
    Topic.RETRY: "Retries Used Up",
    Topic.SWEEP: "Sweep Asks",
    Topic.ENTITY: "Entity Changed",
}
_ENDS = {InstanceEnd.SUCCEEDED: "Succeeded", InstanceEnd.FAILED: "Failed"}


def write_letter(message: OutboxMessage) -> Letter:
    """Return a message as it leaves."""
    lines = [(name, _line(value)) for name, value in mask_values(render_payload(message.payload)).items()]
    subject = write_subject(message)
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in lines)
    return Letter(
        message=message,
        document=render_document(message),
        subject=subject,
        text="\n".join([subject, "", *(f"{name}: {value}" for name, value in lines), ""]),
        html=f"<html><body><p>{escape(subject)}</p><table>{rows}</table></body></html>",
    )


def write_subject(message: OutboxMessage) -> str:
    """Return the subject of a mail: Falcon's for the ends of instances, and its like for others."""
    payload, (kind, name) = message.payload, message.subject
    if isinstance(payload, InstancePayload):
        title = f"Instance {_ENDS[payload.status]}"
        text = f"Falcon {title} : Workflow id:{payload.workflow_id} Name:{name} Type:{kind}"
    else:
        text = f"Falcon {_TITLES[message.topic]} : Name:{name} Type:{kind}"
    return " ".join(mask(text).split())


def _line(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
