"""Find the asset of a feed or process in what has been built, for `deps` of other assets."""

from collections.abc import Iterable, Iterator

import dagster as dg

from feed_assets.entities.common import Kind
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import NoAssetError


def get_asset_key(
    built: dg.Definitions | Iterable[object], name: str, cluster: str, *, kind: Kind | str = Kind.FEED
) -> dg.AssetKey:
    """Return the asset key of a feed on a cluster, as the translator has named it.

    Args:
        built: what `build_definitions` or `build_assets` has returned.
        name: the name of the feed or process.
        cluster: the name of the cluster.
        kind: `feed` or `process`.

    Raises:
        NoAssetError: there is no such asset. Most processes have none of their own: their assets are the feeds that
            they write.
    """
    is_process = Kind(kind) is Kind.PROCESS
    field = names.META_PROCESS if is_process else names.META_FEED
    told = [(spec, spec.metadata) for spec in iter_specs(built)]
    found = {(str(of[field]), str(of[names.META_CLUSTER])): spec.key for spec, of in told if field in of}
    key = found.get((name, cluster))
    if key is not None:
        return key
    made = (of for _, of in told if (of.get(names.META_MADE_BY), of.get(names.META_CLUSTER)) == (name, cluster))
    writes = sorted(str(of[names.META_FEED]) for of in made) if is_process else ()
    raise NoAssetError(kind=Kind(kind).value, name=name, cluster=cluster, known=found, writes=writes)


def iter_specs(built: dg.Definitions | Iterable[object]) -> Iterator[dg.AssetSpec]:
    """Yield the assets in what has been built."""
    for each in (built.assets or ()) if isinstance(built, dg.Definitions) else built:
        if isinstance(each, dg.AssetSpec):
            yield each
        elif isinstance(each, dg.AssetsDefinition):
            yield from each.specs
