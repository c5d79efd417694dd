"""Names of a model's numbers: symbols of dictionaries, classes, languages, text encoders, and the scale of inputs.

A checkpoint holds the names that its training data gave to the numbers, in its entry ``names``: text by kind, one name
a line. A model is not loaded for data with other names for the same numbers: its tensors would fit, but its answers
would be wrong. Checkpoints without names are loaded as they are.
"""

import contextvars
import hashlib
import logging
import os
import re
import typing

from fairseq_mega.compat.patching import wrap

from .settings import other_settings, settings_of

logger = logging.getLogger("fairseq_mega.compat.checkpoints.names")
KEY = "names"  # in a checkpoint
SOURCE, TARGET, LABELS, LANGUAGES, SUBWORDS = "source", "target", "labels", "languages", "subwords"
TOKENIZER = "tokenizer"
LENGTH = "length"
SAMPLES, SCALE, PIXELS, NORMALIZATION, FRAMING = "samples", "scale", "pixels", "normalization", "framing"
INPUTS = frozenset(  # which a new training may have otherwise
    (LENGTH, SAMPLES, SCALE, PIXELS, NORMALIZATION, FRAMING)
)
FOLLOWED = frozenset((FRAMING,))  # a model's names, which replace the data's own where data are read for it
NOUNS = {
    SOURCE: "dictionary",
    TARGET: "target dictionary",
    LABELS: "list of labels",
    LANGUAGES: "pair of languages",
    SUBWORDS: "model of pieces",
    TOKENIZER: "tokenizer",
    LENGTH: "length of texts",
    SAMPLES: "number of samples",
    SCALE: "scale of samples",
    PIXELS: "number of pixels",
    NORMALIZATION: "normalization of pixels",
    FRAMING: "part of a picture that is seen",
}
ENCODERS = {  # of fairseq, with their options
    SUBWORDS: {
        "sentencepiece": "sentencepiece_model",
        "subword_nmt": "bpe_codes bpe_separator",
        "fastbpe": "bpe_codes",
        "gpt2": "gpt2_encoder_json gpt2_vocab_bpe",
        "hf_byte_bpe": "bpe_merges bpe_vocab bpe_add_prefix_space",
        "bert": "bpe_vocab_file bpe_cased",
        "byte_bpe": "sentencepiece_model_path",
        "bytes": "",
        "characters": "",
    },
    TOKENIZER: {"moses": "moses_no_escape moses_no_dash_splits", "nltk": "", "space": ""},
}
USUAL = {"bpe_separator": "@@"}  # default values, which may be left out
NO_FILE = ("--bpe-separator",)  # options whose value is a text, not a file
OPTIONS = {SUBWORDS: "bpe", TOKENIZER: "tokenizer"}  # that name encoders
SUBWORDS_FILE = "subwords.model"  # in a data folder, the sentencepiece model that cut its text
HANDED = "names of the checkpoint"  # in the state that a task loads: file and names of the checkpoint
FINGERPRINT = "\0fingerprint "  # in older checkpoints, in place of the names
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_FINGERPRINTS = re.compile(r"(?:^|\.)dictionary_fingerprints?$")


class OtherNames(ValueError):
    """A checkpoint whose names differ from the data's; the message contains the file and the remedy."""


class Names(typing.NamedTuple):
    """Names of one kind, one a line in ``text``; ``where`` and ``remedy`` are for messages."""

    text: str
    where: str
    remedy: str


DOES_NOT_FIT = "Cannot load model parameters"  # fairseq's words
_training: "contextvars.ContextVar[typing.Optional[_Training]]" = contextvars.ContextVar("training", default=None)


class _Training(typing.NamedTuple):
    """A training that a checkpoint is loaded for; it may begin anew from the weights alone."""

    trainer: typing.Any
    anew: bool


def keep_names() -> None:
    """Write the names into checkpoints, and compare them wherever fairseq loads a model."""
    from fairseq import checkpoint_utils
    from fairseq.tasks import FairseqTask
    from fairseq.trainer import Trainer

    wrap(Trainer, "state_dict", _with_names)
    wrap(Trainer, "load_checkpoint", _load_for_training)
    wrap(Trainer, "_build_ema", _build_average)
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", _handing_names_on)
    wrap(checkpoint_utils, "load_ema_from_checkpoint", _load_average)
    wrap(FairseqTask, "load_state_dict", _checking_names)


def names_of(task: typing.Any) -> typing.Dict[str, Names]:
    """Return the names of a task's numbers by kind, from its ``names_of_numbers()`` or else from its dictionaries."""
    own = getattr(task, "names_of_numbers", None)
    return own() if callable(own) else names_of_dictionaries(task)


