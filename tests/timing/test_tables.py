"""Addresses of tables that Falcon's own reader refuses (CatalogStorage: each part is one key and one value)."""

import pytest

from feed_assets.timing.errors import TableAddressError
from feed_assets.timing.templates import parse_table_address


@pytest.mark.parametrize("partition", ["ds=ds=${YEAR}", "region=eu;ds=${YEAR}=", "ds==x", "ds", "=x", "ds=x;;"])
def test_a_partition_is_keys_with_one_value_each(partition: str) -> None:
    with pytest.raises(TableAddressError, match=r"partition key|equals sign|no value"):
        parse_table_address(f"catalog:web:clicks#{partition}")
