"""Errors of fairseq and torch that are about the user's input, with the remedy in one line."""

import os
import pathlib
import pickle
import re
import textwrap
import traceback
import typing

from hydra.errors import HydraException
from omegaconf import MissingMandatoryValue
from omegaconf.errors import OmegaConfBaseException

from fairseq_mega.compat.checkpoints.card import OtherCard
from fairseq_mega.compat.checkpoints.loading import OtherLayout, RefusedContents, UnreadableFile
from fairseq_mega.compat.full_disk import WANT_OF_SPACE
from fairseq_mega.compat.out_of_memory import describe_want_of_memory, is_out_of_memory
from fairseq_mega.compat.patches.workers import KILLED, LOST_WORKER

MISSING = re.compile(r": (\w+)")  # of omegaconf
OF_HYDRA = (  # patterns of its errors, and our messages
    (
        r"Could not find '(\w+)/([\w-]+)'",
        "--{0} {1}: fairseq has no settings for it: leave it out",
    ),
    (r"override (\w+)\.(\w+)=null", "--{1} is missing: this --{0} requires it"),
    (r"override (\w+)\.(\w+)='?([^\s']+)'?", "--{1} {2} is not valid for this --{0}: give another value"),
)
RENAME = "rename the file or folder; where LC_ALL=C is set, PYTHONUTF8=1 reads the names in UTF-8"
NUMBER_OF_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")
CALLED_IN = "the folder that the command is called in"
OUTSIDE = "index out of range in self"  # raised by an embedding table
OTHER_TENSORS = "Error(s) in loading state_dict"  # raised by torch, with the name of every tensor
OF_FILES = (OSError, EOFError, UnreadableFile, RefusedContents)
ONE_LIMIT = re.compile(r"max_positions=\d")
NOT_UTF8 = (  # first bytes of a file -> its format and the remedy
    (b"\x1f\x8b", "it is packed with gzip: unpack it with gunzip"),
    (b"PK\x03\x04", "it is packed with zip: unpack it, or save the document as plain text"),
    (b"\xff\xfe\0\0", "it is UTF-32: convert it with iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"),
)


def is_users_error(error: BaseException) -> bool:
    """Return whether `error` is about the user's input, for which fairseq often raises a plain Exception."""
    if isinstance(error, (OSError, ValueError, EOFError, pickle.UnpicklingError)) or type(error) is Exception:
        return True
    text = str(error)
    if isinstance(error, FloatingPointError) or (isinstance(error, NotImplementedError) and text.startswith("--")):
        return True
    if isinstance(error, (OmegaConfBaseException, HydraException)) or (
        isinstance(error, ImportError) and "install" in text
    ):
        return True
    if type(error) is KeyError:
        return _is_unknown_name(error)
    if isinstance(error, IndexError):
        return OUTSIDE in text
    if isinstance(error, AssertionError):
        frames = traceback.extract_tb(error.__traceback__)
        folders = os.path.dirname(frames[-1].filename).split(os.sep) if frames else []
        return bool(text) and ("fairseq_cli" in folders or "fairseq" in folders)
    if is_of_a_worker(error) or is_out_of_memory(error):
        return True
    return isinstance(error, RuntimeError) and ("PytorchStreamReader" in text or text.startswith(OTHER_TENSORS))


def is_of_a_worker(error: BaseException) -> bool:
    """Return whether an error, for instance a ConnectionResetError, follows from a killed worker of a data loader."""
    by_torch = isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker")
    return by_torch or (bool(KILLED) and isinstance(error, OSError))


