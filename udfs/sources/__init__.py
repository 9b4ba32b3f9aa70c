"""Ready sources of remote data, each on a well-kept client library that is an extra."""
