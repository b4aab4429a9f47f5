"""The parser: declarations, initialisers, scopes, operands; what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from . import Buffer, PtxSyntaxError, load, run
from .model import Address, Imm, Pair, Sink, Vector
from .parse import parse
from .snippet import evaluate, kernel


def test_tables_with_initialisers_and_addresses():
    module = load(
        """.version 9.0
.target sm_80, debug  // a comment
.address_size 64
.global .align 8 .b8 bytes[6] = {255, 1, 2};
.const .align 4 .b32 words[3] = {0x80000000, -1};
.global .align 8 .u64 quads[2] = {0xfedcba9876543210, 7};
.global .align 4 .f32 floats[3] = {0f3F800000, 0fC0000000, 2.5};
.global .align 4 .u32 zero;
.global .align 2 .u16 grid[2][3] = {{1, 2, 3}, {4}};
.global .align 8 .u64 pointers[4] = {generic(quads)+8, bytes, 0, generic(words)};
.visible .entry k() { ret; }
"""
    )
    assert module.array("bytes", np.uint8).tolist() == [255, 1, 2, 0, 0, 0]
    assert module.array("words", np.int32).tolist() == [-(1 << 31), -1, 0]
    assert module.array("quads", np.uint64).tolist() == [0xFEDCBA9876543210, 7]
    assert module.array("floats", np.float32).tolist() == [1, -2, 2.5]
    assert module.array("zero", np.uint32).tolist() == [0]
    assert module.array("grid", np.uint16).tolist() == [1, 2, 3, 4, 0, 0]
    start = {name: a.start for name, a in module.allocations.items()}
    expected = [start["quads"] + 8, start["bytes"], 0, start["words"]]
    assert module.array("pointers", np.uint64).tolist() == expected
    assert all(start[name] % 8 == 0 for name in ("bytes", "quads", "pointers"))
    assert module.module.target == "sm_80"
    with pytest.raises(ValueError, match="name='nothing': expected one of"):
        module.array("nothing", np.uint8)


def test_kernel_parameters_have_types_sizes_and_alignment():
    module = parse(kernel("", "\n.param .u64 .ptr .global .align 16 a,\n.param .align 16 .b8 b[40],\n.param .f32 c\n"))
    found = [(p.name, p.type.name, p.size, p.align, p.is_array) for p in module.functions["k"].params]
    assert found == [("a", "u64", 8, 8, False), ("b", "b8", 40, 16, True), ("c", "f32", 4, 4, False)]


def test_static_shared_and_local_variables():
    before = ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .b8 module_level[12];"
    body = ".shared .align 8 .b8 demoted[24]; .local .align 16 .b8 __local_depot0[32];"
    module = parse(kernel(body, before=before))
    found = {v.name: (v.space, v.size, v.align, v.external) for v in module.variables}
    assert found == {
        "dynamic": ("shared", 0, 16, True),
        "module_level": ("shared", 12, 4, False),
    }
    inner = {v.name: (v.space, v.size, v.align) for v in module.functions["k"].variables}
    assert inner == {"demoted": ("shared", 24, 8), "__local_depot0": ("local", 32, 16)}


def test_inner_scopes_have_their_own_registers_and_labels():
    code = """mov.b32 %r1, 5; mov.b32 %d, 0;
        { .reg .b32 %r<3>, low; .reg .pred %p1; // shadows the kernel's
          mov.b32 %r1, 3; mov.b32 low, 0;
          AGAIN: add.u32 %d, %d, %a; add.u32 low, low, 1;
          setp.lt.u32 %p1, low, %r1; @%p1 bra AGAIN; }
        { .reg .b32 low; mov.b32 low, 0;
          AGAIN: add.u32 %d, %d, 100; add.u32 low, low, 1;
          setp.lt.u32 %p1, low, 2; @%p1 bra AGAIN; }
        add.u32 %d, %d, %r1;"""
    assert evaluate(code, np.uint32, a=np.array([1, 20], np.uint32)).tolist() == [208, 265]


def test_operands_and_literals():
    body = """
        @!%p1 shfl.sync.bfly.b32 %r1|%p2, %r2, 0x10, 31, -1;
        mov.b64 {%r1, _}, %q1; ld.global.v2.u32 {%r1, %r2}, [%q1+-8];
        mov.f32 %f1, 0fBF800000; mov.f64 %t1, 0d3FF0000000000000; mov.b32 %r1, 0b101; mov.b32 %r1, 017;
        and.b32 %r1, %r1, 0xF0U;"""
    instructions = parse(kernel(body)).functions["k"].instructions
    shuffle, unpack, load_pair, *moves, masked, _ = instructions
    assert shuffle.guard.negated
    assert shuffle.guard.reg.name == "%p1"
    assert isinstance(shuffle.operands[0], Pair)
    assert shuffle.operands[2:] == (Imm(16, "int"), Imm(31, "int"), Imm(-1, "int"))
    assert isinstance(unpack.operands[0], Vector)
    assert isinstance(unpack.operands[0].items[1], Sink)
    assert isinstance(load_pair.operands[1], Address)
    assert load_pair.operands[1].offset == -8
    assert load_pair.modifiers == ["global", "v2", "u32"]
    literals = [m.operands[1] for m in moves]
    one = 0x3FF0000000000000
    assert literals == [Imm(0xBF800000, "f32"), Imm(one, "f64"), Imm(5, "int"), Imm(15, "int")]
    assert masked.operands[2] == Imm(0xF0, "int")
    assert [i.line for i in instructions[:3]] == [8, 9, 9]


def test_debug_directives_are_passed_over():
    text = kernel('.loc 1 9 3, function_name $L__info_string0, inlined_at 1 12 41\n .pragma "nounroll";')
    text += '\n.file 1 "/some/where.cu"\n.section .debug_str { $L__info_string0: .b8 95,90,0 }\n'
    assert [i.opcode for i in parse(text).functions["k"].instructions] == ["ret"]


def test_calls_with_results_and_arguments():
    before = """
