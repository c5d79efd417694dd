"""Kinds of files, recognised by their first bytes, and the command that converts each kind."""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

HEAD = 4096  # bytes that identify a kind
SOURCE = "SOURCE.json"  # file that fairseq-mega-prepare writes beside the data
_OFTEN = 0.1  # share of NUL bytes above which they are halves of characters, not stray bytes
_NO_LETTERS = rb"(?=.*[\0-\x08\x0e-\x1a])"  # excludes text in single-byte encodings


class FileKind(NamedTuple):
    """A kind of file.

    Attributes:
        name: continuation of "it is ...".
        remedy: a sentence in the imperative; ``FILE`` stands for the file.
        group: "text", "packed", "picture", "sound" or "other".
        encoding: encoding of a text, a name that Python and iconv accept.
        marked: whether a text begins with a byte-order mark.
    """

    name: str
    remedy: str
    group: str
    encoding: str = ""
    marked: bool = False

    def told(self, path: object) -> str:
        """Return the error message for a file of this kind."""
        return f"{path}: it is {self.name}; {self.remedy.replace('FILE', str(path))}"


def _packed(name: str, command: str) -> FileKind:
    return FileKind(f"packed with {name}", f"unpack it: {command}", "packed")


def _other(name: str, remedy: str = "give a file of plain text") -> FileKind:
    return FileKind(name, remedy, "other")


def _picture(name: str, remedy: str = "give a file of plain text") -> FileKind:
    return FileKind(name, remedy, "picture")


def _sound(name: str) -> FileKind:
    return FileKind(name, "convert it: `ffmpeg -i FILE -ac 1 -ar 16000 -c:a pcm_s16le OUT.wav`", "sound")


_TO_JPEG = "convert it: `heif-convert FILE OUT.jpg`, or `magick FILE OUT.jpg`"
_OFFICE = _other("a document of an office program", "save it as plain text")
_ZIP = _packed("zip (or a document of an office program)", "`unzip FILE`, or save the document as plain text")
NO_TEXT = _other("not a text: it contains NUL bytes")
ZEROS = _other("an incomplete copy: it begins with zeros only", "get a new copy")
HEIC = _picture("a picture in HEIC", _TO_JPEG)
PDF = _other("a PDF", "extract its text: `pdftotext FILE OUT.txt`")
WAV, FLAC, OGG, MP3 = _sound("sound in WAV"), _sound("sound in FLAC"), _sound("sound in Ogg"), _sound("sound in MP3")
AIFF, SPHERE = _sound("sound in AIFF"), _sound("sound in NIST SPHERE")

