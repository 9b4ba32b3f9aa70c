"""The matcher of row patterns: compiled programs, one numba kernel, measures.

`compiled` makes a program ready for the kernel: `instructions` are the pattern, `bytecode` the
conditions that read the match so far, `leaves` those that become columns. `table` holds the rows
of a bucket, `arrays` gives them to the kernel. `search` drives the `kernel`, which `interpreter`
and `records` complete; `advance` runs it over rows that come in steps, and `answer` computes
measures. `frames` gives a pattern in a window its frame. `gaps` matches patterns with gaps by
joins. `jit` says how the kernel is compiled, and `loading` gives access to what was compiled.
"""
