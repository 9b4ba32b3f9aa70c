"""Ready-made remote sources: Redis, SQL databases, HTTP services."""
