"""PTX text -> tokens that know their line."""

from __future__ import annotations

import re
from typing import NamedTuple


class PtxSyntaxError(ValueError):
    """Text that the parser cannot read; the message names the line."""


class Token(NamedTuple):
    kind: str  # "word", "number", "string" or "punct"
    text: str
    line: int


# A word takes its dots along: an opcode with its modifiers (`ld.global.L2::128B.v4.u32`), `%tid.x`, `.reg`.
_PATTERN = re.compile(
    r"""
    (?P<skip>\s+ | //[^\n]* | /\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\])*")
  | (?P<number>0[fF][0-9a-fA-F]{8}\b | 0[dD][0-9a-fA-F]{16}\b
              | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U? | \d+\.\d*(?:[eE][+-]?\d+)? | \d+U?)
  | (?P<word>[%$._A-Za-z](?:[\w$.]|::)*)
  | (?P<punct>[{}()\[\],;:=@!|+\-<>])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    tokens, position, line = [], 0, 1
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise PtxSyntaxError(f"line {line}: unexpected character {text[position]!r}")
        if match.lastgroup != "skip":
            tokens.append(Token(match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    return tokens


class Cursor:
    """A place in the tokens of a text, with the usual ways to look and to move on."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.tokens = tokenize(text)
        self.position = 0

    @property
    def token(self) -> Token:
        if self.position == len(self.tokens):
            raise PtxSyntaxError(f"line {len(self.lines)}: the text ends in the middle of a statement")
        return self.tokens[self.position]

    def next(self) -> str:
        text = self.token.text
        self.position += 1
        return text

    def at(self, *texts: str) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position].text in texts

    def followed_by(self, text: str) -> bool:
        """Is this the token after the next one?"""
        return self.position + 1 < len(self.tokens) and self.tokens[self.position + 1].text == text

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, got {self.token.text!r}")

    def error(self, message: str) -> PtxSyntaxError:
        line = self.tokens[min(self.position, len(self.tokens) - 1)].line
        return PtxSyntaxError(f"line {line}: {message}: {self.lines[line - 1].strip()}")

    def skip_line(self) -> None:
        line = self.token.line
        while self.position < len(self.tokens) and self.token.line == line:
            self.position += 1

    def skip_statement(self) -> None:
        while self.next() != ";":
            pass

    def skip_block(self) -> None:
        """Up to the brace that closes the next block: debug sections."""
        depth = 0
        while True:
            text = self.next()
            depth += (text == "{") - (text == "}")
            if text == "}" and depth == 0:
                return

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        if self.token.kind != "number":
            raise self.error(f"expected an integer, got {self.token.text!r}")
        return sign * parse_integer(self.next())


def parse_integer(text: str) -> int:
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X", "0b", "0B"):
        return int(text, 0)
    return int(text, 8 if len(text) > 1 and text[0] == "0" else 10)
