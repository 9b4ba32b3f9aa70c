"""Remote sources of a query: which strategy and cache each one gets."""
