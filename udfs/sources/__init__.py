"""Ready-made remote sources: Redis, SQL databases, HTTP services.

Each source is one file. They share `clients` (one client for each worker, key templates, failures),
`decoding` (values from text and JSON) and `secrets`.
"""
