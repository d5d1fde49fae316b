"""feed-assets as a Dagster component, for projects made of `defs.yaml` files. Uses the same loader."""

from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.utils.translation import ResolvedTranslationFn
from pydantic import Field

from feed_assets.clock import SystemClock
from feed_assets.orchestration.definitions import build_definitions
from feed_assets.orchestration.graph.translator import (
    DEFAULT_TRANSLATOR,
    FeedAssetsTranslator,
    FeedAssetsTranslatorData,
)
from feed_assets.settings import PROJECT_ROOT, Settings, load_settings


class FeedAssetsScaffolder(dg.Scaffolder[Any]):
    """The scaffolder for a defs.yaml with example entities, their function and their data."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the initial files of a new component; nothing is overwritten."""
        from feed_assets.scaffolding.projects import lay_example

        dg.scaffold_component(
            request, {"entities": "./entities", "variables": {"DATA_ROOT": f"${{{PROJECT_ROOT}}}/data"}}
        )
        folder = request.target_path
        lay_example(folder, _module_of(folder), (request.project_root or folder) / "data", SystemClock().now())


@dg.scaffold_with(FeedAssetsScaffolder)
class FeedAssetsComponent(dg.Component, dg.Model, dg.Resolvable):
    """All definitions of the entity files in a folder. A code location has at most one.

    ```yaml
    type: feed_assets.FeedAssetsComponent
    attributes:
      entities: ./entities
      translation:
        key: "lake/{{ data.cluster }}/{{ data.name }}"
    ```

    A subclass may override `get_asset_spec`. Materializations run with the executor of the project.
    """

    entities: str | None = Field(
        default=None,
        description="Folder, file or fsspec URL of the entities; a relative path is below the folder of this "
        "defs.yaml. By default the setting applies.",
    )
    variables: dict[str, str] | None = Field(default=None, description="Values of ${NAME} in clusters.")
    state: str | None = Field(
        default=None, description="SQLAlchemy URL of the state; by default the database of the Dagster instance."
    )
    strict: bool | None = Field(default=None, description="Refuse to load while any entity is invalid.")
    settings: str | None = Field(
        default=None,
        description="Folder of feed_assets.yaml, or a folder below it; relative to the folder of this defs.yaml. "
        "By default the root of the project.",
    )
    translation: ResolvedTranslationFn[FeedAssetsTranslatorData] = Field(
        default=None,
        description="Attributes of the assets, as templates over `data`, the feed or process (see "
        "FeedAssetsTranslatorData), and `spec`, the asset by default.",
    )

    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> dg.AssetSpec:
        """Return the asset of a feed or process, before `translation` changes it (see `FeedAssetsTranslator`)."""
        return DEFAULT_TRANSLATOR.get_asset_spec(data)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises:
            SettingsError: an attribute is wrong, or a setting that no attribute overrides.
            DefinitionsError: the entities cannot be read, or are wrong and `strict` is set.
        """
        settings = self.load_settings(Path(context.path), Path(context.project_root))
        return build_definitions(settings=settings, translator=_ComponentTranslator(self), executor=None)

    def load_settings(self, folder: Path, project: Path) -> Settings:
        """Return the settings. Attributes override the environment, which overrides the file, which overrides the
        defaults.

        Args:
            folder: the folder of the defs.yaml.
            project: the root of the project.
        """
        given: dict[str, Any] = {"variables": self.variables, "state": self.state, "strict": self.strict}
        if self.entities is not None:
            given["entities"] = self.entities if "://" in self.entities else str((folder / self.entities).resolve())
        start = project if self.settings is None else folder / self.settings
        return load_settings({name: value for name, value in given.items() if value is not None}, start=start)


class _ComponentTranslator(FeedAssetsTranslator):
    """Describes assets as a component and its YAML say."""

    def __init__(self, component: FeedAssetsComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> dg.AssetSpec:
        spec = self._component.get_asset_spec(data)
        translation = self._component.translation
        return spec if translation is None else translation(spec, data)


def _module_of(folder: Path) -> str:
    """Return the importable name of a folder in a package."""
    top = next((place for place in folder.parents if not (place / "__init__.py").is_file()), folder.parent)
    return ".".join(folder.relative_to(top).parts)