.func (.param .b32 result) twice_plus(.param .b32 value, .param .b64 where);
.func (.param .b32 result) twice_plus(.param .b32 value, .param .b64 where) {
    .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p1;
    ld.param.u32 %r1, [value]; ld.param.u64 %rd1, [where];
    setp.gt.u32 %p1, %r1, 5; @%p1 bra BIG;
    st.param.b32 [result+0], 1; ret;
BIG: ld.u32 %r2, [%rd1]; shl.b32 %r3, %r1, 1; add.u32 %r3, %r3, %r2;
    st.param.b32 [result+0], %r3; ret;
}"""
    call = """{{ .param .b32 param0; .param .b64 param1; .param .b32 retval0;
        st.param.b32 [param0], {argument}; st.param.b64 [param1], %q3;
        call.uni (retval0), twice_plus, (param0, param1); ld.param.b32 {result}, [retval0]; }}"""
    body = f"""
        ld.param.u64 %q1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %q2, %r1, 4; add.u64 %q3, %q1, %q2;
        {call.format(argument="%r1", result="%r2")}
        setp.lt.u32 %p1, %r1, 7; @%p1 bra DONE; // the lanes part, and meet in the function again
        {call.format(argument="%r2", result="%r2")}
DONE:   st.global.u32 [%q3], %r2;"""
    x = np.arange(100, 110, dtype=np.uint32)
    run(load(kernel(body, ".param .u64 x", before)), "k", 1, 10, [x])

    def twice_plus(value: int, more: int) -> int:
        return 2 * value + more if value > 5 else 1

    once = [twice_plus(i, 100 + i) for i in range(10)]
    assert x.tolist() == [v if i < 7 else twice_plus(v, 100 + i) for i, v in enumerate(once)]


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "unknown directive": (".version 9.0\n.nonsense x;", r"line 2: unknown directive '\.nonsense'"),
        "character": ("\n\n`", r"line 3: unexpected character '`'"),
        "half a statement": (".visible .entry k() { ret", "the text ends in the middle of a statement"),
        "operand": (".visible .entry k() {\n.reg .b32 %r1;\nmov.b32 %r1 5;\n}", "line 3: expected ','"),
        "32-bit": (".address_size 32", "only 64-bit addresses"),
        "guard": (".visible .entry k() { .reg .b32 %r1; @%r1 ret; }", "must be a predicate register"),
    }.values(),
)
def test_syntax_errors_name_the_line(text, message):
    with pytest.raises(PtxSyntaxError, match=message):
        parse(text)


def test_code_that_ptxas_may_contract_is_listed():
    body = "mul.f32 %f1, %f2, %f3; add.rn.f32 %f1, %f1, %f2; add.s32 %r1, %r2, %r3; sub.f64 %t1, %t2, %t3;"
    function = parse(kernel(body)).functions["k"]
    assert [i.opcode for i in function.contractible()] == ["mul.f32", "sub.f64"]


def test_buffers_refuse_strided_arrays():
    with pytest.raises(ValueError, match="expected a C-contiguous ndarray"):
        Buffer(np.zeros((4, 4))[:, 1])
