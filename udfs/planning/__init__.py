"""Plans from statistics: cost models, generation of plans, invariants, adaptation.

`planner` is the entry. `cost_model` and `combinatorics` say what a plan costs, `conditions` what
conditions keep, `set_tables` the same for all sets of slots at once; `dynamic`, `greedy`,
`local_search`, `zstream` and `apam` generate plans of the `shapes`; `invariants` and `adaptation`
decide when a plan is made again, by checks that are compiled (`compiled_invariants`) from the
formulas of the cost model (`monomials`). The driver uses the same functions before a query.
"""
