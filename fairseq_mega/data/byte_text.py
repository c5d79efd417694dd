"""Text as bytes: every byte is a token, its decimal number, and the line feed ends a line.

This is the form in which enwik8 is binarised: fairseq appends `</s>` to every line, which stands for the line feed, so
that a text of n bytes becomes n tokens. Only where the text does not end in a line feed, `</s>` is one token more.
"""

NEWLINE = 10
# fairseq ignores the blank after the last number of a line, and every byte can be encoded by itself.
_TOKENS = [b"\n" if byte == NEWLINE else b"%d " % byte for byte in range(256)]


def encode(block: bytes) -> bytes:
    """Return the decimal numbers of a block of bytes; encoded blocks can be joined like the blocks themselves."""
    return b"".join(map(_TOKENS.__getitem__, block))


def decode(text: str) -> bytes:
    """Return the bytes that lines of decimal numbers stand for; the inverse of :func:`encode`.

    Raises:
        ValueError: a token that is no number from 0 to 255 (names it and its line).
    """
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        values = []
        for token in line.split():
            if not (token.isascii() and token.isdigit() and int(token) < 256):
                raise ValueError(f"line {number}: {token!r} is not a byte; decimal numbers from 0 to 255 are needed")
            values.append(int(token))
        lines.append(bytes(values))
    return b"\n".join(lines)