def names_of_dictionaries(task: typing.Any) -> typing.Dict[str, Names]:
    """Return the symbols of all dictionaries of a task of fairseq, and its pair of languages.

    Raises:
        OtherNames: if its data folders have different dictionaries or models of pieces; those of the first alone are
            read.
    """
    from fairseq.data import Dictionary

    cfg = settings_of(task)
    folder, *further = _folders_of(cfg)
    pair = [getattr(cfg, f"{side}_lang", None) for side in (SOURCE, TARGET)]
    found: typing.Dict[str, Names] = {}
    if isinstance(pair[0], str) and isinstance(pair[1], str):
        found[LANGUAGES] = _languages(pair[0], pair[1])
    several = getattr(task, "dicts", None)  # of tasks for many languages, one for each
    if isinstance(several, dict):
        kinds = [(language, dictionary, language, "srcdict") for language, dictionary in several.items()]
    else:
        source, target = (getattr(task, f"{side}_dictionary", None) for side in (SOURCE, TARGET))
        kinds = [(SOURCE, source, pair[0], "srcdict")]
        kinds += [(TARGET, target, pair[1], "tgtdict")] if target is not source else []
        kinds += [(LABELS, getattr(task, "label_dictionary", None), None, "srcdict")]
    for kind, dictionary, language, option in kinds:
        if isinstance(dictionary, Dictionary):
            paths = [os.path.join(folder, file) for file in (f"dict.{language}.txt", "dict.txt")]
            path = next(filter(os.path.isfile, paths), folder)
            found[kind] = names_of_dictionary(dictionary, path, option)
            for other in further:
                unlike = difference_of_files(path, os.path.join(other, os.path.basename(path)))
                if unlike:
                    raise OtherNames(
                        f"data folders have different dictionaries ({unlike}), and fairseq reads the first alone: "
                        f"binarise all with one (fairseq-preprocess --srcdict {path})"
                    )
    return {**found, **names_of_subwords(*(os.path.join(place, SUBWORDS_FILE) for place in (folder, *further)))}


def names_of_dictionary(dictionary: typing.Any, where: str, option: str = "srcdict") -> Names:
    """Return the symbols of a dictionary; ``option`` is its option of fairseq-preprocess."""
    remedy = f"give the data folder it was trained on, or binarise with its dictionary (fairseq-preprocess --{option})"
    return Names("\n".join(dictionary.symbols), where, remedy)


def names_of_subwords(
    model: typing.Union[str, "os.PathLike[str]"], *others: typing.Union[str, "os.PathLike[str]"]
) -> typing.Dict[str, Names]:
    """Return the digest of a sentencepiece model as names; nothing if the file does not exist.

    Args:
        model: its file, beside the data that are read first.
        others: files beside further data, which may not exist.

    Raises:
        OtherNames: if another file is another model: the first alone is read.
    """
    if not os.path.isfile(model):
        return {}
    digest = _digest(model)
    for other in others:
        if os.path.isfile(other) and _digest(other) != digest:
            raise OtherNames(
                f"{other} is another model of pieces than {model}, and the first alone is read: split all text with "
                "one model, and binarise it again"
            )
    return {SUBWORDS: Names(digest, str(model), _OF_THE_TRAINING)}


_OF_THE_TRAINING = "give the model of pieces of the training: another one splits the same text differently"


