"""Columns that explain a speed-up, in any table on request: `columns=[tokens,limit]`.

tokens     tokens merged, of those that a block is given
gflops     GFLOPs an image that the baseline needs more
attention  share of an evaluation that the finest self-attentions take
limit      speed-up if merging were free, and the share of that speed that was reached
seconds    the first generation of a row in the process, beside the steady ones
steps      the baseline with as many fewer steps as take the row's time, PLMS and DPM++
"""

COLUMNS = ("tokens", "gflops", "attention", "limit", "seconds", "steps")
