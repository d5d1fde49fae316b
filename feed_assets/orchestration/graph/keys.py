"""Find the asset of a feed or process in what has been built, for `deps` of other assets."""

from collections.abc import Iterable

import dagster as dg

from feed_assets.entities.common import Kind
from feed_assets.errors import find_similar
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
    field = names.META_PROCESS if Kind(kind) is Kind.PROCESS else names.META_FEED
    found = {
        (spec.metadata[field], spec.metadata[names.META_CLUSTER]): spec.key
        for spec in _specs(built)
        if field in spec.metadata
    }
    key = found.get((name, cluster))
    if key is not None:
        return key
    writes = sorted(
        str(spec.metadata[names.META_FEED])
        for spec in _specs(built)
        if spec.metadata.get(names.META_MADE_BY) == name and spec.metadata.get(names.META_CLUSTER) == cluster
    )
    known = sorted({str(known) for known, _ in found})
    raise NoAssetError(
        kind=Kind(kind).value,
        name=name,
        cluster=cluster,
        clusters=tuple(sorted(str(where) for known, where in found if known == name)),
        writes=tuple(writes) if field == names.META_PROCESS else (),
        suggestions=tuple(find_similar(name, known, n=2)),
    )


def _specs(built: dg.Definitions | Iterable[object]) -> Iterable[dg.AssetSpec]:
    for each in (built.assets or ()) if isinstance(built, dg.Definitions) else built:
        if isinstance(each, dg.AssetSpec):
            yield each
        elif isinstance(each, dg.AssetsDefinition):
            yield from each.specs
