"""Remote values in the workers: fetched, cached, looked up by key."""
