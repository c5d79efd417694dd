"""Repair fairseq's translation task: pairs of languages, alignments, weights of data, the language of BLEU."""

import contextlib
import contextvars
import functools
import logging
import os
import re
import typing

import numpy as np

from fairseq_mega.compat.checks import command_of
from fairseq_mega.compat.patching import wrap

from . import paths
from .bleu_tokenizers import KOREAN, USUAL, language_of, tokenizer_for

logger = logging.getLogger("fairseq_mega.compat.patches.translating")
MANY_LANGUAGES = "translation_multi_simple_epoch"
ORDERS = 4  # maximum n of the n-grams of BLEU
PIECES = {"subword_nmt": re.compile(r"\S@@$").search, "sentencepiece": re.compile("\u2581").search}  # as --post-process
JOINED_BY = {"subword_nmt": ("subword_nmt", "@@ "), "sentencepiece": ("sentencepiece",)}  # values of --post-process
# Values of --post-process that remove all spaces, and the mark that they replace by a space.
SPACES = {"sentencepiece": "\u2581", "wordpiece": "_", "letter": "|", "_EOW": "_EOW"}
MANY = 0.01  # share of the words of a text
SAMPLE = 1000  # maximum sentences by which the script is determined
_joined = contextvars.ContextVar("joined", default=False)
_interactive = contextvars.ContextVar("interactive", default=False)
_language: "contextvars.ContextVar[typing.Optional[str]]" = contextvars.ContextVar("language", default=None)


def load_what_is_asked_for() -> None:
    """Report options without data: a folder of several pairs without --source-lang and --target-lang,
    --load-alignments without alignments, and --upsample-primary without further training sets.
    """
    from fairseq.data import data_utils
    from fairseq.tasks import translation

    wrap(data_utils, "infer_language_pair", _infer_pair)
    wrap(translation, "load_langpair_dataset", _load_pairs)


def pairs_of(folder: str) -> typing.List[typing.Tuple[str, str]]:
    """Return the sorted pairs of languages of a folder's data; a code may contain hyphens, such as zh-Hans."""
    found = set()
    for name in os.listdir(folder):
        parts = name.split(".")
        pair, language = parts[1:3] if len(parts) > 2 else ("", "")
        if pair.startswith(f"{language}-"):
            found.add((language, pair[len(language) + 1 :]))
        elif pair.endswith(f"-{language}"):
            found.add((pair[: -len(language) - 1], language))
    whole = {pair for pair in found if "None" not in pair}  # fairseq-preprocess --only-source writes None
    return sorted(whole or found)


