"""feed-assets as a component, for projects that are made of `defs.yaml` files: a thin front over the same loader."""

from pathlib import Path
from typing import Any

from dagster import (
    Component,
    ComponentLoadContext,
    Definitions,
    Model,
    Resolvable,
    Scaffolder,
    ScaffoldRequest,
    scaffold_component,
    scaffold_with,
)
from pydantic import Field

from feed_assets.orchestration.definitions import build_definitions
from feed_assets.settings import Settings, load_settings


class FeedAssetsScaffolder(Scaffolder[Any]):
    """Makes a defs.yaml and the folder for the entities beside it."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        """Write what a new component begins with."""
        scaffold_component(request, {"entities": "./entities"})
        (request.target_path / "entities").mkdir(exist_ok=True)


@scaffold_with(FeedAssetsScaffolder)
class FeedAssetsComponent(Component, Model, Resolvable):
    """Everything that the entity files of a folder declare. One in a code location.

    ```yaml
    type: feed_assets.FeedAssetsComponent
    attributes:
      entities: ./entities
    ```
    """

    entities: str | None = Field(
        default=None,
        description="Folder, file or fsspec URL of the entities; a relative path stands below the folder of this "
        "defs.yaml. Without it the setting decides.",
    )
    variables: dict[str, str] | None = Field(default=None, description="Values of ${NAME} in clusters.")
    state: str | None = Field(
        default=None, description="SQLAlchemy URL of the state; without it the database of the Dagster instance."
    )
    strict: bool | None = Field(default=None, description="Refuse to load while any entity is wrong.")
    settings: str | None = Field(
        default=None,
        description="Folder in which, or above which, feed_assets.yaml stands; relative to the folder of this "
        "defs.yaml. Without it the root of the project.",
    )

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """The definitions.

        Raises:
            SettingsError: an attribute, or a setting that none overrides, is wrong.
            DefinitionsError: the entities cannot be read, or are wrong and `strict` is set.
        """
        return build_definitions(settings=self.load_settings(Path(context.path), Path(context.project_root)))

    def load_settings(self, folder: Path, project: Path) -> Settings:
        """The settings in force: the attributes over the environment over the file over defaults.

        Args:
            folder: where the defs.yaml stands.
            project: the root of the project.
        """
        given: dict[str, Any] = {"variables": self.variables, "state": self.state, "strict": self.strict}
        if self.entities is not None:
            given["entities"] = self.entities if "://" in self.entities else str((folder / self.entities).resolve())
        start = project if self.settings is None else folder / self.settings
        return load_settings({name: value for name, value in given.items() if value is not None}, start=start)
