"""The operators of `cbquant.deepseek` in float64 NumPy, by the plainest code that is right.

They are written from the statement of each operator, not from the C sources. Inputs are arrays of any real dtype; every
result is float64, but for indices.

>>> from cbquant.reference import deepseek
>>> deepseek.vector_add([1, 2], [10, 20])
array([11., 22.])
"""

from __future__ import annotations

from ._add import vector_add
from ._attention import gather_list, sdpa_decode_sink, sparse_sdpa_decode
from ._indexer import indexer_score, indexer_select, indexer_topk
from ._mhc import mhc_collapse, mhc_expand, mhc_sinkhorn_split
from ._mla import mla_decode
from ._moe import moe_ffn
from ._pool import compressor_pool
from ._rope import partial_rope
from ._router import route, router_sqrtsoftplus

__all__ = [
    "compressor_pool",
    "gather_list",
    "indexer_score",
    "indexer_select",
    "indexer_topk",
    "mhc_collapse",
    "mhc_expand",
    "mhc_sinkhorn_split",
    "mla_decode",
    "moe_ffn",
    "partial_rope",
    "route",
    "router_sqrtsoftplus",
    "sdpa_decode_sink",
    "sparse_sdpa_decode",
    "vector_add",
]
