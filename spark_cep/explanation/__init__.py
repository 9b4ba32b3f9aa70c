"""What `explain` shows: the facts of a plan as text, JSON, a page and a drawing.

`facts` holds what is known of a match, and `plan` the object that users get. `text` and `page`
print it, `drawing` and `svg` draw it, `comparison` sets measured beside estimated figures, and
`remotes` and `shedding` have the lines of these features, `counts` adds up what buckets counted,
and `numbers` spells numbers. Nothing here reads a DataFrame; that is `spark_cep.spark`.
"""
