"""Remote values in the workers: fetched, cached, looked up by key.

Begin in `lookup`, which an expression or a walk asks for keys. `keys` numbers the keys, `store` and
`cache` keep the values, `answers` checks what a source gave, `fetching` calls sources with retries
and timeouts, and `stage` looks up whole batches outside the engine.
"""
