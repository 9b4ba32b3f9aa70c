"""Skip till any match: partial matches as columns, extended and joined by whatever plan."""
