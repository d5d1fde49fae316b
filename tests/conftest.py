"""What all tests share: fixtures of real servers, started on first use."""

from hypothesis import Phase, settings

from tests.servers import metastore_port, postgres_url

__all__ = ["metastore_port", "postgres_url"]

# for mutants, where it is enough that an example fails
settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate], database=None)
