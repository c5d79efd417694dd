"""Check that the encoders of ``--bpe`` and ``--tokenizer`` are the ones that split the training text."""

import argparse
import logging
import os
import typing

from fairseq_mega.compat.patches.translating import PIECES, joined_once, note_command, reads_lines
from fairseq_mega.compat.patching import wrap

from . import names

logger = logging.getLogger("fairseq_mega.compat.checkpoints.pieces")

PARTS = {names.SUBWORDS: "pieces", names.TOKENIZER: "words"}  # that encoders split a text into
GIVE_OPTIONS = (
    "give {options}, which split the training text, unless all text is split into its {parts} already: other text is "
    "read as other tokens"
)
GIVE_PARTS = (  # where there are no such options
    "give the text split into its {parts} with {options}, as the training text was: other text is read as other tokens"
)


def compare_encoders() -> None:
    """Refuse encoders other than the training's, whose pieces and words the model does not have."""
    from fairseq.data import encoders
    from fairseq.hub_utils import GeneratorHubInterface
    from fairseq.tasks import FairseqTask

    wrap(encoders, "build_bpe", _build_named_bpe)
    wrap(encoders, "build_tokenizer", _build_named_tokenizer)
    wrap(FairseqTask, "build_bpe", _build_compared_bpe)
    wrap(FairseqTask, "build_tokenizer", _build_compared_tokenizer)
    wrap(GeneratorHubInterface, "__init__", _comparing)


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
    original(self, cfg, task, models)
    compare(names.TOKENIZER, self.tokenizer, task, True)
    bpe = self.bpe
    if bpe is None:
        self.bpe = encoder_of_data(task, True)
    compare(names.SUBWORDS, bpe, task, True)


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
    folder.

    Args:
        task: its checkpoint is loaded, and its model of pieces was compared with the folder's.
        reads_text: whether text that is not split into pieces is read; otherwise a sentencepiece model is not used.
    """
    from fairseq.data import encoders

    unit = getattr(task, "unit", None)
    if callable(unit):
        return unit()
    model = names.pieces_of_data(task)
    if not reads_text or not os.path.isfile(model):
        return None
    encoder = encoders.build_bpe(argparse.Namespace(bpe="sentencepiece", sentencepiece_model=model))
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
    """Compare an encoder with the one that the checkpoint or the data folder records.

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
        elif given is not None:
            _warn_once(task, f"the checkpoint does not name what split its training text into pieces: {where} is used")
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
