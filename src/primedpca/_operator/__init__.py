"""The data as a centred, weighted and scaled matrix that is never formed.

Holds the operator, the statistics of the first pass, the kernels that process one block, and the
one-pass view of the rows.  May import ``_core``, ``protocols``, ``result``, ``sources``,
``engines``.
"""
