"""The operators of DeepSeek-V4 on NVIDIA GPUs: those of `cbquant.deepseek`, with ``stream=`` in place of ``threads=``.

Arrays are on the device (torch, CuPy, JAX, `cbquant.cuda.DeviceArray`), at any strides, or ndarrays, which are copied
there and back. Not yet run on a GPU: docs/cuda.md says how it was tested.
"""

from __future__ import annotations

from cbquant.cuda.deepseek._attention import mla_decode, sdpa_decode_sink, sparse_sdpa_decode
from cbquant.cuda.deepseek._choice import (
    gather_list,
    indexer_score,
    indexer_select,
    indexer_topk,
    route,
    router_sqrtsoftplus,
)
from cbquant.cuda.deepseek._moe import moe_ffn
from cbquant.cuda.deepseek._streams import (
    compressor_pool,
    mhc_collapse,
    mhc_expand,
    mhc_sinkhorn_split,
    partial_rope,
    vector_add,
)

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
