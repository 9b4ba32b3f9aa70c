"""Event patterns: from the pattern and the texts of its conditions to a compiled pattern."""