def several_pairs(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return a message if no option names the languages of a model, or of a folder, of several pairs, else None.

    Args:
        given: all options by the parser's names.
    """
    uses = command_of(given) in ("generate", "interactive")
    if uses and given.get("task") == MANY_LANGUAGES and given.get("source_lang") is None:
        return f"--task {MANY_LANGUAGES}: give --source-lang and --target-lang of the translations"
    folder = paths.split(given.get("data") or ".")[0]
    named = any(given.get(option) for option in ("source_lang", "target_lang", "lang_pairs"))
    if named or "source_lang" not in given or not os.path.isdir(folder):
        return None
    pairs = pairs_of(folder)
    return None if len(pairs) < 2 else _unnamed(folder, pairs)


def _unnamed(folder: str, pairs: typing.Iterable[typing.Tuple[str, str]]) -> str:
    found = " and ".join("-".join(pair) for pair in pairs)
    return f"{folder} has data of {found}: give --source-lang and --target-lang"


def _infer_pair(original: typing.Callable, path: str) -> typing.Tuple[typing.Optional[str], typing.Optional[str]]:
    """Return the pair of a folder, (None, None) without one.

    Raises:
        OSError: if the folder does not exist.
        ValueError: if the folder has several pairs.
    """
    pairs = pairs_of(path)
    if len(pairs) > 1:
        raise ValueError(_unnamed(path, pairs))
    return pairs[0] if pairs else (None, None)


def _load_pairs(
    original: typing.Callable,
    data_path: str,
    split: str,
    src: str,
    src_dict: typing.Any,
    tgt: str,
    tgt_dict: typing.Any,
    combine: bool,
    dataset_impl: typing.Any,
    upsample_primary: int,
    *args: typing.Any,
    **kwargs: typing.Any,
) -> typing.Any:
    from fairseq.data import indexed_dataset

    names = [os.path.join(data_path, f"{split}1.{pair}.{src}") for pair in (f"{src}-{tgt}", f"{tgt}-{src}")]
    several = combine and any(indexed_dataset.dataset_exists(name, impl=dataset_impl) for name in names)
    if combine and upsample_primary > 1 and not several:
        raise ValueError(
            f"--upsample-primary {upsample_primary} requires a second training set, and {data_path} has no "
            f"{os.path.basename(names[0])}: leave it out"
        )
    how = (src, src_dict, tgt, tgt_dict, combine, dataset_impl, max(1, upsample_primary))  # -1, the default, loses data
    pairs = original(data_path, split, *how, *args, **kwargs)
    if kwargs.get("load_alignments") and pairs.align_dataset is None:
        missing = f"--load-alignments: {os.path.join(data_path, f'{split}.align.{src}-{tgt}')} does not exist"
        if combine:
            raise ValueError(f"{missing}: give --align-suffix to fairseq-preprocess, or leave it out")
        logger.warning(f"{missing}: the loss of {split} does not include alignments")
    return pairs


def score_as_the_language_is_written() -> None:
    """Make sacreBLEU split words by the target language, and score a validation without words as 0."""
    from fairseq.scoring.bleu import SacrebleuScorer
    from fairseq.tasks.translation import TranslationTask

    wrap(SacrebleuScorer, "add_string", _keep_text)
    wrap(SacrebleuScorer, "_score", _score_text)
    wrap(TranslationTask, "_inference_with_bleu", _score_in_language)
    wrap(TranslationTask, "reduce_metrics", _reduce_with_bleu)
    logging.getLogger("fairseq_cli.generate").addFilter(_name_scoring)


def _name_scoring(record: logging.LogRecord) -> bool:
    """Correct the name of the option in fairseq-generate's advice on BLEU of pieces."""
    if isinstance(record.msg, str):
        record.msg = record.msg.replace("Use --sacrebleu ", "Use --scoring sacrebleu ")
    return True


def _score_in_language(original: typing.Callable, self: typing.Any, *args: typing.Any) -> typing.Any:
    if self.cfg.eval_tokenized_bleu:
        return original(self, *args)
    if not hasattr(self, "tokenizer_of_bleu"):
        self.tokenizer_of_bleu = tokenizer_for(self.cfg.target_lang, _first_references(self)).name
    if self.tokenizer_of_bleu == USUAL:
        return original(self, *args)
    with _usual_tokenizer(self.tokenizer_of_bleu):
        return original(self, *args)


def _first_references(task: typing.Any) -> typing.Iterator[str]:
    """Yield target sentences of a task's validation data, the same in all processes and for all batches."""
    for split, pairs in sorted(task.datasets.items()):
        if split != "train" and getattr(pairs, "tgt", None) is not None:
            for number in range(min(len(pairs.tgt), SAMPLE)):
                yield task.target_dictionary.string(pairs.tgt[number], task.cfg.eval_bleu_remove_bpe)


@contextlib.contextmanager
def _usual_tokenizer(name: str) -> typing.Iterator[None]:
    """Set sacreBLEU's default tokeniser within the block."""
    import sacrebleu

    before = sacrebleu.corpus_bleu
    sacrebleu.corpus_bleu = functools.partial(before, tokenize=name)
    try:
        yield
    finally:
        sacrebleu.corpus_bleu = before


def _reduce_with_bleu(
    original: typing.Callable,
    self: typing.Any,
    logging_outputs: typing.Sequence[typing.Mapping[str, typing.Any]],
    criterion: typing.Any,
) -> None:
    """Also log the numbers of a batch with empty translations, which fairseq skips."""
    from fairseq.logging import metrics

    original(self, logging_outputs, criterion)
    scored = [log for log in logging_outputs if "_bleu_sys_len" in log]
    if not scored or any(int(log[f"_bleu_totals_{order}"]) for log in scored for order in range(ORDERS)):
        return
    for name in ("counts", "totals"):
        metrics.log_scalar(f"_bleu_{name}", np.zeros(ORDERS))
    for name in ("_bleu_sys_len", "_bleu_ref_len"):
        metrics.log_scalar(name, sum(int(log[name]) for log in scored))
    metrics.log_derived("bleu", _bleu)


def _bleu(meters: typing.Mapping[str, typing.Any]) -> float:
    from sacrebleu.metrics import BLEU

    counts, totals = (list(meters[f"_bleu_{name}"].sum) for name in ("counts", "totals"))
    lengths = (int(meters[f"_bleu_{side}_len"].sum) for side in ("sys", "ref"))
    return round(BLEU.compute_bleu(counts, totals, *lengths, smooth_method="exp").score, 2)


def choose_tokenizer(namespace: typing.Any, words: typing.Sequence[str]) -> None:
    """Make --scoring sacrebleu split words by the target language, unless an option names a tokeniser.

    Args:
        namespace: options of fairseq-generate; options of other commands are not changed.
        words: words of the command line.
    """
    given = vars(namespace)
    if command_of(given) != "generate":
        return
    namespace.sacrebleu = given["scoring"] != "bleu"  # else fairseq warns of the BLEU of pieces, whatever the scoring
    if given["scoring"] != "sacrebleu":
        return
    chosen = given["sacrebleu_char_level"] or any(word.startswith("--sacrebleu-tok") for word in words)
    _language.set(None if chosen else _target_language(given))


def warn_of_pieces(given: typing.Mapping[str, typing.Any]) -> None:
    """Warn if BLEU would be computed from pieces that are not joined, or from sentences without spaces.

    For lines of input, which have no BLEU, warn if --post-process joins other pieces than those of the data.

    Args:
        given: all options by the parser's names.
    """
    if given.get("score_reference"):
        return
    if command_of(given) == "interactive":
        _warn_of_other_pieces(given)
        return
    if command_of(given) == "generate":
        option, way_out, joined = "--post-process", ", or --bpe with the files of the training", given["post_process"]
    elif given.get("eval_bleu") and "eval_bleu_remove_bpe" in given:
        option, way_out, joined = "--eval-bleu-remove-bpe", "", given["eval_bleu_remove_bpe"]
    else:
        return
    code = _target_language(given)
    file, counts = _words_of(given, f"dict.{code}.txt")
    way = _way_to_join(counts)
    if way is None:
        return
    if joined not in JOINED_BY[way] and not given.get("bpe"):
        logger.warning(f"the words of {file} are pieces, and BLEU counts pieces: give {option} {way}{way_out}")
    elif given.get("scoring") == "bleu" and language_of(code, counts) not in (None, KOREAN):
        logger.warning(
            "--scoring bleu, the default, splits words at spaces, and the target language has no spaces: give "
            "--scoring sacrebleu"
        )


def _warn_of_other_pieces(given: typing.Mapping[str, typing.Any]) -> None:
    joined = given["post_process"]
    file, counts = _words_of(given, f"dict.{_target_language(given)}.txt", "dict.txt")
    way = _way_to_join(counts)
    if joined not in (None, "none") and way is not None and joined not in JOINED_BY[way] and not given.get("bpe"):
        logger.warning(
            f"the words of {file} are pieces that --post-process (--remove-bpe) {joined.strip()} does not join: give "
            f"--post-process {way}"
        )


class Joined:
    """Encoder whose text --post-process joins, and which therefore must not decode: that would remove spaces."""

    def __init__(self, encoder: typing.Any) -> None:
        self.encoder = encoder

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.encoder, name)

    def decode(self, text: str) -> str:
        """Return a text unchanged."""
        return text