def _digest(file: typing.Union[str, "os.PathLike[str]"]) -> str:
    with open(file, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def settings_of_encoder(kind: str, cfg: typing.Any) -> typing.List[typing.Tuple[str, typing.Any]]:
    """Return the options of an encoder of fairseq with their values; see :func:`names_of_encoder`."""
    from omegaconf.errors import MissingMandatoryValue

    found = []
    for field in ENCODERS[kind].get(_name_of_encoder(kind, cfg), "").split():
        try:
            value = getattr(cfg, field, None)
        except MissingMandatoryValue:
            value = "???"
        if value and value != USUAL.get(field):
            found.append((f"--{field.replace('_', '-')}", value))
    return found


def _name_of_encoder(kind: str, cfg: typing.Any) -> str:
    return cfg if isinstance(cfg, str) else getattr(cfg, "_name", None) or getattr(cfg, OPTIONS[kind], None) or ""


def names_of_encoder(kind: str, cfg: typing.Any) -> typing.Dict[str, Names]:
    """Return the options of --bpe or --tokenizer as names, files by their digests; nothing where they are unknown.

    Args:
        kind: SUBWORDS or TOKENIZER.
        cfg: name or options of the encoder; options without one, or None, where no encoder is given.
    """
    name = _name_of_encoder(kind, cfg)
    if name not in ENCODERS[kind]:
        return {}
    text, where = [f"--{OPTIONS[kind]} {name}"], [f"--{OPTIONS[kind]} {name}"]
    for flag, value in settings_of_encoder(kind, cfg):
        where.append(flag if value is True else f"{flag} {value}")
        if value is True or flag in NO_FILE:
            text.append(where[-1])
        elif os.path.isfile(value):
            text.append(f"{flag} {_digest(value)}")
        else:
            return {}
    lasting_text = text[-1].split()[-1] if name == "sentencepiece" else " ".join(text)  # the form in a data folder
    return {kind: Names(lasting_text, " ".join(where), _OF_THE_TRAINING)}


def is_sentencepiece(text: str) -> bool:
    """Return whether names describe a sentencepiece model, which a data folder can have."""
    return _DIGEST.fullmatch(text) is not None


def options_of(text: str, file: str = "FILE") -> str:
    """Return the options of the encoder that names describe, with ``file`` in place of each digest."""
    if is_sentencepiece(text):
        return f"--bpe sentencepiece --sentencepiece-model {file}"
    return _DIGEST.sub(file, text)


def names_of_training(trainer: typing.Any) -> typing.Dict[str, Names]:
    """Return the names of the numbers of a training's data, and of its ``--bpe`` and ``--tokenizer``.

    Raises:
        OtherNames: if another model of pieces split the data.
    """
    own, given = names_of(trainer.task), {}
    for kind, option in OPTIONS.items():
        given.update(names_of_encoder(kind, getattr(trainer.cfg, option, None)))
    if SUBWORDS in own and SUBWORDS in given and own[SUBWORDS].text != given[SUBWORDS].text:
        raise OtherNames(other_encoder(given[SUBWORDS].where, own[SUBWORDS].text, own[SUBWORDS]))
    return {**given, **own}


def other_encoder(where: str, known: str, own: typing.Optional[Names]) -> str:
    """Return the message about an encoder that differs from the one of the training.

    Args:
        where: options of the encoder.
        known: the training's, as names.
        own: of the data folder, if it has a model of pieces.
    """
    file = own.where if own is not None and own.text == known else None
    wanted = options_of(known, file or "FILE")
    if file is not None and _begins(where.rpartition(" --sentencepiece-model ")[2], file):
        return (
            f"{where} lacks the record of how the training text was cleaned, which its copy {file} has: give {wanted}, "
            "or leave --bpe out"
        )
    if is_sentencepiece(known) and file is None:
        return (
            f"{where} is not the file that split the training text: give {wanted}, as for the training "
            f"({SUBWORDS_FILE} of its data if it has this file)"
        )
    return f"{where} did not split the training text: give {wanted}, as for the training"


def _begins(file: str, whole: str) -> bool:
    """Return whether the content of a file begins another one: a record of the cleaning is added at the end."""
    if not (os.path.isfile(file) and os.path.isfile(whole)):
        return False
    with open(file, "rb") as one, open(whole, "rb") as other:
        return other.read().startswith(one.read())


def _languages(source: str, target: str) -> Names:
    remedy = "give --source-lang {} --target-lang {} and data of this pair, or a checkpoint of the other one"
    return Names(f"{source}\n{target}", f"{source}-{target}", remedy)


def pieces_of_data(task: typing.Any) -> str:
    """Return the path of the sentencepiece model in the folder of a task's text, where there may be none."""
    folder = getattr(task, "text_folder", None) or _folders_of(settings_of(task))[0]
    return os.path.join(folder, SUBWORDS_FILE)


def _folders_of(cfg: typing.Any) -> typing.List[str]:
    from fairseq import utils

    data = getattr(cfg, "data", None)
    return utils.split_paths(data) if isinstance(data, str) else [""]


def difference_of_files(first: str, other: str) -> typing.Optional[str]:
    """Describe the difference of two dictionary files; None if they are equal, or if one does not exist."""
    from fairseq.data import Dictionary

    if not (os.path.isfile(first) and os.path.isfile(other)):
        return None
    one, two = ("\n".join(Dictionary.load(path).symbols) for path in (first, other))
    return difference(one, two, (first, other))


def trained_names(checkpoint: typing.Dict[str, typing.Any], where: typing.Any) -> typing.Dict[str, str]:
    """Return the names in a checkpoint, text by kind; of an older checkpoint the fingerprints of its dictionaries.

    Raises:
        ValueError: if the entry does not contain names.
    """
    found = checkpoint.get(KEY)
    if found is None:
        return _from_fingerprints(checkpoint.get("model"))
    if not isinstance(found, dict) or not all(isinstance(text, str) for item in found.items() for text in item):
        raise ValueError(f"{where}: its entry {KEY!r} contains no names of symbols; use another checkpoint")
    return dict(found)


def _from_fingerprints(model: typing.Any) -> typing.Dict[str, str]:
    for name, tensor in model.items() if isinstance(model, dict) else ():
        if isinstance(name, str) and is_fingerprint(name):
            return {kind: f"{FINGERPRINT}{number}" for kind, number in zip((SOURCE, LABELS), tensor.tolist())}
    return {}


def is_fingerprint(name: str) -> bool:
    """Return whether a tensor is a fingerprint of dictionaries, as in checkpoints older than names."""
    return _FINGERPRINTS.search(name) is not None


def fingerprint(text: str) -> str:
    """Return the fingerprint of a dictionary in checkpoints older than names."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return f"{FINGERPRINT}{int.from_bytes(digest[:7], 'big')}"


def noun(kind: str) -> str:
    """Return the noun for names of a kind in messages."""
    return NOUNS.get(kind, f"dictionary of {kind}")


def lasting(names: typing.Dict[str, str]) -> typing.Dict[str, str]:
    """Return the names to be saved: without fingerprints of an older checkpoint."""
    return {kind: text for kind, text in names.items() if not text.startswith(FINGERPRINT)}


def difference(
    theirs: str, ours: str, places: typing.Tuple[str, str] = ("the checkpoint", "the data")
) -> typing.Optional[str]:
    """Describe the difference of two texts of names; None if they are equal.

    Args:
        theirs, ours: the texts.
        places: where each of them is.
    """
    hidden = FINGERPRINT in (theirs[: len(FINGERPRINT)], ours[: len(FINGERPRINT)])
    if hidden:
        numbers = {text if text.startswith(FINGERPRINT) else fingerprint(text) for text in (theirs, ours)}
        return None if len(numbers) == 1 else "other symbols, or the same symbols in another order"
    if theirs == ours:
        return None
    one, other = theirs.split("\n"), ours.split("\n")
    pairs = zip(one, other)
    number = next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    sizes = f", of {len(one)} and {len(other)}" if len(one) != len(other) else ""
    first, second = (repr(names[number]) if number < len(names) else "nothing" for names in (one, other))
    which = "" if len(one) == len(other) == 1 else f"number {number} is "
    return f"{which}{first} in {places[0]} and {second} in {places[1]}{sizes}"


def check(
    file: typing.Any,
    theirs: typing.Dict[str, str],
    task: typing.Any,
    own: typing.Optional[typing.Dict[str, Names]] = None,
    anew: bool = False,
) -> None:
    """Refuse a checkpoint whose numbers have other names than those of a task.

    A warning is logged where only one of the two has names of classes.

    Args:
        file: the checkpoint's.
        theirs: its names, see :func:`trained_names`.
        task: set up for its data.
        own: names of the task, see :func:`names_of`; None, where the model is only used: they are read from the task.
        anew: a training begins with the weights alone; its languages (with the same symbols) and its inputs may differ.

    Raises:
        OtherNames: names the first difference from the task, or from a model that the task loaded before.
    """
    if own is None:
        own = {kind: names for kind, names in names_of(task).items() if kind not in FOLLOWED} if theirs else {}
    if not anew:
        _warn_of_unnamed_classes(file, theirs, own, task)
    else:
        theirs = {kind: text for kind, text in theirs.items() if kind not in INPUTS}
    compared = theirs.keys()
    for kind, ours in own.items():
        found = difference(theirs[kind], ours.text) if kind in compared else None
        if found is None or (anew and kind == LANGUAGES):
            continue
        if kind == LANGUAGES:
            pair = theirs[kind].split("\n")
            raise OtherNames(f"{file} translates {'-'.join(pair)}, not {ours.where}: {ours.remedy.format(*pair)}")
        raise OtherNames(f"{file} was trained with another {noun(kind)} than {ours.where} ({found}): {ours.remedy}")
    before = getattr(task, "trained_names", {})  # of the models before it in an ensemble
    for kind in before.keys() & compared - own.keys():
        found = difference(before[kind], theirs[kind], ("the models before it", "this one"))
        if found is not None:
            raise OtherNames(f"{file} was trained with another {noun(kind)} than the models before it ({found})")
    task.trained_names = {**before, **theirs}


def _warn_of_unnamed_classes(
    file: typing.Any, theirs: typing.Dict[str, str], own: typing.Dict[str, Names], task: typing.Any
) -> None:
    """Warn of classes that only the checkpoint or only the data name: those of images in arrays are numbers alone."""
    theirs = lasting(theirs)
    if not theirs or (LABELS in theirs) == (LABELS in own):
        return
    if LABELS in own:
        named, numbered, text = own[LABELS].where, file, own[LABELS].text
    else:
        named, numbered, text = file, _folders_of(settings_of(task))[0], theirs[LABELS]
    classes = [f"{number} is {name!r}" for number, name in enumerate(text.split("\n"))]
    told = ", ".join([*classes[:3], *(["..."] if len(classes) > 3 else [])])
    logger.warning(
        f"{numbered} has no names of classes to compare with those of {named}: make sure that its numbers mean the "
        f"same classes ({told}): labels and accuracy are wrong otherwise"
    )


def _with_names(original: typing.Callable, self: typing.Any) -> typing.Dict[str, typing.Any]:
    """Return the state of a trainer with the names of its data, and the checkpoint's names that the data lack."""
    given = self.names_of_data if hasattr(self, "names_of_data") else names_of(self.task)
    own = {kind: names.text for kind, names in given.items()}
    return {**original(self), KEY: lasting({**getattr(self.task, "trained_names", {}), **own})}


def _load_for_training(
    original: typing.Callable,
    self: typing.Any,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    optimizer_overrides: typing.Any = None,
    reset_meters: bool = False,
) -> typing.Any:
    """Load the checkpoint of a beginning training, if there is one, and keep the names of the training's data."""
    self.names_of_data = names_of_training(self)
    token = _training.set(_Training(self, reset_optimizer and reset_lr_scheduler and reset_meters))
    try:
        return original(self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
    except Exception as error:
        option = _option_of(filename, self.cfg.checkpoint)
        if option is None or DOES_NOT_FIT not in str(error):
            raise
        cause = error.__context__ or error
        raise Exception(f"{error}. Give the model's options of that training, or leave {option} out") from cause
    finally:
        _training.reset(token)


def _option_of(file: str, settings: typing.Any) -> typing.Optional[str]:
    """Return the option that named a training's checkpoint; None for a checkpoint of its own --save-dir."""
    for name in ("restore_file", "finetune_from_model", "continue_once"):
        if getattr(settings, name, None) == file:
            return f"--{name.replace('_', '-')}"
    return None


def _build_average(original: typing.Callable, self: typing.Any) -> None:
    """Build the average of --store-ema; its --ema-seed-model is compared as weights of a new training."""
    token = _training.set(_Training(self, True))
    try:
        original(self)
    finally:
        _training.reset(token)


def _load_average(original: typing.Callable, fpath: typing.Any) -> typing.Any:
    checkpoint, training = original(fpath), _training.get()
    if training is not None:
        own = getattr(training.trainer, "names_of_data", None) or names_of_training(training.trainer)
        check(fpath, trained_names(checkpoint, fpath), training.trainer.task, own, training.anew)
    return checkpoint


def _handing_names_on(
    original: typing.Callable, path: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """Load a checkpoint; compare its names for a training, else add them to the task's state for a later comparison."""
    checkpoint = original(path, *args, **kwargs)
    names, training = trained_names(checkpoint, path), _training.get()
    if training is not None:
        try:
            check(path, names, training.trainer.task, training.trainer.names_of_data, training.anew)
        except OtherNames as error:
            if training.anew:
                raise
            raise OtherNames(f"{error}. A new training needs another --save-dir") from None
        others = other_settings(checkpoint, training.trainer.cfg.model)
        if others:
            logger.warning(
                f"{path} was trained with {'; '.join(others)}: the same weights compute something else now. Give the "
                "settings of the checkpoint unless the change is intended"
            )
    else:
        checkpoint["task_state"] = {**(checkpoint.get("task_state") or {}), HANDED: (path, names)}
    return checkpoint


def _checking_names(original: typing.Callable, self: typing.Any, state: typing.Dict[str, typing.Any]) -> typing.Any:
    """Load a task's state from a checkpoint after a comparison of the checkpoint's names with those of the data."""
    if HANDED in state:
        file, theirs = state[HANDED]
        check(file, theirs, self)
    return original(self, {name: value for name, value in state.items() if name != HANDED})
