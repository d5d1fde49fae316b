"""Rule about credentials: they belong into the environment."""

from collections.abc import Iterator

from feed_assets.entities.bundle import AnyEntity
from feed_assets.issues import Severity
from feed_assets.masking import is_named, iter_credentials
from feed_assets.validation.scope import Complaint, Scope

CLEAR_TEXT_CREDENTIAL = "clear-text-credential"


def check_credentials(_: Scope, entity: AnyEntity) -> Iterator[Complaint]:
    """A credential should not be written in clear text."""
    values = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for path, credential in iter_credentials(values):
        if not is_named(credential):
            yield Complaint(
                path=path,
                message=f"{'.'.join(map(str, path))} is a credential in clear text: whoever reads the file or the "
                "record of definitions sees it",
                remedy="Write ${env:NAME} and export NAME.",
                severity=Severity.WARNING,
            )
