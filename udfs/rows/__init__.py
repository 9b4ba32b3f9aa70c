"""The matcher of row patterns: compiled programs, one numba kernel, measures."""