def note_command(given: typing.Mapping[str, typing.Any]) -> None:
    """Record whether a command reads lines of text, and whether --post-process joins its output.

    Args:
        given: all options by the parser's names; empty for a model of the hub.
    """
    command = command_of(given)
    _interactive.set(command == "interactive")
    _joined.set(command in ("generate", "interactive") and given["post_process"] in SPACES)


def reads_lines() -> bool:
    """Return whether the command of this process reads lines of text, as fairseq-interactive does."""
    return _interactive.get()


def joined_once(encoder: typing.Any) -> typing.Any:
    """Return an encoder that does not decode if --post-process joins the output; None stays None."""
    return encoder if encoder is None or not _joined.get() else Joined(encoder)


def nothing_to_join(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return a message if --post-process would join no words of the data, else None.

    In fairseq-eval-lm --post-process joins only pieces of subword-nmt; the perplexity of other data does not change. In
    commands that generate it removes all spaces, and replaces the marks of the right kind of pieces by spaces.

    Args:
        given: all options by the parser's names.
    """
    way, command = given.get("post_process"), command_of(given)
    if command in ("generate", "interactive") and way in SPACES:
        return _no_spaces(given, way)
    if way is None or command != "eval-lm":
        return None
    file, counts = _words_of(given, "dict.txt")
    folder = os.path.dirname(file)
    option = f"--post-process (--remove-bpe) {way.strip()}"
    advice = (
        "leave it out: the perplexity is then that of tokens, and to the power of their number divided by the number "
        "of words it is that of words"
    )
    if not any(map(PIECES["subword_nmt"], counts)) or _way_to_join(counts) == "sentencepiece":
        return f"{option}: fairseq-eval-lm joins pieces that end in @@, which the words of {folder} are not; {advice}"
    if way not in JOINED_BY["subword_nmt"]:
        return f"{option}: fairseq-eval-lm joins words by --post-process subword_nmt alone; give that, or {advice}"
    return None


def _no_spaces(given: typing.Mapping[str, typing.Any], way: str) -> typing.Optional[str]:
    """Return a message if a text of words would lose all spaces; None for characters and for pieces."""
    file, counts = _words_of(given, f"dict.{_target_language(given)}.txt", "dict.txt")
    longer = sum(len(symbol) > 1 for symbol in counts)
    if 2 * longer <= len(counts) or _way_to_join(counts) or any(SPACES[way] in symbol for symbol in counts):
        return None
    return (
        f"--post-process (--remove-bpe) {way} makes spaces of {SPACES[way]!r}, which no word of {file} has, and "
        f"removes all other spaces: leave it out"
    )


def _words_of(given: typing.Mapping[str, typing.Any], *names: str) -> typing.Tuple[str, typing.Dict[str, int]]:
    """Return the first existing dictionary of the data folder, and the counts of its symbols without special symbols.

    Without a dictionary, return the last path and no symbols.
    """
    from fairseq.data import Dictionary

    files = [os.path.join(paths.split(given.get("data") or ".")[0], name) for name in names]
    file = next(filter(os.path.isfile, files), files[-1])
    if not os.path.isfile(file):
        return file, {}
    dictionary = Dictionary.load(file)
    counts = {dictionary[number]: dictionary.count[number] for number in range(dictionary.nspecial, len(dictionary))}
    return file, counts


def _way_to_join(counts: typing.Mapping[str, int]) -> typing.Optional[str]:
    """Return fairseq's name of the pieces of a dictionary; None for words."""
    for way, has_mark in PIECES.items():
        if sum(count for symbol, count in counts.items() if has_mark(symbol)) > MANY * sum(counts.values()):
            return way
    return None


def _keep_text(original: typing.Callable, self: typing.Any, ref: str, pred: str) -> None:
    """Keep the texts of a translation and its reference: all references together determine the tokeniser."""
    if _language.get() is None:
        original(self, ref, pred)
        return
    self.text = getattr(self, "text", [])
    self.text.append((ref, pred))


def _score_text(original: typing.Callable, self: typing.Any, *args: typing.Any) -> typing.Any:
    """Tokenise the kept texts by the language of the references, and score them."""
    code, text = _language.get(), getattr(self, "text", [])
    if code is not None and len(self.ref) < len(text):
        found = tokenizer_for(code, (reference for reference, _ in text))
        if found.name != USUAL:
            from fairseq.scoring.tokenizer import EvaluationTokenizer

            self.tokenizer = EvaluationTokenizer(found.name, lowercase=self.cfg.sacrebleu_lowercase)
            reason = f" ({found.reason})" if found.reason else ""
            logger.info(
                f"--scoring sacrebleu cuts {code or 'this text'} with the tokeniser {found.name}{reason}: "
                f"--sacrebleu-tokenizer sets another"
            )
        self.ref, self.pred = ([self.tokenizer.tokenize(side) for side in sides] for sides in zip(*text))
    return original(self, *args)


def _target_language(given: typing.Mapping[str, typing.Any]) -> str:
    """Return --target-lang, or the target language of the data folder, or ""."""
    from fairseq.data import data_utils

    folder = paths.split(given.get("data") or ".")[0]
    if given.get("target_lang") or not os.path.isdir(folder):
        return given.get("target_lang") or ""
    return data_utils.infer_language_pair(folder)[1] or ""
