"""Repair options of fairseq's generation, such as --lm-path, --replace-unk and --retain-dropout-modules."""

import contextvars
import importlib.util
import logging
import os
import typing

import torch

from fairseq_mega.compat.patching import wrap

from . import paths
from .translating import MANY_LANGUAGES

logger = logging.getLogger("fairseq_mega.compat.patches.generating")
PACKAGES = {  # scorer -> name of its package for import, and for installation
    "bert_score": ("bert_score", "bert-score"),
    "meteor": ("nltk", "nltk"),
    "wer": ("editdistance", "editdistance"),
}
_scores_references = contextvars.ContextVar("scores_references", default=False)
LAST = 1e4  # subtracted from a log-probability; the hypothesis then comes after all others
COPY = "@@ "  # value of --replace-unk without a file in fairseq's parser


def use_generation_options() -> None:
    """Repair --replace-unk, and --lm-path and --retain-dropout-modules, which fairseq ignores."""
    from fairseq import hub_utils, scoring, search, utils
    from fairseq.models import BaseFairseqModel
    from fairseq.tasks import FairseqTask
    from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

    wrap(utils, "load_align_dict", _load_align_dict)
    wrap(utils, "replace_unk", _replace_unk)
    wrap(FairseqTask, "build_generator", _build_generator)
    wrap(TranslationMultiSimpleEpochTask, "build_generator", _build_generator_of_many_languages)
    wrap(scoring, "build_scorer", _build_scorer)
    wrap(FairseqTask, "get_interactive_tokens_and_lengths", _remember_words)
    wrap(BaseFairseqModel, "prepare_for_inference_", _retain_in_named_modules)
    wrap(search.DiverseBeamSearch, "step", _step_by_rows)
    wrap(search.LengthConstrainedBeamSearch, "step", _end_at_the_length)
    wrap(search.Sampling, "step", _draw_from_those_there_are)
    wrap(hub_utils.GeneratorHubInterface, "score", _score)
    wrap(hub_utils.GeneratorHubInterface, "string", _string)


def _draw_from_those_there_are(
    original: typing.Callable, self: typing.Any, step: int, lprobs: torch.Tensor, *rest: typing.Any
) -> typing.Any:
    """Draw from all symbols if --sampling-topk exceeds their number."""
    self.sampling_topk = min(self.sampling_topk, lprobs.size(-1))
    return original(self, step, lprobs, *rest)


def _end_at_the_length(
    original: typing.Callable, self: typing.Any, step: int, lprobs: torch.Tensor, *rest: typing.Any
) -> typing.Any:
    """Continue a hypothesis of the maximum length only if there are too few others: fairseq continues probable ones.

    Args:
        lprobs: (B, beam, symbols) log-probabilities.
    """
    others = torch.arange(lprobs.size(-1), device=lprobs.device) != self.eos
    ended = (step >= self.max_len_a * self.src_lengths + self.max_len_b).view(-1, 1, 1)
    return original(self, step, lprobs - LAST * (ended & others), *rest)


