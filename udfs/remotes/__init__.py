"""Remote data in the workers: values that conditions look up by key, fetched while matching."""