# Patterns of the first bytes; the first match counts. No pattern matches plain text: each requires more than a word.
_SIGNATURES: Tuple[Tuple[bytes, FileKind], ...] = (
    (rb"\x1f\x8b", _packed("gzip", "`gunzip -k FILE`")),
    (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", _packed("bzip2", "`bunzip2 -k FILE`")),
    (rb"\xfd7zXZ\0", _packed("xz", "`unxz -k FILE`")),
    (rb"\x28\xb5\x2f\xfd", _packed("zstd", "`unzstd FILE`")),
    (rb"\x04\x22\x4d\x18", _packed("lz4", "`unlz4 FILE`")),
    (rb"\x1f\x9d", _packed("compress", "`uncompress FILE`")),
    (rb"PK(\x03\x04|\x05\x06)", _ZIP),
    (rb"7z\xbc\xaf\x27\x1c", _packed("7-Zip", "`7z x FILE`")),
    (rb"Rar!\x1a\x07", _packed("RAR", "`unrar x FILE`")),
    (rb".{257}ustar", FileKind("an archive of tar", "unpack it: `tar xf FILE`", "packed")),
    (rb"%PDF-", PDF),
    (rb"\{\\rtf", _other("a document in RTF", "save it as plain text")),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OFFICE),
    (rb"%!PS", _other("PostScript", "extract its text: `ps2ascii FILE OUT.txt`")),
    (rb"version https://git-lfs", _other("a pointer of Git LFS, not the file itself", "fetch it: `git lfs pull`")),
    (rb"PAR1[\0-\x1f]", _other("a table in Parquet", "convert it to JSON lines, for example with pandas")),
    (rb"ARROW1\0|\xff{4}..\0\0\x10", _other("a table of Arrow", "convert it to JSON lines, for example with pandas")),
    (rb"SQLite format 3\0", _other("a database of SQLite", "extract its text: `sqlite3 FILE .dump`")),
    (rb"\x93NUMPY", _other("an array of numpy")),
    (rb"\x89HDF", _other("a file of HDF5")),
    (rb"\x7fELF|MZ\x90", _other("a program")),
    (rb"\x80[\x02-\x05][\x95c}\]]", _other("a pickle of Python")),
    (rb"\x89PNG\r\n\x1a\n", _picture("a picture in PNG")),
    (rb"\xff\xd8\xff", _picture("a picture in JPEG")),
    (rb"GIF8[79]a", _picture("a picture in GIF")),
    (rb"II[*+]\0|MM\0[*+]", _picture("a picture in TIFF")),
    (rb"RIFF.{4}WEBP", _picture("a picture in WebP")),
    (rb"\0\0\0\x0cjP  \r\n|\xff\x4f\xff\x51", _picture("a picture in JPEG 2000")),
    (
        rb"\0\0\0\x0cJXL \r\n|\xff\x0a" + _NO_LETTERS,
        _picture("a picture in JPEG XL", "convert it: `djxl FILE OUT.png`"),
    ),
    (rb"8BPS\0", _picture("a picture of Photoshop", "save it as PNG")),
    (rb"BM.{4}\0{4}", _picture("a picture in BMP")),
    (rb"\0\0..ftypavi", _picture("a picture in AVIF")),
    (rb"\0\0..ftyp(hei|hev|mif|msf)", HEIC),
    (rb"\0\0..ftyp", _sound("sound or film in MPEG-4 (M4A, MP4)")),
    (rb"(RIFF|RF64|BW64).{4}WAVE", WAV),
    (rb"RIFF.{4}AVI ", _sound("film in AVI")),
    (rb"RIFX", _sound("sound in RIFX")),
    (rb"riff\x2e\x91\xcf\x11", _sound("sound in Wave64")),
    (rb"fLaC[\0\x80]", FLAC),
    (rb"OggS\0", OGG),
    (rb"ID3[\x02-\x04]|\xff[\xe2\xe3\xf2\xf3\xfa\xfb][\x10-\xef]" + _NO_LETTERS, MP3),
    (rb"\xff[\xf0\xf1\xf8\xf9]" + _NO_LETTERS, _sound("sound in AAC")),
    (rb"FORM.{4}(AIF[FC]|8SVX)", AIFF),
    (rb"\.snd\0", _sound("sound in AU")),
    (rb"NIST_1A\r?\n", SPHERE),
    (rb"caff\0", _sound("sound in CAF")),
    (rb"#!AMR", _sound("sound in AMR")),
    (rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11", _sound("sound or film of Windows Media")),
    (rb"\x1a\x45\xdf\xa3", _sound("sound or film in Matroska (MKV, WebM)")),
    (rb"Creative Voice File\x1a", _sound("sound in VOC")),
)
_MARKS = (  # longer marks first: a mark of UTF-16 is the beginning of a mark of UTF-32
    (BOM_UTF32_LE, "UTF-32LE"),
    (BOM_UTF32_BE, "UTF-32BE"),
    (BOM_UTF8, "UTF-8"),
    (BOM_UTF16_LE, "UTF-16LE"),
    (BOM_UTF16_BE, "UTF-16BE"),
)


def kind_of(head: bytes) -> Optional[FileKind]:
    """Return the kind of a file by its first HEAD bytes; None if the file may be plain text.

    UTF-16 and UTF-32 are recognised by a byte-order mark or by their NUL bytes. UTF-8 and single-byte encodings are
    plain text, even if they begin with the letters of a byte-order mark.
    """
    for mark, encoding in _MARKS:
        if head.startswith(mark) and ("16" not in encoding or _share_of_text(head[2:], encoding) > 0.8):
            return None if encoding == "UTF-8" else _encoded(encoding, True)
    for pattern, kind in _SIGNATURES:
        if re.match(pattern, head, re.DOTALL):
            return kind
    return _with_zeros(head)


def kind_of_file(path: Path) -> Optional[FileKind]:
    """Return the kind of a file, see :func:`kind_of`; raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return kind_of(file.read(HEAD))


def check_plain(path: Path) -> None:
    """Raise a ValueError with kind and remedy unless a file may be plain text; OSError if it cannot be read."""
    kind = kind_of_file(path)
    if kind is not None:
        raise ValueError(kind.told(path))


def check_line(number: int, line: str) -> None:
    """Raise a ValueError with the kind unless a line of the input, with its number from 1, may be plain text."""
    kind = kind_of(line[:HEAD].encode("utf-8", "surrogateescape")) if number == 1 or "\0" in line else None
    if kind is not None:
        raise ValueError(f"line {number} of the input: it is {kind.name}; give lines of plain text in UTF-8")


def _encoded(encoding: str, marked: bool) -> FileKind:
    mark = "" if marked else " without a byte-order mark"
    wide = encoding[:-2] if marked else encoding  # iconv reads the byte order from the mark, and removes the mark
    return FileKind(f"text in {encoding[:-2]}{mark}", _to_utf8(wide), "text", encoding, marked)


def _to_utf8(encoding: str) -> str:
    return f"convert it: `iconv -f {encoding} -t UTF-8 FILE >OUT`"


def _with_zeros(head: bytes) -> Optional[FileKind]:
    """Return the kind of a file with NUL bytes, which plain text lacks, or of a 7-bit text without NUL bytes."""
    if b"\0" not in head:
        return _of_seven_bits(head)
    if not head.strip(b"\0"):
        return ZEROS
    share = [head[place::4].count(0) / max(1, len(head[place::4])) for place in range(4)]
    if len(head) >= 4:
        if min(share[2:]) > 0.9 and share[0] < 0.5:
            return _encoded("UTF-32LE", False)
        if min(share[:2]) > 0.9 and share[3] < 0.5:
            return _encoded("UTF-32BE", False)
    if _has_stray_zeros(head):
        return NO_TEXT
    blanks = {encoding: _blanks(head, encoding) for encoding in ("UTF-16LE", "UTF-16BE")}
    even, odd = share[0] + share[2], share[1] + share[3]  # sums of two shares
    order = "UTF-16LE" if (blanks["UTF-16LE"], odd) > (blanks["UTF-16BE"], even) else "UTF-16BE"
    wide = max(even, odd) > 2 * _OFTEN or not is_utf8(head)
    if wide and _share_of_text(head, order) > 0.95:
        return _encoded(order, False)
    return NO_TEXT


def _has_stray_zeros(head: bytes) -> bool:
    """Return whether a file is UTF-8 text with a few stray NUL bytes."""
    rest = head.replace(b"\0", b"")
    if len(rest) < 0.75 * len(head) or not is_utf8(rest):
        return False
    text = rest.decode("utf-8", "ignore")
    line = re.sub("[\t\n\r]", "", text)
    return line.isprintable() and len(line) > 0.75 * len(text)


def _of_seven_bits(head: bytes) -> Optional[FileKind]:
    """Return the kind of a text in an encoding that uses ASCII bytes only, such as UTF-7; else None."""
    if not head.isascii():
        return None
    escape = re.search(rb"\x1b\$([@AB(]|\)C|\)[AG])", head)
    encoding = ""
    if escape is not None:
        encoding = {b")C": "ISO-2022-KR", b")A": "ISO-2022-CN", b")G": "ISO-2022-CN"}.get(escape[1], "ISO-2022-JP")
    elif len(re.findall(rb"~\{(?:[!-w][!-~]){2,}~\}", head)) > 1:
        encoding = "HZ"
    elif _is_utf7(head):
        encoding = "UTF-7"
    return FileKind(f"text in {encoding}", _to_utf8(encoding), "text", encoding) if encoding else None


def _is_utf7(head: bytes) -> bool:
    """Return whether the words between + and - are letters in UTF-7; a single word must begin with a Latin-1 letter."""
    found = re.findall(rb"\+([A-Za-z0-9+/]{3,})-", head)
    try:
        letters = "".join(b"".join(b"+%b-" % coded for coded in found).decode("utf-7"))
    except UnicodeDecodeError:
        return False
    return letters.isalpha() and (len(found) > 1 or re.match(rb"A[A-P]", found[0]) is not None)


def _blanks(head: bytes, encoding: str) -> int:
    """Return the number of white-space characters in a 2-byte encoding, which reveals the byte order."""
    units = [head[place : place + 2] for place in range(0, len(head) - 1, 2)]
    return sum(units.count(blank.encode(encoding)) for blank in " \n\r\t")


def is_utf8(head: bytes) -> bool:
    """Return whether the first bytes of a file are text in UTF-8; their last character may be cut."""
    try:
        head[: max(1, len(head) - 3)].decode("utf-8")  # the last character may be cut
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 7
    return True


def _share_of_text(head: bytes, encoding: str) -> float:
    """Return the share of printable characters in decoded bytes; the last character may be cut."""
    text = head[: len(head) // 2 * 2].decode(encoding, "replace")
    good = sum((character.isprintable() and character != "\ufffd") or character.isspace() for character in text)
    return (good + text.endswith("\ufffd")) / max(1, len(text))
