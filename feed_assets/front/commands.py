"""What can be asked about a front: it is started."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from feed_assets.cli.options import author_of
from feed_assets.errors import WrongUsageError
from feed_assets.operation import later, operation
from feed_assets.server.records import Address
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.front import fan_out
    from feed_assets.server import serving
    from feed_assets.sql.database import Database

later(globals())


@operation("front", text="sentence", plain=True, example="--port 3030", no_route="It is the front.")
def front(database: "Database", *, address: Address) -> Iterator[Address]:
    """Answer requests by HTTP for the servers of several colos, which the setting colos names, until SIGINT or SIGTERM.

    What is declared here goes to all servers that it concerns, and what is asked about instances is asked of them.
    """
    if address.with_dagster:
        raise WrongUsageError("A front has no Dagster: leave --with-dagster out.")
    settings = load_settings()
    return serving.serve(settings, database, address, author_of(None), fan_out.Front.open(settings))
