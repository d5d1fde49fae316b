from tests.shops import mariadb_port, postgres_port, shop, shop_mariadb, shop_postgres

__all__ = ["mariadb_port", "postgres_port", "shop", "shop_mariadb", "shop_postgres"]
