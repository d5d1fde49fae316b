"""Dagster's webserver behind the guard of a server."""
