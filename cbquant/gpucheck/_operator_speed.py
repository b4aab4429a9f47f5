"""Speed of cbquant.cuda.deepseek: against a copy of the bytes that are read and written, and torch's plain expressions,
where they fit in a line. Not yet run on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from cbquant.cuda import deepseek
from cbquant.gpucheck import _ceilings
from cbquant.gpucheck._ceilings import need_torch, timer
from cbquant.gpucheck._items import Context, Item

#: Tokens and columns of a layer, experts and their choices; positions in a cache and those that attention takes.
TOKENS, WIDTH, EXPERTS, PICKS, POSITIONS, CHOSEN = 4096, 4096, 256, 8, 65536, 512
#: Heads and columns of queries of attention and of the indexer.
HEADS, HEAD, INDEX_HEADS, INDEX_HEAD = 64, 512, 64, 128

#: Shape and type of each argument: b is bfloat16, f float32, i positions; what is no pair is passed on.
Spec = tuple[tuple[int, ...], str]


def items(context: Context) -> Iterator[Item]:
    for name in cases():
        yield Item(f"operator {name}", partial(measure, context, name))


def cases() -> dict[str, tuple[tuple[Any, ...], tuple[Spec, ...]]]:
    """Arguments and results of each operator, in the shapes of a model's layer."""
    t, d, cache = TOKENS, WIDTH, ((1, 1, POSITIONS, HEAD), "b")
    query, sink = ((1, HEADS, HEAD), "b"), ((HEADS,), "f")
    scored = ((1, INDEX_HEADS, INDEX_HEAD), "b"), ((POSITIONS, INDEX_HEAD), "b"), ((1, INDEX_HEADS), "b")
    logits = ((t, EXPERTS), "f"), ((EXPERTS,), "f")
    return {
        "vector_add": ((((t, d), "b"),) * 2, (((t, d), "b"),)),
        "mhc_sinkhorn_split": (
            (((t, 24), "f"), ((3,), "f"), ((24,), "f")),
            (((t, 4), "f"), ((t, 4), "f"), ((t, 4, 4), "f")),
        ),
        "mhc_collapse": ((((t, 4), "b"), ((t, 4, d), "b")), (((t, d), "b"),)),
        "mhc_expand": (
            (((t, d), "b"), ((t, 4), "b"), ((t, 4, 4), "b"), ((t, 4, d), "b")),
            (((t, 4, d), "b"),),
        ),
        "partial_rope": ((((t, HEADS, 128), "b"), ((t,), "i")), (((t, HEADS, 128), "b"),)),
        "compressor_pool": (
            (((t, 8, 1), "b"), ((t, 8, HEAD), "b"), ((8, HEAD), "b")),
            (((t, HEAD), "b"),),
        ),
        "router_sqrtsoftplus": (logits, (((t, EXPERTS), "f"),) * 2),
        "route": ((*logits, PICKS), (((t, PICKS), "i"), ((t, PICKS), "f"))),
        "indexer_score": (scored, (((1, POSITIONS), "f"),)),
        "indexer_topk": ((((1, POSITIONS), "f"), CHOSEN), (((1, CHOSEN), "i"),)),
        "indexer_select": ((*scored, CHOSEN), (((1, CHOSEN), "i"),)),
        "sdpa_decode_sink": ((query, cache, cache, sink), (query,)),
        "sparse_sdpa_decode": ((query, cache, cache, ((1, CHOSEN), "i"), sink), (query,)),
    }


def measure(context: Context, name: str) -> dict[str, Any]:
    torch = need_torch(context)
    args, outs = ([make(torch, spec) for spec in specs] for specs in cases()[name])
    nbytes = sum(moved(name, a) for a in (*args, *outs) if not isinstance(a, int))
    function = getattr(deepseek, name)
    time = timer(context).measure([lambda: function(*args, out=outs[0] if len(outs) == 1 else tuple(outs))])
    of_copy = nbytes / time.seconds / _ceilings.copy_rate(context)
    row = {"what": "operator", "format": name, "bytes": nbytes, "of_copy": of_copy, **time.as_dict()}
    if peer := PEERS.get(name):
        row["times_torch"] = timer(context).measure([partial(peer, torch, *args)]).seconds / time.seconds
    return {"rows": [row]}


def moved(name: str, tensor: Any) -> int:
    """Bytes of an argument or a result that are read or written: of a cache those of the positions of a list."""
    nbytes: int = tensor.numel() * tensor.element_size()
    of_list = name == "sparse_sdpa_decode" and tuple(tensor.shape) == (1, 1, POSITIONS, HEAD)
    return nbytes * CHOSEN // POSITIONS if of_list else nbytes


def make(torch: Any, spec: Any) -> Any:
    if isinstance(spec, int):
        return spec
    shape, kind = spec
    if kind == "i":
        return torch.randint(0, min(TOKENS, POSITIONS), shape, dtype=torch.int32, device="cuda")
    return torch.randn(*shape, dtype=torch.bfloat16 if kind == "b" else torch.float32, device="cuda")


def _score(torch: Any, q: Any, k: Any, w: Any) -> Any:
    return torch.einsum("bhn,bh->bn", torch.relu(torch.einsum("bhd,nd->bhn", q, k)), w)


def _router(torch: Any, logits: Any, bias: Any) -> Any:
    unbiased = torch.sqrt(torch.nn.functional.softplus(logits))
    return unbiased, torch.add(unbiased, bias)


#: What torch does in place of an operator; attention's has no sink.
PEERS: dict[str, Callable[..., Any]] = {
    "vector_add": lambda torch, a, b: torch.add(a, b),
    "mhc_collapse": lambda torch, pre, h: torch.einsum("ts,tsd->td", pre, h),
    "router_sqrtsoftplus": _router,
    "indexer_score": _score,
    "indexer_topk": lambda torch, score, k: torch.topk(score, k),
    "indexer_select": lambda torch, q, k, w, count: torch.topk(_score(torch, q, k, w), count),
    "sdpa_decode_sink": lambda torch, q, k, v, sink: torch.nn.functional.scaled_dot_product_attention(q[:, None], k, v),
}
