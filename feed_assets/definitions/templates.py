"""New entities that are written for people: the text of a definition, validated with what is declared, and its file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from feed_assets.context.errors import NewEntityError
from feed_assets.definitions.folder import open_folder
from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError
from feed_assets.issues import Finding, Issue, Severity, SourceMap
from feed_assets.json_form import Hidden, shown
from feed_assets.loading.messages import explain
from feed_assets.validation.rules import validate_bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A definition, its text, warnings about it, and notes about what is left out. `file` is where it was written."""

    entity: Hidden[AnyEntity]
    text: str
    warnings: tuple[Issue, ...]
    notes: tuple[str, ...]
    file: Hidden[str] = ""

    @shown
    def name(self) -> str:
        """The name of the entity."""
        return self.entity.name

    @property
    def lines(self) -> list[str]:
        """The text, if it was not written to a file."""
        return [] if self.file else self.text.splitlines()

    @property
    def summary(self) -> str:
        """The warnings, and where it was written."""
        written = [f"{self.file}: {self.entity.label} is written"] if self.file else []
        return "\n".join([*(each.line for each in self.warnings), *written])


def make_template(
    kind: Kind,
    document: Mapping[str, Any],
    declared: Bundle,
    render: Callable[[AnyEntity], str],
    *,
    what: str,
    notes: tuple[str, ...] = (),
    is_forced: bool = False,
) -> Template:
    """Make an entity of a document, and validate it together with the declared entities. `what` it is, in a word.

    Raises:
        NewEntityError: it is already declared, and `is_forced` is False.
        DefinitionsError: the definition has errors; carries the issues.
    """
    model, name = ENTITY_TYPES[kind], str(document.get("name"))
    try:
        entity = model.model_validate(document)
    except ValidationError as exc:
        label = f"{kind.value} {name!r}"
        raise _refused(what, name, [_issue(label, finding) for _, _, finding in explain(exc, model)]) from exc
    if declared.find(entity.key) is not None and not is_forced:
        reason = f"{entity.label} is already declared"
        raise NewEntityError(what=what, reason=reason, next_step=f"Give the {what} another name.")
    bundle = Bundle(entities=(*(each for each in declared.entities if each.key != entity.key), entity))
    issues = validate_bundle(bundle, SourceMap(), only=[entity.key])
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    if errors:
        raise _refused(what, name, errors)
    return Template(entity=entity, text=render(entity), warnings=tuple(issues), notes=notes)


def write_template(template: Template, target: str, *, what: str, is_forced: bool) -> Template:
    """Write the text to a file, given by path or URL.

    Raises:
        NewEntityError: the file exists with other content, and `is_forced` is False.
    """
    place, _, file = (target if "://" in target else str(Path(target).absolute())).rpartition("/")
    folder = open_folder(place)
    there, content = folder.read_file(file), template.text.encode()
    if there is not None and there != content and not is_forced:
        reason = f"{target} already exists with another content"
        raise NewEntityError(what=what, reason=reason, next_step="Remove it, or write with --force.")
    folder.write(file, content)
    return replace(template, file=folder.shown(file))


def _issue(label: str, finding: Finding) -> Issue:
    message, remedy = finding.message, finding.remedy
    return Issue(severity=Severity.ERROR, code="value", entity=label, message=message, remedy=remedy, source=None)


def _refused(what: str, name: str, issues: Sequence[Issue]) -> DefinitionsError:
    reason, next_step = "it cannot be declared", "Correct this:"
    return DefinitionsError(location=f"{what} {name!r}", reason=reason, next_step=next_step, issues=issues)
