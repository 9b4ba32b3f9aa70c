"""The engine of event patterns: partial matches as columns, extended by any plan."""
