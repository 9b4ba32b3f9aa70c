"""Row patterns: from the texts of PATTERN, DEFINE and MEASURES to a program for the engine."""
