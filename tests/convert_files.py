"""Small model files for the tests of conversions, and their parts."""

from __future__ import annotations

import gguf
import numpy as np

import cbquant
from tests import gguf_bytes as gb

Q, V, NORM, ROUTER, EXPERTS = (
    f"blk.0.{part}.weight" for part in ("attn_q", "attn_v", "attn_norm", "ffn_gate_inp", "ffn_up_exps")
)
BIAS = "blk.0.attn_v.bias"


def arrays(seed=0):
    """A model of one layer: what is quantized and what is not."""
    rng = np.random.default_rng(seed)
    shapes = {
        "token_embd.weight": (40, 64),
        Q: (64, 64),
        V: (32, 64),
        BIAS: (32,),
        NORM: (64,),
        ROUTER: (4, 64),
        EXPERTS: (4, 16, 64),
        "output.weight": (40, 64),
    }
    found = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found[Q] = found[Q].astype(np.float16)
    return found


def write_gguf(path, tensors, pairs=()):
    """A GGUF file of arrays, or of (format, blocks); `pairs` are keys and strings."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in pairs:
        writer.add_string(key, value)
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            fmt, blocks = tensor
            writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[fmt.upper()])
        else:
            writer.add_tensor(name, tensor)
    gb.save(writer)
    return path


def fake_quantize(calls=None):
    """In place of `cbquant.quantize`, for formats of any kind: bytes that depend on values, weights and format."""

    def quantize(x, fmt, imatrix=None, *, method="reference", nonfinite="raise", out=None, threads=None):
        f = next(f for f in cbquant.formats() if f.name == fmt)
        assert x.shape[-1] % f.elements == 0
        if calls is not None:
            calls.append((x.shape, fmt, None if imatrix is None else np.array(imatrix), method, nonfinite, threads))
        nbytes = x.shape[-1] // f.elements * f.bytes
        weights = np.ones(x.shape[-1]) if imatrix is None else np.asarray(imatrix, np.float64)
        marks = (np.asarray(x, np.float64) * weights).sum(axis=-1, keepdims=True) * 7
        return np.broadcast_to(np.mod(marks, 251), (*x.shape[:-1], nbytes)).astype(np.uint8)

    return quantize


def raw(file, name):
    """The bytes of a tensor."""
    tensor = file[name]
    return (tensor.raw if isinstance(tensor, cbquant.QuantTensor) else tensor).tobytes()


def formats(file):
    """The formats of the tensors."""
    return {name: info.format for name, info in file.infos.items()}


def leftovers(folder):
    """Names of what unfinished conversions left behind."""
    return sorted(path.name for path in folder.iterdir() if "cbquant-" in path.name)
