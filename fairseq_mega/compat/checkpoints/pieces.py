"""Check that the encoders of ``--bpe`` and ``--tokenizer`` are the ones that split the training text."""

import argparse
import json
import logging
import os
import re
import typing

from fairseq_mega.compat.patches.interactive import MARK
from fairseq_mega.compat.patches.translating import MANY, PIECES, joined_once, note_command, reads_lines
from fairseq_mega.compat.patching import wrap

from . import names
from .settings import settings_of

logger = logging.getLogger("fairseq_mega.compat.checkpoints.pieces")

STRANGE = 0.05  # fraction of a dictionary's symbols; some precede the pieces, for instance languages
_BRACKETED = re.compile(r"[<\[_].*[>\]_]|madeupword\d+")
_END_OF_WORD = "</w>"  # in the merges of subword-nmt and fastBPE
PARTS = {names.SUBWORDS: "pieces", names.TOKENIZER: "words"}  # that encoders split a text into
GIVE_OPTIONS = (
    "give {options}, which split the training text, unless all text is split into its {parts} already: other text is "
    "read as other tokens"
)
GIVE_PARTS = (  # where there are no such options
    "give the text split into its {parts} with {options}, as the training text was: other text is read as other tokens"
)


class Pieces(typing.NamedTuple):
    """Functions of a symbol: whether an encoder can make it, and whether the encoder has one of its characters."""

    can_make: typing.Callable[[str], bool]
    knows: typing.Callable[[str], bool]


def compare_encoders() -> None:
    """Refuse encoders other than the training's, whose pieces and words the model does not have."""
    from fairseq.data import encoders
    from fairseq.hub_utils import GeneratorHubInterface
    from fairseq.tasks import FairseqTask
    from fairseq.tasks.translation import TranslationTask
    from fairseq.trainer import Trainer

    wrap(encoders, "build_bpe", _build_named_bpe)
    wrap(encoders, "build_tokenizer", _build_named_tokenizer)
    wrap(FairseqTask, "build_bpe", _build_compared_bpe)
    wrap(FairseqTask, "build_tokenizer", _build_compared_tokenizer)
    wrap(TranslationTask, "build_model", _building_for_bleu)
    wrap(GeneratorHubInterface, "__init__", _comparing)
    wrap(Trainer, "load_checkpoint", _comparing_for_training)
    wrap(FairseqTask, "get_interactive_tokens_and_lengths", _reading_lines)
    wrap(GeneratorHubInterface, "binarize", _reading_a_sentence)


def _reading_lines(
    original: typing.Callable, self: typing.Any, lines: typing.Sequence[str], *args: typing.Any
) -> typing.Any:
    for line in lines:
        warn_of_whole_words(line, self)
    return original(self, lines, *args)


def _reading_a_sentence(original: typing.Callable, self: typing.Any, sentence: str) -> typing.Any:
    warn_of_whole_words(sentence, self.task)
    return original(self, sentence)


