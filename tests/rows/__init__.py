"""Row patterns: texts to programs, and the matcher against one that backtracks by the book."""
