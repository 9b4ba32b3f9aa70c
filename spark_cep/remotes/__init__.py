"""Remote data on the driver: what the user names, what joins do of it, what goes to the workers."""
