"""The file of a job of an extension: all entities of the job, below a line that says what has made them.

The line has a digest of itself and of what the documents say, so that an edit by hand is seen also where there is no
state. Comments and the layout are not in it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feed_assets.command_lines import command_line
from feed_assets.entities.common import label_of
from feed_assets.entities.fields import Name
from feed_assets.issues import Issue, Severity
from feed_assets.json_form import parse_json
from feed_assets.loading.entity_documents import EntityDocument
from feed_assets.loading.yaml_nodes import iter_documents

FOLDER = "extension-jobs"
"""The folder of these files, below that of the definitions."""
_MARK = "# feed-assets job: "
UNKNOWN = "unknown"
"""The extension of a job whose first lines are lost."""


class Job(BaseModel):
    """A job: the extension that has made it, in which version, and the parameters that were given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    extension: Name
    made_by: str
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    digest: str = ""
    is_edited: Annotated[bool, Field(exclude=True)] = False


def render_job(job: Job, documents: Sequence[str]) -> str:
    """Return the text of the file of a job with some YAML documents."""
    body = "".join(f"---\n{each}" for each in documents)
    told = job.model_copy(update={"digest": _digest_of(job, body)}).model_dump(mode="json")
    first = "# Not to be edited: an extension makes it. See docs/extensions.md.\n"
    return f"{first}{_MARK}{json.dumps(told)}\n{body}"


def find_job(file: str, text: str) -> Job | None:
    """Return the job of a file; None if the file is not that of a job: it has no such line, and is in another folder.

    >>> job = Job(name="nightly", extension="imports", made_by="sha256:1f", parameters={"tables": ["orders"]})
    >>> text = render_job(job, ["kind: feed\\nname: orders\\n"])
    >>> [find_job("nightly.yaml", each).is_edited for each in (text, text.replace("kind: feed", "kind:  feed # one"))]
    [False, False]
    >>> find_job("nightly.yaml", text.replace("name: orders", "name: order")).is_edited
    True
    """
    head = takewhile(lambda line: line.startswith("#") or not line.strip(), text.splitlines())
    told = next((line.removeprefix(_MARK) for line in head if line.startswith(_MARK)), None)
    path = PurePosixPath(file)
    if told is None and path.parent.name != FOLDER:
        return None
    try:
        job = Job.model_validate(parse_json(told or ""))
    except (ValueError, ValidationError):
        return Job.model_construct(name=path.stem, extension=UNKNOWN, made_by=UNKNOWN, parameters={}, is_edited=True)
    return job.model_copy(update={"is_edited": _digest_of(job, text) != job.digest})


def refuse_edited(job: Job, documents: Sequence[EntityDocument]) -> list[EntityDocument]:
    """Return the documents of a file that was edited by hand: none has an entity, and each says why."""
    first = next((label_of(each.key) for each in documents if each.key), None)
    update = f"let the job be made anew: `{command_line('extension', 'job', 'update', job.name)}`."
    again = "submit the job again: its first lines are lost." if job.extension == UNKNOWN else update
    refused = []
    for each in documents:
        label = label_of(each.key) if each.key else None
        issue = Issue(
            severity=Severity.ERROR,
            code="job-edited",
            entity=label,
            message=f"the file of job {job.name!r} was edited by hand, and an extension has made it",
            remedy=f"Undo the edit, or {again}",
            source=each.sources.locate(),
            follows=(first,) if first is not None and label != first else (),
        )
        salvaged = each.entity or each.salvaged
        refused.append(replace(each, entity=None, issues=(*each.issues, issue), salvaged=salvaged))
    return refused


def _digest_of(job: Job, text: str) -> str:
    values = [each.value for each in iter_documents(text)]
    content = json.dumps([job.model_dump(mode="json", exclude={"digest"}), values], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
