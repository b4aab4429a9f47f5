"""PTX text -> Module: a recursive-descent parser for what nvcc writes."""

from __future__ import annotations

import re
import struct

from .dtypes import TYPES, Type
from .model import (
    Address,
    AddressOf,
    Function,
    Guard,
    Imm,
    Instruction,
    Module,
    Name,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Sym,
    Variable,
    Vector,
)
from .tokens import Cursor, parse_integer

_SPACES = {".param": "param", ".shared": "shared", ".local": "local", ".global": "global", ".const": "const"}
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.[xyz]|%(laneid|warpid|nwarpid|lanemask_(eq|le|lt|ge|gt))")
_LINKAGE = (".visible", ".extern", ".weak", ".common")
_LINE_DIRECTIVES = (".loc", ".file")  # the only ones that end with their line, not with a semicolon


def parse(text: str) -> Module:
    """Parse a PTX module.

    Raises PtxSyntaxError (a ValueError) that names the line.
    """
    return _Parser(text).module()


class _Scope:
    """The names that one pair of braces declares."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, Reg | Variable] = {}
        self.ranges: dict[str, tuple[int, int]] = {}  # `.reg .b32 %r<9>`: prefix -> bits, count
        self.labels: dict[str, str] = {}  # as written -> unique in the function


class _Parser(Cursor):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.scope = _Scope(None)
        self.slots = 0
        self.scopes = 0
        self.functions: dict[str, Function] = {}

    # -- module level ---------------------------------------------------------------------------------------

    def module(self) -> Module:
        target, variables = "", []
        while self.position < len(self.tokens):
            if self.at(*_LINE_DIRECTIVES):
                self.skip_line()
            elif self.accept(".version"):
                self.next()
            elif self.accept(".address_size"):
                if self.integer() != 64:
                    raise self.error("only 64-bit addresses are supported")
            elif self.accept(".target"):
                target = self.next()
                while self.accept(","):
                    self.next()
            elif self.at(".section"):
                self.skip_block()
            elif self.at(".pragma"):
                self.skip_statement()
            else:
                self.definition(variables)
        return Module(self.functions, variables, self.slots, target)

    def definition(self, variables: list[Variable]) -> None:
        external = False
        while self.at(*_LINKAGE):
            external |= self.next() == ".extern"
        if self.at(".entry", ".func"):
            self.function(is_kernel=self.next() == ".entry")
        elif self.at(*_SPACES):
            variables.append(self.variable(external))
        else:
            raise self.error(f"unknown directive {self.token.text!r}")

    def function(self, is_kernel: bool) -> None:
        function = Function("", is_kernel)
        self.enter()
        if not is_kernel and self.at("("):
            function.returns = self.parameters()
        function.name = self.next()
        if self.at("("):
            function.params = self.parameters()
        while not self.at("{", ";"):
            self.next()  # .maxntid and other performance hints
        if self.accept(";"):
            function.has_body = False
        else:
            self.expect("{")
            self.body(function)
        self.leave()
        known = self.functions.get(function.name)
        if known is None or not known.has_body:
            self.functions[function.name] = function

    def parameters(self) -> list[Variable]:
        found: list[Variable] = []
        self.expect("(")
        while not self.accept(")"):
            self.expect(".param")
            found.append(self.declarator("param", external=False))
            self.accept(",")
        return found

    # -- declarations ---------------------------------------------------------------------------------------

    def variable(self, external: bool = False) -> Variable:
        """`.global .align 8 .b8 table[64] = {1, 2};` and its like in the other state spaces."""
        space = _SPACES[self.next()]
        found = self.declarator(space, external)
        self.expect(";")
        return found

    def declarator(self, space: str, external: bool) -> Variable:
        align, element = 0, None
        while self.token.text.startswith("."):
            word = self.next()
            if word == ".align":
                align = self.integer()
            elif word == ".ptr":  # .ptr .global .align 16: a promise about where a pointer leads
                while self.at(".global", ".const", ".local", ".shared", ".align"):
                    if self.next() == ".align":
                        self.integer()
            elif word[1:] in TYPES:
                element = TYPES[word[1:]]
            else:
                raise self.error(f"unknown qualifier {word!r}")
        if element is None:
            raise self.error("a variable without a type")
        name, count, is_array = self.next(), 1, False
        while self.accept("["):
            is_array = True
            count *= 0 if self.at("]") else self.integer()
            self.expect("]")
        initial = tuple(self.initializer()) if self.accept("=") else ()
        variable = Variable(
            name, space, element, align or element.bytes, count * element.bytes, initial, external, is_array
        )
        self.scope.names[name] = variable
        return variable

    def initializer(self) -> list[int | float | AddressOf]:
        if self.accept("{"):
            found = []
            while not self.accept("}"):
                found += self.initializer()
                self.accept(",")
            return found
        if self.token.kind == "word":
            name = self.next()
            if name == "generic":
                self.expect("(")
                name = self.next()
                self.expect(")")
            return [AddressOf(name, self.integer() if self.accept("+") else 0)]
        literal = self.literal()
        return [literal.value if literal.kind == "int" else _float(literal)]

    def registers(self) -> None:
        self.expect(".reg")
        type_name = self.next()[1:]
        if type_name not in TYPES:
            raise self.error(f"registers of type .{type_name} are not supported")
        bits = TYPES[type_name].bits
        while True:
            name = self.next()
            if self.accept("<"):
                self.scope.ranges[name] = (bits, self.integer())
                self.expect(">")
            else:
                self.scope.names[name] = self.new_register(name, bits)
            if not self.accept(","):
                break
        self.expect(";")

    def new_register(self, name: str, bits: int) -> Reg:
        self.slots += 1
        return Reg(self.slots - 1, bits, name)

    # -- function bodies ------------------------------------------------------------------------------------

    def enter(self) -> None:
        self.scope = _Scope(self.scope)

    def leave(self) -> None:
        self.scope = self.scope.outer

    def body(self, function: Function) -> None:
        depth = 1
        self.scope.labels = self.labels_ahead()
        while depth:
            if self.accept("{"):
                depth += 1
                self.enter()
                self.scopes += 1
                self.scope.labels = {k: f"{k}#{self.scopes}" for k in self.labels_ahead()}
            elif self.accept("}"):
                depth -= 1
                if depth:
                    self.leave()
            elif self.at(*_LINE_DIRECTIVES):
                self.skip_line()
            elif self.at(".pragma"):
                self.skip_statement()
            elif self.at(".reg"):
                self.registers()
            elif self.at(*_SPACES):
                function.variables.append(self.variable())
            elif self.followed_by(":"):
                function.labels[self.scope.labels[self.next()]] = len(function.instructions)
                self.expect(":")
            elif not self.accept(";"):
                function.instructions.append(self.instruction())

    def labels_ahead(self) -> dict[str, str]:
        """The labels that the block starting here declares itself, inner blocks left out."""
        found, depth, i = {}, 0, self.position
        while depth >= 0 and i + 1 < len(self.tokens):
            text = self.tokens[i].text
            depth += (text == "{") - (text == "}")
            if depth == 0 and self.tokens[i].kind == "word" and self.tokens[i + 1].text == ":":
                found[text] = text
            i += 1
        return found

    def instruction(self) -> Instruction:
        guard, line = None, self.token.line
        if self.accept("@"):
            negated = self.accept("!")
            reg = self.name_operand(self.next())
            if not isinstance(reg, Reg) or reg.bits != 1:
                raise self.error("a guard must be a predicate register")
            guard = Guard(reg, negated)
        if self.token.kind != "word":
            raise self.error(f"expected an instruction, got {self.token.text!r}")
        opcode, operands = self.next(), []
        while not self.accept(";"):
            operands.append(self.operand())
            if not self.at(";"):
                self.expect(",")
        return Instruction(opcode, tuple(operands), guard, line, self.lines[line - 1].strip())

    def operand(self) -> Operand:
        if self.accept("!"):
            return Not(self.name_operand(self.next()))
        for opening, closing in ("{}", "()"):
            if self.accept(opening):
                items = []
                while not self.accept(closing):
                    items.append(self.operand())
                    self.accept(",")
                return Vector(tuple(items))
        if self.accept("["):
            base, offset = self.operand(), 0
            if self.accept("+"):
                offset = self.integer()
            self.expect("]")
            return Address(base, offset)
        if self.token.kind == "number" or self.at("-"):
            return self.literal()
        first = self.name_operand(self.next())
        if self.accept("|"):
            return Pair(first, self.name_operand(self.next()))
        if isinstance(first, Sym) and self.accept("+"):
            return Sym(first.variable, self.integer())
        return first

    def literal(self) -> Imm:
        negative = self.accept("-")
        text = self.next()
        if text[:2] in ("0f", "0F") and len(text) == 10:
            return Imm(int(text[2:], 16), "f32")
        if text[:2] in ("0d", "0D"):
            return Imm(int(text[2:], 16), "f64")
        if "." in text:
            packed = struct.pack("<d", -float(text) if negative else float(text))
            return Imm(int.from_bytes(packed, "little"), "f64")
        return Imm(-parse_integer(text) if negative else parse_integer(text), "int")

    def name_operand(self, name: str) -> Operand:
        if name == "_":
            return Sink()
        scope = self.scope
        while scope is not None:
            if name in scope.names:
                found = scope.names[name]
                return Sym(found, 0) if isinstance(found, Variable) else found
            numbered = re.fullmatch(r"(.*\D)(\d+)", name)
            if numbered and numbered[1] in scope.ranges:
                bits, count = scope.ranges[numbered[1]]
                if int(numbered[2]) < count:
                    scope.names[name] = self.new_register(name, bits)
                    return scope.names[name]
            if name in scope.labels:
                return Name(scope.labels[name])
            scope = scope.outer
        if _SPECIAL.fullmatch(name):
            return Special(name)
        if name == "WARP_SZ":
            return Imm(32, "int")
        if name.startswith("%"):
            what = "is neither declared nor a special register that is supported"
            raise NotImplementedError(f"line {self.token.line}: the register {name} {what}")
        return Name(name)  # a function: it may be defined later in the text


def _float(literal: Imm) -> float:
    packing = ("<I", "<f") if literal.kind == "f32" else ("<Q", "<d")
    return struct.unpack(packing[1], struct.pack(packing[0], literal.value))[0]


def element_bytes(t: Type, value: int | float) -> bytes:
    """One element of an initialiser as it lies in memory."""
    if isinstance(value, float):
        return struct.pack({16: "<e", 32: "<f", 64: "<d"}[t.bits], value)
    return (value % (1 << t.bits)).to_bytes(t.bytes, "little")
