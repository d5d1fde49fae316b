"""Clone an entity: declare a new one that is defined as another one is, with its comments and its order."""

from collections.abc import Sequence

from feed_assets.context.errors import EntityExistsError, VerbRefusedError
from feed_assets.definitions.contents import StoredDocument
from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.folder import find_entity
from feed_assets.definitions.renamed_texts import edit_scalars, iter_scalars, written
from feed_assets.definitions.verbs.changes import submit
from feed_assets.definitions.verbs.context import EntityContext, get_own
from feed_assets.definitions.verbs.verb_results import VerbResult
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import Fault
from feed_assets.loading.entity_files import EntityFile
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DocumentFormat


def clone(
    context: EntityContext, kind: Kind | None, name: str, new: str, replacements: Sequence[tuple[str, str]] = ()
) -> VerbResult:
    """Submit a new entity with the definition of another one, as it is written, and beside it; `replacements` are made
    in its keys and values. What people say of the other one, its schedule and its instances stay its own.

    Raises:
        EntityNotFoundError: the entity is not declared in the files.
        JobOwnedError: a job of an extension has made it.
        VerbRefusedError: the new name is the old one, or another definition has it.
        DefinitionsError: the new definition has errors, such as a path that both would write; carries the issues.
    """
    loaded = context.load()
    entity = get_own(loaded, kind, name)
    if new == name:
        raise VerbRefusedError(
            subject=entity.label,
            reason="a clone needs another name",
            next_step="Write a name that is free.",
            fault=Fault.ASKED,
        )
    document = loaded.documents[entity.key]
    text = clone_text(document, new, replacements)
    try:
        file = EntityFile(name=f"{new}.yaml", content=text.encode())
        return submit(context, [file], folder=document.file.rpartition("/")[0])
    except EntityExistsError as exc:
        raise VerbRefusedError(
            subject=label_of((entity.kind.value, new)), reason=exc.reason, next_step="Choose another name."
        ) from exc
    except DefinitionsError as exc:
        if not exc.issues:
            raise
        raise DefinitionsError(
            location=label_of((entity.kind.value, new)),
            issues=exc.issues,
            next_step="Nothing was changed. Replace what the two must not share, for example with --replace "
            f"/{name}/=/{new}/, or correct these issues:",
        ) from exc


def clone_text(document: StoredDocument, name: str, replacements: Sequence[tuple[str, str]] = ()) -> str:
    """Return the YAML document of an entity under another name, with texts replaced in its keys and values. A Falcon
    document becomes YAML.

    Raises:
        DefinitionStoreError: it cannot be written anew, or a text to replace does not occur.
    """
    text = document.text
    if document.format is DocumentFormat.XML:
        entity = find_entity(text, document.format)
        if entity is None:
            raise _refusal(document, "its XML is valid only with values from outside", "Write it as YAML first.")
        text = render_yaml(entity, has_references=True)
    names, unused, edits = [], dict(replacements), []
    for path, node, is_key in iter_scalars(text):
        old = new = text[node.start_mark.index : node.end_mark.index]
        if path == ("name",) and not is_key:
            names.append(old)
            new = written(name)
        elif is_key or path != ("kind",):
            for before, after in replacements:
                if before in new:
                    new = new.replace(before, after)
                    unused.pop(before, None)
        edits.append((node, new))
    if not names or names[0].startswith("&"):
        raise _refusal(document, "its name stands in an anchor", "Write the name itself.")
    if unused:
        remedy = "Write a text that its keys or values have."
        raise _refusal(document, f"{', '.join(map(repr, unused))} does not occur in its definition", remedy)
    return edit_scalars(text, edits)


def _refusal(document: StoredDocument, reason: str, next_step: str) -> DefinitionStoreError:
    return DefinitionStoreError(location=label_of(document.key), reason=reason, next_step=next_step)
