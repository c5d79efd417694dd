"""Text as bytes: every byte is a token, written as its decimal number, and the line feed ends a line.

enwik8 is binarised in this form. fairseq appends `</s>` to every line in place of the line feed, so a text of n bytes
becomes n tokens, or n + 1 if the text does not end with a line feed.
"""

NEWLINE = 10
# fairseq ignores the blank after the last number of a line, so every byte can be encoded separately.
_TOKENS = [b"\n" if byte == NEWLINE else b"%d " % byte for byte in range(256)]


def encode(block: bytes) -> bytes:
    """Return the decimal numbers of a block of bytes; encoded blocks can be joined like the blocks themselves."""
    return b"".join(map(_TOKENS.__getitem__, block))


def decode(text: str) -> bytes:
    """Return the bytes of lines of decimal numbers: the inverse of :func:`encode`.

    Raises:
        ValueError: if a token is not a number from 0 to 255.
    """
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        values = []
        for token in line.split():
            if not (token.isascii() and token.isdigit() and int(token) < 256):
                raise ValueError(f"line {number}: {token!r} is not a byte; give decimal numbers from 0 to 255")
            values.append(int(token))
        lines.append(bytes(values))
    return b"\n".join(lines)