def _score(original: typing.Callable, self: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    """Raise a ValueError for a translator, which requires pairs of texts."""
    from fairseq.models import FairseqEncoderDecoderModel

    if any(isinstance(model, FairseqEncoderDecoderModel) for model in self.models):
        raise ValueError(
            "score: a translator scores pairs of texts, and this function reads single texts: binarise the pairs, and "
            "run fairseq-mega-generate --score-reference"
        )
    return original(self, *args, **kwargs)


def _load_align_dict(original: typing.Callable, replace_unk: typing.Optional[str]) -> typing.Any:
    """Read lines of "source target"; raises ValueError for a line with one word."""
    if replace_unk is None or replace_unk in ("", COPY):
        return None if replace_unk is None else {}
    found = {}
    with open(replace_unk, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if len(words) == 1:
                raise ValueError(
                    f"--replace-unk {replace_unk}: line {number} is {words[0]!r}; give a word of the source and its "
                    f"replacement in each line"
                )
            if words:
                found[words[0]] = words[1]
    return found


def _replace_unk(
    original: typing.Callable,
    hypo_str: str,
    src_str: str,
    alignment: typing.Any,
    align_dict: typing.Dict[str, str],
    unk: str,
) -> str:
    """Replace each unknown word by the aligned word of the source, or by this word's entry in the dictionary.

    The alignment has fairseq's form: pairs of a source position and a target position.
    """
    source, words = src_str.split(), hypo_str.split()
    aligned = {int(target): int(place) for place, target in alignment}
    for place, word in enumerate(words):
        if word == unk and aligned.get(place, len(source)) < len(source):
            found = source[aligned[place]]
            words[place] = align_dict.get(found, found)
    return " ".join(words)


def _build_generator_of_many_languages(
    original: typing.Callable,
    self: typing.Any,
    models: typing.Any,
    args: typing.Any,
    *further: typing.Any,
    prefix_allowed_tokens_fn: typing.Optional[typing.Callable] = None,
    **kwargs: typing.Any,
) -> typing.Any:
    """Accept the argument that a model of the hub passes to every task, and keep the tokens of its translations."""
    if prefix_allowed_tokens_fn is not None:
        raise ValueError(f"prefix_allowed_tokens_fn has no effect with --task {MANY_LANGUAGES}: leave it out")
    if None in (self.args.source_lang, self.args.target_lang):
        raise ValueError(
            "the languages of the translations are missing: give --source-lang and --target-lang, or source_lang and "
            "target_lang in Python"
        )
    generator = original(self, models, args, *further, **kwargs)
    self.symbols_to_strip = getattr(generator, "symbols_to_strip_from_output", None)
    return generator


def _string(original: typing.Callable, self: typing.Any, tokens: torch.Tensor) -> str:
    """Leave out the token of the target language, as fairseq-generate does."""
    return str(self.tgt_dict.string(tokens, extra_symbols_to_ignore=getattr(self.task, "symbols_to_strip", None)))


def _build_generator(
    original: typing.Callable,
    self: typing.Any,
    models: typing.Any,
    args: typing.Any,
    seq_gen_cls: typing.Any = None,
    extra_gen_cls_kwargs: typing.Optional[typing.Dict[str, typing.Any]] = None,
    **kwargs: typing.Any,
) -> typing.Any:
    _scores_references.set(getattr(args, "score_reference", False))
    extra = dict(extra_gen_cls_kwargs or {})
    path = getattr(args, "lm_path", None)
    if path and extra.get("lm_model") is None:
        extra.update(lm_model=_load_language_model(self, path, models), lm_weight=args.lm_weight)
    if path:
        _check_language_model(self, path, extra["lm_model"])
        if not args.lm_weight:
            logger.warning(
                f"--lm-path {path} has no effect with --lm-weight 0, the default: give another weight, such as 0.3"
            )
    replacing = getattr(args, "replace_unk", None) is not None
    if seq_gen_cls is not None or self.source_dictionary is self.target_dictionary:
        _refuse_without_a_source(args)
    if replacing:
        self.words_of_sources = []
        if not getattr(args, "print_alignment", None):
            from fairseq.sequence_generator import SequenceGeneratorWithAlignment

            seq_gen_cls, extra["print_alignment"] = SequenceGeneratorWithAlignment, "hard"
    generator = original(self, models, args, seq_gen_cls, extra, **kwargs)
    if getattr(args, "match_source_len", False) and not getattr(args, "score_reference", False):
        generator.search.min_len_b = generator.search.max_len_b = -1  # fairseq counts the </s> of the source
    return generator


def _refuse_without_a_source(args: typing.Any) -> None:
    """Raise a ValueError for an option that requires a source beside the output, which language models lack."""
    for name, reason in (
        ("replace_unk", "whose words are aligned with the words of a source"),
        ("print_alignment", "whose words are aligned with the words of a source"),
        ("match_source_len", "whose output has the length of a source"),
    ):
        if getattr(args, name, None) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} requires a translator, {reason}: leave it out")


def _build_scorer(original: typing.Callable, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    """Print no BLEU with --score-reference, which would compare the references with themselves."""
    scorer = original(*args, **kwargs)
    if _scores_references.get():
        _scores_references.set(False)  # a later scorer of the process is of translations
        scorer.result_string = lambda *_: "the scores of the references (--score-reference); nothing was translated"
    return scorer


def _load_language_model(task: typing.Any, path: str, models: typing.Any) -> typing.Any:
    """Load the model of --lm-path, on the device and in the precision of the translators."""
    from fairseq import checkpoint_utils

    overrides = {"data": (getattr(task, "cfg", None) or task.args).data}
    (model,), _ = checkpoint_utils.load_model_ensemble([path], arg_overrides=overrides, task=None)
    like = next(iter(models)).parameters()
    return model.to(next(like))


def _check_language_model(task: typing.Any, path: str, model: typing.Any) -> None:
    """Raise a ValueError unless a model is a language model with the target's dictionary."""
    from fairseq.models import FairseqLanguageModel

    if not isinstance(model, FairseqLanguageModel):
        raise ValueError(f"--lm-path {path} holds a {type(model).__name__}: give a language model")
    own = getattr(model.decoder, "dictionary", None)
    if own is not None and own != task.target_dictionary:
        raise ValueError(
            f"--lm-path {path}: its dict.txt differs from the dictionary of the target language: train the language "
            f"model with the target's dictionary (fairseq-preprocess --srcdict)"
        )


def _remember_words(
    original: typing.Callable,
    self: typing.Any,
    lines: typing.Sequence[str],
    encode_fn: typing.Callable[[str], str],
) -> typing.Any:
    """Make the source's dictionary return the original words of each line, including unknown words, one call a line."""
    words = getattr(self, "words_of_sources", None)
    if words is not None:
        words.extend(encode_fn(line) for line in lines)
        self.source_dictionary.string = lambda *args, **kwargs: words.pop(0)
    return original(self, lines, encode_fn)


def _step_by_rows(
    original: typing.Callable,
    self: typing.Any,
    step: int,
    lprobs: torch.Tensor,
    scores: torch.Tensor,
    prev_output_tokens: typing.Optional[torch.Tensor] = None,
    original_batch_idxs: typing.Optional[torch.Tensor] = None,
) -> typing.Any:
    """Compute the diversity of groups by rows of the batch: fairseq confuses rows with numbers of the data."""
    if original_batch_idxs is not None:
        numbers = original_batch_idxs.tolist()
        if step == 0:
            self.rows = {number: row for row, number in enumerate(numbers)}
        original_batch_idxs = original_batch_idxs.new_tensor([self.rows[number] for number in numbers])
    return original(self, step, lprobs, scores, prev_output_tokens, original_batch_idxs)


def _retain_in_named_modules(original: typing.Callable, self: typing.Any, cfg: typing.Any) -> None:
    """Read --retain-dropout-modules as names, not as letters; raises ValueError if no part of the model drops then."""
    retained = bool(getattr(cfg.generation, "retain_dropout", False))
    given = cfg.generation.retain_dropout_modules if retained else None
    if isinstance(given, str):
        cfg.generation.retain_dropout_modules = [name.strip() for name in given.split(",")]
    original(self, cfg)
    if not retained or any(_drops(part) for part in self.modules()):
        return
    if given is None:
        raise ValueError("--retain-dropout: no part of the model has dropout; leave the option out")
    parts = sorted({part for name, _ in self.named_modules() for part in name.split(".") if part.isidentifier()})
    raise ValueError(
        f"--retain-dropout-modules {given}: no such part of the model has dropout; give names, separated by "
        f"commas, of {', '.join(parts)}"
    )


def _drops(part: torch.nn.Module) -> bool:
    """Return whether a dropout, ours or fairseq's, acts in evaluation."""
    retained = getattr(part, "retained", False) or getattr(part, "apply_during_inference", False)
    return bool(retained and getattr(part, "p", 0.0) > 0)


def obstacle(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return why options of fairseq-generate or -interactive cannot be combined, or None.

    Args:
        given: all options by the parser's names.
    """
    if "lm_path" not in given:
        return None
    interactive = "buffer_size" in given
    if interactive and given.get("skip_invalid_size_inputs_valid_test"):
        return (
            "--skip-invalid-size-inputs-valid-test: every line of input must have a line of output; leave the option "
            "out, and shorten the line that the error names"
        )
    if interactive and given.get("prefix_size"):
        return "--prefix-size requires references, which lines of input do not have: leave it out"
    if interactive and given.get("print_alignment") == "soft":
        return "--print-alignment soft: only fairseq-generate supports it; give --print-alignment hard"
    if given.get("constraints") and not interactive:
        return (
            "--constraints: run fairseq-interactive, which reads the constraints after each sentence, separated by tabs"
        )
    topk, topp = given.get("sampling_topk", -1), given.get("sampling_topp", -1.0)
    if topk > 0 and topp > 0:
        return f"--sampling-topk {topk} and --sampling-topp {topp:g}: fairseq would ignore the first; give one of them"
    problem = _unread(given, interactive)
    if problem is not None:
        return problem
    if given.get("replace_unk") is not None:
        return _obstacle_of_replacing(given, interactive)
    lm_path = given.get("lm_path")
    weight = given["lm_weight"]
    if lm_path is None:
        return f"--lm-weight {weight:g}: add --lm-path, the language model with this weight" if weight else None
    if not os.path.isfile(lm_path):
        return f"--lm-path {lm_path} does not exist: give the checkpoint of a language model"
    dictionary = os.path.join(paths.split(given.get("data") or ".")[0], "dict.txt")
    if not os.path.isfile(dictionary):
        return (
            f"--lm-path: {dictionary}, the dictionary of the language model, does not exist: copy the dictionary of "
            f"its data, which must be that of the target language, to this file"
        )
    return None


def _unread(given: typing.Mapping[str, typing.Any], interactive: bool) -> typing.Optional[str]:
    """Return which option has no effect or lacks its package, or None."""
    from fairseq.dataclass.configs import GenerationConfig

    for name, field in GenerationConfig.__dataclass_fields__.items():
        option, given_it = f"--{name.replace('_', '-')}", given.get(name, field.default) != field.default
        refining = name.startswith("iter_decode_") or name in ("print_step", "retain_iter_history", "decoding_format")
        if given_it and refining and given.get("task") != "translation_lev":
            return f"{option} requires a model with iterative refinement: leave it out"
        if given_it and name.endswith("_mt") and given.get("task") != "speech_to_speech":
            return f"{option} requires a model that translates speech to speech: leave it out"
    strength = given.get("diverse_beam_strength")
    if given.get("diverse_beam_groups") == -1 and strength != GenerationConfig.diverse_beam_strength:
        return f"--diverse-beam-strength {strength:g}: add --diverse-beam-groups, without which it has no effect"
    if given.get("eos_token") is not None and given.get("task") not in ("speech_to_text", "speech_to_speech"):
        return f"--eos-token {given['eos_token']} requires a translator of speech: leave it out"
    if given.get("retain_dropout_modules") is not None and not given.get("retain_dropout"):
        return f"--retain-dropout-modules {given['retain_dropout_modules']}: add --retain-dropout, or leave it out"
    scoring = given.get("scoring")
    if interactive and scoring != "bleu":
        return f"--scoring {scoring} requires references, which lines of input do not have: leave it out"
    if given.get("score_reference") and scoring != "bleu":
        return f"--scoring {scoring} requires translations, and --score-reference makes none: leave one of them out"
    package, installed = PACKAGES.get(str(scoring), ("", ""))
    if package and importlib.util.find_spec(package) is None:
        return f"--scoring {scoring} requires a package: pip install {installed}, or give --scoring sacrebleu"
    return None


def _obstacle_of_replacing(given: typing.Mapping[str, typing.Any], interactive: bool) -> typing.Optional[str]:
    file = given["replace_unk"]
    if file not in ("", COPY) and not os.path.isfile(file):
        return f"--replace-unk {file} does not exist: give a file of lines 'source target', or no value to copy words"
    for name in ("bpe", "tokenizer", "post_process"):
        if given.get(name) is not None:
            option = f"--{name.replace('_', '-')} {given[name]}"
            return f"--replace-unk requires whole words, and {option} joins pieces to words: leave one of them out"
    if not interactive and given.get("dataset_impl") != "raw":
        return (
            "--replace-unk: binarised data do not contain the unknown words; give the lines to fairseq-interactive, or "
            "give --dataset-impl raw to this command and to fairseq-preprocess"
        )
    return None
