from tests.shops import mariadb_port, postgres_port, shop, shop_mariadb, shop_postgres
from tests.spark_session import spark

__all__ = ["mariadb_port", "postgres_port", "shop", "shop_mariadb", "shop_postgres", "spark"]
