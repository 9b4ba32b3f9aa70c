"""Ready sources against real services, which the tests start on loopback and stop."""
