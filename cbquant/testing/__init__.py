"""For people who write their own kernels: blocks with their right values, and a strict comparison.

>>> from cbquant import reference, testing
>>> kernel = reference.dequant                       # or the kernel under test
>>> for case in testing.vectors("q4_0"):
...     testing.assert_bits_equal(kernel(case.blocks, "q4_0"), case.f32, fmt="q4_0", err_msg=case.name)

From another language
---------------------
``vectors/FORMAT.npz`` is a zip file of ``.npy`` arrays, all little-endian and in C order:

=============  =====================  ==================================================================
array          shape and type         content
=============  =====================  ==================================================================
``blocks``     ``[n, block bytes]``   encoded blocks, uint8
``f32``        ``[n, elements]``      their values, float32
``case``       ``[n]``                the case that a block belongs to, ASCII in 6 bytes; a case's blocks
                                      are neighbours
``x``          ``[4, 512]``           rows to encode, float32: gauss, ints, constant, zeros
``q``          ``[4, row bytes]``     the reference encoder's bytes for them, uint8; the formats that
                                      need an importance matrix were given ones
``imatrix``    ``[512]``              an importance matrix, float32
``q_imatrix``  ``[1, row bytes]``     the bytes for row 0 (gauss) under that matrix, uint8
=============  =====================  ==================================================================

Cases: ``random`` (any bytes, with finite f16 scales), ``raw`` (any bytes at all), ``scales`` (a block for
each special scale: zeros, subnormals, the largest, inf, NaN; for mxfp4 and nvfp4 every scale byte),
``pairs`` (formats with a scale and a min: special values of both), ``grid`` (the iq formats with a grid:
every row once, with d = 1, the smallest group scale and no signs).

Compare by bits: any NaN equals any NaN, -0.0 differs from 0.0. The values are those of ggml's portable C
code, with two differences: mxfp4 blocks whose scale byte is 255 are NaN (OCP Microscaling Formats 1.0), and
the E2M1 code 8 is -0.0 (mxfp4, nvfp4), where ggml's integer table gives 0.0.
"""

from __future__ import annotations

from ._compare import assert_bits_equal
from ._vectors import Case, EncodeCase, encode_vectors, names, vectors

__all__ = ["Case", "EncodeCase", "assert_bits_equal", "encode_vectors", "names", "vectors"]
