"""What goes wrong where instances are kept."""

from feed_assets.errors import FeedAssetsError


class StorageError(FeedAssetsError):
    """A filesystem refused, or holds something we do not understand."""

    def __init__(self, *, store: str, path: str, reason: str, next_step: str) -> None:
        self.store = store
        self.path = path
        self.reason = reason
        where = f"{store}: {path!r}" if path else store
        super().__init__(f"{where}: {reason}. {next_step}")


class PathRefusedError(StorageError):
    """A path that leaves the storage root, or is none."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store, path=path, reason=reason, next_step="Name a directory below the storage root of the cluster."
        )


class InstanceNotFoundError(StorageError):
    """An instance, or a file of one, that is not there."""

    def __init__(self, *, store: str, path: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason="nothing is there",
            next_step="Look again when it has arrived or has been produced.",
        )


class InstanceChangingError(StorageError):
    """An instance that did not hold still while it was read, or that another publication has overtaken."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=reason,
            next_step="Try again later; if no publisher is alive, recover the instance first.",
        )


class StagingLostError(StorageError):
    """A staging that was discarded or swept, or never made."""

    def __init__(self, *, store: str, path: str, token: str) -> None:
        self.token = token
        super().__init__(
            store=store,
            path=path,
            reason=f"the staging {token!r} does not exist",
            next_step="Stage the instance again, write it and publish it.",
        )


class ManifestError(StorageError):
    """A manifest file that cannot be read."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=f"its manifest file cannot be read: {reason}",
            next_step="Publish the instance again, or remove the manifest file if the data are good.",
        )


class TableRefusedError(StorageError):
    """A table of a catalog that is not there, not partitioned as a feed says, or not written by adding files."""


class StoreUnknownError(StorageError):
    """A storage URL that no adapter opens, or one whose packages are not installed."""

    def __init__(self, *, url: str, reason: str, next_step: str) -> None:
        super().__init__(store=url, path="", reason=reason, next_step=next_step)