def _comparing_for_training(
    original: typing.Callable, self: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """Refuse, before a training, a ``--bpe`` of it that cannot have made its dictionary: later commands ask for it."""
    from fairseq.data import Dictionary, encoders

    cfg = getattr(self.cfg, "bpe", None)
    given = names.names_of_encoder(names.SUBWORDS, cfg).get(names.SUBWORDS)
    loads = getattr(cfg, "_name", None) == "gpt2"  # its files by default
    if cfg is not None and not loads and isinstance(getattr(self.task, "source_dictionary", None), Dictionary):
        encoder = encoders.build_bpe(cfg)
        if encoder is not None:
            _refuse_other_pieces(encoder, self.task, "--bpe" if given is None else given.where)
    return original(self, *args, **kwargs)


def _build_named_bpe(original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    return _build_named(original, names.SUBWORDS, cfg, args, kwargs)


def _build_named_tokenizer(
    original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    return _build_named(original, names.TOKENIZER, cfg, args, kwargs)


def _build_named(
    original: typing.Callable, kind: str, cfg: typing.Any, args: typing.Any, kwargs: typing.Any
) -> typing.Any:
    """Build an encoder with its names; raise ValueError with the option of a file that cannot be used."""
    given = names.settings_of_encoder(kind, cfg)
    for flag, file in given:
        is_file = isinstance(file, str) and flag not in names.NO_FILE
        if is_file and "://" not in file and file != "???" and not os.path.isfile(file):
            raise ValueError(f"{flag} {file} does not exist: give the file of the training")
    try:
        encoder = original(cfg, *args, **kwargs)
    except (RuntimeError, ValueError, LookupError, SystemExit) as error:
        if not given:
            raise
        where = " ".join(f"{flag} {value}" for flag, value in given)
        raise ValueError(f"{where}: the encoder cannot be built ({error}): give the options of the training") from error
    if encoder is not None:
        encoder.names, encoder.given = names.names_of_encoder(kind, cfg), cfg
    return encoder


def _build_compared_bpe(original: typing.Callable, self: typing.Any, args: typing.Any) -> typing.Any:
    bpe = original(self, args)
    used = encoder_of_data(self, reads_lines()) if bpe is None else bpe
    compare(names.SUBWORDS, bpe, self, reads_lines())
    return joined_once(used)


def _build_compared_tokenizer(original: typing.Callable, self: typing.Any, args: typing.Any) -> typing.Any:
    tokenizer = original(self, args)
    compare(names.TOKENIZER, tokenizer, self, reads_lines())
    return tokenizer


def _comparing(
    original: typing.Callable, self: typing.Any, cfg: typing.Any, task: typing.Any, models: typing.Any
) -> None:
    note_command({})  # in place of a command that this process ran before
    _set_languages(getattr(cfg, "tokenizer", None), task)
    original(self, cfg, task, models)
    compare(names.TOKENIZER, self.tokenizer, task, True)
    bpe = self.bpe
    if bpe is None:
        self.bpe = encoder_of_data(task, True)
    compare(names.SUBWORDS, bpe, task, True)


def _set_languages(tokenizer: typing.Any, task: typing.Any) -> None:
    """Set the languages of ``--tokenizer moses`` to those of a task, in place of English, the default."""
    if getattr(tokenizer, "_name", None) != "moses":
        return
    for side, language in _languages_of(task).items():
        setattr(tokenizer, side, language)


def _building_for_bleu(
    original: typing.Callable, self: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """Detokenise for ``--eval-bleu-detok moses`` by the rules of the task's languages, in place of English."""
    if self.cfg.eval_bleu and self.cfg.eval_bleu_detok == "moses":
        given = json.loads(self.cfg.eval_bleu_detok_args or "{}")
        self.cfg.eval_bleu_detok_args = json.dumps({**_languages_of(self), **given})
    return original(self, *args, **kwargs)


def _languages_of(task: typing.Any) -> typing.Dict[str, str]:
    found = {side: getattr(settings_of(task), side, None) for side in ("source_lang", "target_lang")}
    return {side: language for side, language in found.items() if isinstance(language, str)}


class TextOrPieces:
    """An encoder of sentencepiece that also accepts text split into pieces already: pieces in, pieces out.

    Results are decoded after all texts of a buffer or a list were encoded, so that they are pieces where each of the
    texts was. Texts and pieces together have text as their results.

    Args:
        encoder: of ``--bpe sentencepiece``.
    """

    def __init__(self, encoder: typing.Any) -> None:
        self.encoder = encoder
        self.given_pieces = False  # whether each text since the latest results was of pieces
        self.begun = False  # whether there was such a text
        self.unchanged = False  # whether the latest text was of pieces

    def encode(self, text: str) -> str:
        """Return the pieces of a text; text with the mark of sentencepiece (U+2581) is returned unchanged."""
        self.unchanged = is_pieces = PIECES["sentencepiece"](text) is not None
        if text.strip():  # an empty line is either
            self.given_pieces = is_pieces and (self.given_pieces or not self.begun)
            self.begun = True
        return text if is_pieces else self.encoder.encode(text)

    def decode(self, text: str) -> str:
        """Return the text of pieces, or the pieces themselves if all texts were split already."""
        self.begun = False
        return text if self.given_pieces else self.encoder.decode(text)


def encoder_of_data(task: typing.Any, reads_text: bool) -> typing.Any:
    """Return the encoder of a task's data where no option names one; None for words.

    The encoder is the task's ``unit()``, which language models have, or else the sentencepiece model of the data
    folder, if it can have made the dictionary.

    Args:
        task: its checkpoint is loaded, and its model of pieces was compared with the folder's.
        reads_text: whether text that is not split into pieces is read; otherwise a sentencepiece model is not used.
    """
    from fairseq.data import Dictionary, encoders

    unit = getattr(task, "unit", None)
    if callable(unit):
        return unit()
    model, dictionary = names.pieces_of_data(task), getattr(task, "source_dictionary", None)
    if not reads_text or not os.path.isfile(model) or not isinstance(dictionary, Dictionary):
        return None
    encoder = encoders.build_bpe(argparse.Namespace(bpe="sentencepiece", sentencepiece_model=model))
    made = pieces_of(encoder)
    assert made is not None
    if strange_symbol(made, dictionary) is not None:
        return None
    logger.info(f"text is split into pieces by {model}, like the training text; lines of pieces are read unchanged")
    return TextOrPieces(encoder)


def warn_of_unsplit_text(kind: str, task: typing.Any, remedy: str = GIVE_OPTIONS) -> None:
    """Warn where the checkpoint records what split its training text, and neither data nor options name it now.

    Args:
        kind: SUBWORDS or TOKENIZER, whose options are not given.
        task: with its checkpoint loaded.
        remedy: contains ``{options}``, those of the training, and ``{parts}``, their results.
    """
    known = getattr(task, "trained_names", {}).get(kind)
    if known is None or kind in names.names_of(task):
        return
    absent = ""
    if names.is_sentencepiece(known) and not hasattr(task, "unit"):  # which alone splits text, whatever the folder has
        absent = f"{names.pieces_of_data(task)} does not exist: copy it from the data of the training, or "
    _warn_once(task, absent + remedy.format(options=names.options_of(known), parts=PARTS[kind]), kind)


def warn_of_whole_words(text: str, task: typing.Any) -> None:
    """Warn of text that no encoder splits, and that is not split, where the dictionary alone shows the pieces.

    Args:
        text: a text without a mark of sentencepiece is not split, unless the model of its pieces adds none.
        task: its encoders were compared, or there are none.
    """
    if MARK in text or not text.strip() or used_encoders(task).get(names.SUBWORDS):
        return
    known = vars(task)
    if "split_by" not in known:
        known["split_by"] = _split_by(task.source_dictionary)
    if known["split_by"]:
        _warn_once(
            task,
            f"symbols of the dictionary have {MARK} (U+2581), the mark of blanks in pieces; {text[:40]!r} lacks it: "
            f"split text as the training text was, by {known['split_by']} or another --bpe, unless it is split already",
            MARK,
        )


def _split_by(dictionary: typing.Any) -> str:
    """Return options that make pieces such as those of a dictionary; none for words."""
    symbols = [dictionary[number] for number in range(dictionary.nspecial, len(dictionary))]
    if sum(symbol.startswith(MARK) and symbol != MARK for symbol in symbols) > MANY * len(symbols):
        return "--bpe sentencepiece --sentencepiece-model FILE"
    return (
        "--bpe characters" if MARK in symbols and sum(len(symbol) == 1 for symbol in symbols) > len(symbols) / 2 else ""
    )


def _warn_once(task: typing.Any, message: str, key: typing.Optional[str] = None) -> None:
    """Warn of a task's encoders once, however many of its interfaces compare them.

    Args:
        task: any; the warning is noted there.
        message: the warning.
        key: by which a warning counts as given already; None: the message.
    """
    given = vars(task).setdefault("warned_of_encoders", set())
    if (key or message) not in given:
        given.add(key or message)
        logger.warning(message)


def compare(kind: str, encoder: typing.Any, task: typing.Any, reads_text: bool) -> None:
    """Compare an encoder with the one that the checkpoint or the data folder records, else with the dictionary.

    Args:
        kind: SUBWORDS or TOKENIZER.
        encoder: any; None if the text is split already.
        task: with its checkpoint loaded.
        reads_text: whether text is read; otherwise encoders decode alone, and none need be given.

    Raises:
        OtherNames: where the encoder is another one.
    """
    own = names.names_of(task).get(kind)
    given = getattr(encoder, "names", {}).get(kind)
    used, nameless = (own, "") if encoder is None else (given, f"--{names.OPTIONS[kind]}")
    used_encoders(task)[kind] = nameless if used is None else used.text
    if encoder is None:
        if reads_text:
            warn_of_unsplit_text(kind, task)
        return
    theirs = getattr(task, "trained_names", {}).get(kind)
    known = own.text if theirs is None and own is not None else theirs
    where = nameless if given is None else given.where
    if known is None:
        if kind == names.TOKENIZER:
            _warn_of_unrecorded_tokenizer(where, task)
            _warn_of_other_words(encoder, task)
        else:
            _look_at_dictionary(encoder, task, given)
    elif given is None or given.text != known:
        raise names.OtherNames(names.other_encoder(where, known, own))


def used_encoders(task: typing.Any) -> typing.Dict[str, str]:
    """Return the names of the encoders that split the text of a task, by kind: "" for none."""
    return vars(task).setdefault("used_encoders", {})


def warn_of_another_split(task: typing.Any, before: typing.Optional[typing.Mapping[str, str]]) -> None:
    """Warn if other encoders split a text than the one before it.

    Args:
        task: its encoders were compared.
        before: :func:`used_encoders` of the text before; None where they are not known.
    """
    now = used_encoders(task)
    if before is None or dict(before) == now:
        return
    first, then = (
        " ".join(names.options_of(used[kind]) for kind in names.OPTIONS if used.get(kind)) or "no options"
        for used in (before, now)
    )
    _warn_once(
        task,
        f"the text of the context was split with {first}, and the text after it with "
        f"{then}: give the same options and files, unless one text is split already",
    )


def _warn_of_unrecorded_tokenizer(where: str, task: typing.Any) -> None:
    """Warn of a tokenizer where the checkpoint records what split its training text, and no tokenizer."""
    pieces = getattr(task, "trained_names", {}).get(names.SUBWORDS)
    if pieces is not None:
        _warn_once(
            task,
            f"{where}: the checkpoint records {names.options_of(pieces)} of its training, and no --tokenizer: leave "
            "it out unless the training text was split with it",
        )


def _look_at_dictionary(bpe: typing.Any, task: typing.Any, given: typing.Optional[names.Names]) -> None:
    """Refuse an encoder that cannot have made a task's dictionary; warn of one that cannot be verified."""
    _refuse_other_pieces(bpe, task, "--bpe" if given is None else given.where)
    if given is not None:
        _warn_once(
            task, f"the checkpoint does not name what split its training text into pieces: {given.where} is used"
        )


def _refuse_other_pieces(bpe: typing.Any, task: typing.Any, where: str) -> None:
    made = pieces_of(bpe)
    symbol = None if made is None else strange_symbol(made, task.source_dictionary)
    if symbol is not None:
        raise names.OtherNames(
            f"{where} did not split the training text: it has no {symbol!r}, which the dictionary has; give the "
            "training's"
        )


def pieces_of(bpe: typing.Any) -> typing.Optional[Pieces]:
    """Return the pieces that an encoder of fairseq can make; None where they are not known."""
    from fairseq.data.encoders import byte_utils, bytes, characters, fastbpe, gpt2_bpe, hf_byte_bpe, subword_nmt_bpe

    processor = getattr(bpe, "sp", None)
    if processor is not None:
        pieces = {processor.id_to_piece(number) for number in range(processor.get_piece_size())}
        known = {piece for piece in pieces if len(piece) == 1}
        return Pieces(pieces.__contains__, lambda symbol: bool(known.intersection(symbol)))
    if isinstance(bpe, (subword_nmt_bpe.SubwordNMTBPE, fastbpe.fastBPE)):
        merged, mark = _merged(bpe.given.bpe_codes), bpe.bpe_symbol.strip()
        return Pieces(lambda symbol: len(symbol.removesuffix(mark)) < 2 or symbol.removesuffix(mark) in merged, bool)
    if isinstance(bpe, (gpt2_bpe.GPT2BPE, hf_byte_bpe.HuggingFaceByteLevelBPE)):
        return Pieces(str.isdigit, bool)
    if isinstance(bpe, bytes.Bytes):
        letters = {*byte_utils.BCHAR_TO_BYTE, byte_utils.SPACE_ESCAPE}
        return Pieces(letters.__contains__, bool)
    return Pieces(lambda symbol: len(symbol) == 1, bool) if isinstance(bpe, characters.Characters) else None


def _merged(file: str) -> typing.Set[str]:
    """Return all pieces that the merges of a file make."""
    with open(file, encoding="utf-8", newline="\n") as lines:
        pairs = [line.split(" ") for line in lines]
    return {"".join(pair[:2]).rstrip("\r\n").removesuffix(_END_OF_WORD) for pair in pairs if len(pair) > 1}


def strange_symbol(made: Pieces, dictionary: typing.Any) -> typing.Optional[str]:
    """Return a symbol that an encoder cannot make; None where there are few, or none.

    Args:
        made: by the encoder, which makes one symbol of all unknown characters between two of its pieces.
        dictionary: of fairseq.
    """
    numbers = range(dictionary.nspecial, len(dictionary))
    counts = {dictionary[number]: dictionary.count[number] for number in numbers}
    counts = {symbol: count for symbol, count in counts.items() if not _BRACKETED.fullmatch(symbol)}
    others = [symbol for symbol in counts if not made.can_make(symbol)]
    strange = [symbol for symbol in others if made.knows(symbol)]
    if 2 * sum(map(counts.__getitem__, others)) > sum(counts.values()):
        return others[0]
    return strange[0] if len(strange) > STRANGE * len(counts) else None


def _warn_of_other_words(tokenizer: typing.Any, task: typing.Any) -> None:
    """Warn if the words of a dictionary differ from what ``--tokenizer moses`` writes with the options given.

    Args:
        tokenizer: any.
        task: has the dictionary.
    """
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer

    if not isinstance(tokenizer, MosesTokenizer):
        return
    dictionary = task.source_dictionary
    symbols = [dictionary[number] for number in range(dictionary.nspecial, len(dictionary))]
    found = {
        "moses_no_escape": (("&apos;", "&quot;"), re.compile("['\"]")),
        "moses_no_dash_splits": (("@-@",), re.compile(r"\w-\w|-@@$")),
    }
    for field, (written, plain) in found.items():
        option, is_given = f"--{field.replace('_', '-')}", getattr(tokenizer.cfg, field)
        has_written = any(mark in symbol for mark in written for symbol in symbols)
        has_plain = next(filter(plain.search, symbols), None)
        if has_written and is_given:
            _warn_once(
                task,
                f"{option}: the dictionary has words with {written[0]}, so its text was made without "
                f"{option}: leave it out",
            )
        elif has_plain is not None and not has_written and not is_given:
            _warn_once(
                task,
                f"--tokenizer moses writes {written[0]}, which no word of the dictionary has, unlike {has_plain}: "
                f"give {option} if the training text was split with it",
            )
