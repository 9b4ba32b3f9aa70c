"""The matcher of row patterns: kernel programs, one compiled kernel, measures."""