def _is_unknown_name(error: KeyError) -> bool:
    """Return whether fairseq's registry of criterions, optimizers and so on raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.endswith(os.path.join("fairseq", "registry.py"))


def _languages_beside(missing: typing.Any) -> typing.List[str]:
    """Return the languages of the dictionaries in the folder of a dictionary that does not exist."""
    path, pattern = pathlib.Path(str(missing)), "dict.?*.txt"
    found = path.parent.glob(pattern) if path.match(pattern) else ()
    return sorted(other.name[len("dict.") : -len(".txt")] for other in found)


def remedy(error: BaseException, text: str) -> str:
    """Return the remedy of a user's error, "" where the message contains the remedy."""
    if isinstance(error, (OtherCard, OtherLayout)):
        return ""  # the message contains it
    if isinstance(error, UnreadableFile):
        return "give another one with --restore-file (training) or --path"
    if isinstance(error, (EOFError, pickle.UnpicklingError)) or "PytorchStreamReader" in text:
        return (
            "a checkpoint cannot be read: the file (named in the last lines above) is truncated or is no "
            "checkpoint of fairseq. Give another one with --restore-file (training) or --path"
        )
    if isinstance(error, MissingMandatoryValue):
        return f"give --{MISSING.findall(text)[0].replace('_', '-')}"
    if isinstance(error, UnicodeDecodeError):
        begins = bytes(error.object[:4])
        known = (remedy for head, remedy in NOT_UTF8 if begins.startswith(head))
        return f"the text is not UTF-8: {next(known, 'convert it, for instance with iconv -f cp1252 -t utf-8')}"
    if isinstance(error, UnicodeEncodeError):
        return RENAME
    if isinstance(error, IndexError):
        return (
            "the data contain indices beyond the model's embedding table: binarise all splits with one dictionary "
            "(fairseq-preprocess --srcdict DATA/dict.txt)"
        )
    if isinstance(error, FloatingPointError):
        return "the training diverges: use a lower --lr, more --warmup-updates, or --clip-norm 1.0"
    if text == "Key 'default' is not in struct":  # --optimizer composite
        return (
            "--optimizer composite requires a configuration file: use fairseq-hydra-train, or choose another optimizer"
        )
    if text == "optimizer is required!":
        return "give --optimizer adam, with --lr and, as in the recipes, --adam-betas '(0.9, 0.98)'"
    if any(words in text for words in ("does not exist: ", "separates paths: ", "nothing to train", "or leave --")):
        return ""  # our message contains the remedy
    if "Model file not found" in text:
        return "give the checkpoint to --path; training leaves checkpoint_best.pt in its --save-dir"
    if "language pair" in text:
        return (
            "the folder is not one of fairseq-preprocess with a dictionary of each language; give the --task of data "
            "without languages, such as --task language_modeling (the default is translation)"
        )
    if isinstance(error, FileNotFoundError) and (languages := _languages_beside(error.filename)):
        return f"the folder has dictionaries of {', '.join(languages)}: give these to --source-lang and --target-lang"
    if "Dataset not found" in text or "dict." in text:
        return "the first argument must be a folder of fairseq-preprocess that holds this part of the data"
    if "--restore-file" in text:
        return "leave --restore-file out to continue from checkpoint_last.pt of --save-dir"
    if isinstance(error, OSError) and error.errno in WANT_OF_SPACE:
        return "" if "make room" in text else "make room where the command writes, and give it again"
    if isinstance(error, FileNotFoundError):
        return f"check the path; relative paths start from {CALLED_IN}"
    if "max_positions=" in text:
        one_side = ONE_LIMIT.search(text) is not None  # one limit: sequences that are not pairs
        options = "--tokens-per-sample" if one_side else "--max-source-positions / --max-target-positions"
        return (
            f"sequences longer than {options} of the training are not accepted: shorten or split them "
            "(fairseq-mega-generate and -validate skip them with --skip-invalid-size-inputs-valid-test)"
        )
    if "Optimizer does not match" in text:
        if "FP16Optimizer" not in text:
            return "give the --optimizer of the checkpoint, or --reset-optimizer"
        return (
            "only one of the two trainings has --fp16 or --bf16: give the option of the checkpoint's training, or "
            "--precision bf16, which continues from float32"
        )
    if "Cannot load model parameters" in text or text.startswith(OTHER_TENSORS):
        return "give the model options that the checkpoint was trained with, or another --save-dir"
    return ""


def _of_hydra(text: str) -> str:
    for pattern, words in OF_HYDRA:
        found = re.search(pattern, text)
        if found:
            return words.format(*(part.replace("_", "-") for part in found.groups()))
    return text


def check_names(words: typing.Iterable[str]) -> None:
    """Refuse arguments that are not UTF-8, before a library fails on them or writes half a file.

    Raises:
        ValueError: names the first one.
    """
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{_without_utf8(word, error.start)}: {RENAME}") from None


def _without_utf8(text: str, place: int) -> str:
    """Describe the name that contains a byte that is not UTF-8; in a longer text names may stand between quotes."""
    before, after = re.split(r"""["'\s\0]""", text[:place])[-1], re.split(r"""["'\s\0]""", text[place:])[0]
    return f"the name {before + after!a} is not UTF-8"


def describe(error: BaseException) -> str:
    """Put the error, its first cause and the remedy in one line."""
    if is_of_a_worker(error):
        return LOST_WORKER
    if is_out_of_memory(error):
        return describe_want_of_memory(error)
    text = str(error).replace(", skip this example with --skip-invalid-size-inputs-valid-test", "")
    parts = [NUMBER_OF_NUMPY.sub(r"\1", text)]
    if isinstance(error, (EOFError, pickle.UnpicklingError)):
        parts = [f"{type(error).__name__}: {error}"]
    elif type(error) is KeyError:
        parts = [
            f"{error} is not the name of a criterion, an optimizer, a schedule or the like: give one that --help lists"
        ]
    elif isinstance(error, UnicodeEncodeError):
        parts = [_without_utf8(error.object, error.start)]
    elif isinstance(error, HydraException):
        parts = [_of_hydra(parts[0])]
    elif isinstance(error, OmegaConfBaseException):
        parts = parts[0].splitlines()[:1]
    elif isinstance(error, FileNotFoundError) and error.filename is not None:
        parts = [f"{error.filename} does not exist"]
    cause = error.__cause__ or error.__context__
    if type(error) is Exception and cause is not None:
        parts.append(str(cause))
    parts = [textwrap.shorten(part, 400) if part.startswith(OTHER_TENSORS) else part for part in parts]
    advice = remedy(error, parts[0])
    parts.append(advice[:1].upper() + advice[1:])
    return " ".join(". ".join(part.strip().rstrip(".!") for part in parts if part.strip()).split())


def in_one_line(program: str, error: BaseException) -> typing.Optional[str]:
    """Return one line about a user's error; None for other errors, and with FAIRSEQ_MEGA_TRACEBACK=1."""
    if os.environ.get("FAIRSEQ_MEGA_TRACEBACK", "0") != "0" or not is_users_error(error):
        return None
    return f"{program}: error: {describe(error)} (traceback: FAIRSEQ_MEGA_TRACEBACK=1)"
