"""Load shedding in the workers: the worth of rows, quotas, and the time of a trigger.

`shedder` decides which rows of a trigger stay. `passing` and `utility` give a row its worth,
`quota` says how many rows of each kind may stay, `pace` how much time a trigger has, and `learning`
keeps the statistics of all three.
"""
