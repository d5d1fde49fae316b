"""Clone an entity: declare a new one that is defined as another one is."""

from collections.abc import Sequence

from feed_assets.definitions.cloning import clone_text
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operations.entities.changes import submit
from feed_assets.operations.entities.context import EntityContext, get_declared
from feed_assets.operations.entities.verb_results import VerbResult
from feed_assets.operations.errors import EntityExistsError, VerbRefusedError


def clone(
    context: EntityContext, kind: Kind, name: str, new: str, replacements: Sequence[tuple[str, str]] = ()
) -> VerbResult:
    """Submit a new entity with the definition of another one, as it is written, and beside it; `replacements` are made
    in its keys and values. What people say of the other one, its schedule and its instances stay its own.

    Raises:
        EntityNotFoundError: the entity is not declared in the files.
        VerbRefusedError: the new name is the old one, or another definition has it.
        DefinitionsError: the new definition has errors, such as a path that both would write; carries the issues.
        SafeModeError: safe mode forbids it.
    """
    loaded = context.load()
    entity = get_declared(loaded, kind, name)
    if new == name:
        raise VerbRefusedError(
            subject=entity.label, reason="a clone needs another name", next_step="Write a name that is free."
        )
    document = loaded.documents[entity.key]
    text = clone_text(document, new, replacements)
    try:
        file = EntityFile(name=f"{new}.yaml", content=text.encode())
        return submit(context, [file], folder=document.file.rpartition("/")[0])
    except EntityExistsError as exc:
        raise VerbRefusedError(
            subject=label_of((kind.value, new)), reason=exc.reason, next_step="Choose another name."
        ) from exc
    except DefinitionsError as exc:
        if not exc.issues:
            raise
        raise DefinitionsError(
            location=label_of((kind.value, new)),
            issues=exc.issues,
            next_step="Nothing was changed. Replace what the two must not share, for example with --replace "
            f"/{name}/=/{new}/, or correct these issues:",
        ) from exc
