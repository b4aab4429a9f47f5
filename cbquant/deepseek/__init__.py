"""Operators of DeepSeek-V4 and its relatives on NumPy arrays: C with SIMD and threads.

Arrays are float32, float16 or bfloat16 (``ml_dtypes.bfloat16``), sums are float32, and a result is rounded once to the
dtype of the operator's main input, or of `out`, where uint16 stands for bfloat16. Inputs may differ in dtype. Any
strides do; where the last axis is contiguous nothing is copied. A result depends on neither the number of threads nor
on what else is in the batch. `cbquant.reference.deepseek` has the same in float64 NumPy.

>>> import cbquant, numpy as np
>>> cbquant.deepseek.vector_add(np.float32([1, 2]), np.float32([10, 20]))
array([11., 22.], dtype=float32)
"""

from __future__ import annotations

from cbquant.deepseek._add import vector_add
from cbquant.deepseek._attention import gather_list, sdpa_decode_sink, sparse_sdpa_decode
from cbquant.deepseek._indexer import indexer_score, indexer_select, indexer_topk
from cbquant.deepseek._mhc import mhc_collapse, mhc_expand, mhc_sinkhorn_split
from cbquant.deepseek._mla import mla_decode
from cbquant.deepseek._moe import moe_ffn
from cbquant.deepseek._pool import compressor_pool
from cbquant.deepseek._rope import partial_rope
from cbquant.deepseek._router import route, router_sqrtsoftplus

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
