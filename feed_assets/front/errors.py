"""Errors of a front."""

from feed_assets.errors import Fault, FeedAssetsError


class SitesError(FeedAssetsError):
    """Servers of colos refuse, or none of those that are asked has done it; `reasons` are by colo."""

    fault = Fault.STATE

    def __init__(self, *, reasons: dict[str, str], next_step: str) -> None:
        told = "; ".join(f"{colo}/{reason.rstrip('.')}" for colo, reason in reasons.items())
        super().__init__(f"{told}. {next_step}")


class NoSiteError(FeedAssetsError):
    """No colo applies to what is asked."""

    fault = Fault.ASKED

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        super().__init__(f"{subject}: {reason}. {next_step}")
