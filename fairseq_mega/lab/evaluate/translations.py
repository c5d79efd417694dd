"""Scores of the output of ``fairseq-generate``."""

import argparse
import re
import shlex
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from sacrebleu.dataset import DATASETS
from sacrebleu.metrics import BLEU

from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import make_result, write_result

DESCRIPTION = """\
Score the output of fairseq-generate: sacreBLEU and, on request, compound-split tokenised BLEU.

    fairseq-mega-report translations generate.txt --reference test.de --target-lang de --expect 3003

A missing, repeated or surplus hypothesis is an error: fairseq can skip sentences without a message, and a score of
fewer sentences is not the score of the test set.
"""
OUTPUT_LINE = re.compile(r"([HDT])-(\d+)\t(.*)", re.DOTALL)
COMPOUND = re.compile(rb"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """Return ``line`` with ``X-Y`` inside a token turned into ``X ##AT##-##AT## Y``.

    The customary rule ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` works on bytes and its matches do not overlap:
    in ``a-b-c`` the first match includes the ``b``, so that only the first hyphen is split.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode("utf-8")).decode("utf-8")


def compound_split_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Tuple[float, str]:
    """Return 4-gram corpus BLEU (case-sensitive, unsmoothed) and its signature, on tokenised text.

    Both sides go through :func:`split_compounds` first. The signature reads ``tok:none|smooth:none`` since
    sacreBLEU neither tokenises nor smooths here; with any n-gram precision at zero the score is 0.
    """
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    score = metric.corpus_score([split_compounds(h) for h in hypotheses], [[split_compounds(r) for r in references]])
    return score.score, str(metric.get_signature())


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], target_lang: str) -> Tuple[float, str]:
    """Return corpus BLEU of plain (detokenised) text and its signature, which names the tokeniser.

    sacreBLEU chooses the tokeniser by the language of ``target_lang``, a code of a language or a locale.
    """
    metric = BLEU(trg_lang=language_of(target_lang))
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return score.score, str(metric.get_signature())


def language_of(code: str) -> str:
    """Return the language of a locale, such as "zh" of ``zh_CN``."""
    return re.split(r"[-_]", code.lower())[0]


def detokenize(lines: Sequence[str], language: str) -> List[str]:
    """Return ``lines`` detokenised with the Moses rules of sacremoses, which this alone requires."""
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=language_of(language))
    return [moses.detokenize(line.split()) for line in lines]


def cached_test_set(name: str, source_lang: str, target_lang: str) -> Optional[Path]:
    """Return the reference of sacreBLEU's test set ``name`` if it is on this machine, else ``None``.

    Nothing is downloaded.
    """
    dataset: Any = DATASETS[name]
    pair = f"{source_lang}-{target_lang}"
    files = [Path(dataset._get_txt_file_path(pair, field)) for field in ("ref", "ref:0")]
    return next((file for file in files if file.is_file() and file.stat().st_size > 0), None)


def read_lines(path: Path) -> List[str]:
    """Return the lines of a UTF-8 text file, split at line feeds only, without its byte-order mark."""
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_generation(lines: Sequence[str]) -> Dict[str, Dict[int, str]]:
    """Sort the lines of ``fairseq-generate`` by kind: ``{"H": {id: text}, "D": ..., "T": ...}``.

    ``H`` is the hypothesis, ``D`` the hypothesis without BPE and tokenisation, ``T`` the reference. Raises
    :class:`ValueError` for an id that occurs twice within one kind.
    """
    found: Dict[str, Dict[int, str]] = {"H": {}, "D": {}, "T": {}}
    for match in filter(None, map(OUTPUT_LINE.fullmatch, lines)):
        kind, index, text = match.group(1), int(match.group(2)), match.group(3)
        if index in found[kind]:
            raise ValueError(f"sentence {index} has a second {kind}- line; generate with --nbest 1, into one file")
        found[kind][index] = text if kind == "T" else text.partition("\t")[2]  # without the score
    return found


def in_order(texts: Dict[int, str], expected: int, kind: str) -> List[str]:
    """Return the ``expected`` texts in order of id; raise :class:`ValueError` for any other number of them."""
    wrong = set(texts) ^ set(range(expected))
    if wrong:
        raise ValueError(
            f"{len(texts)} {kind}- lines found, --expect is {expected}: {len(wrong)} sentences are missing or surplus, "
            f"the first is {min(wrong)}; generate the whole test set with --required-batch-size-multiple 1, and "
            "without --skip-invalid-size-inputs-valid-test, which omits long sentences"
        )
    return [texts[index] for index in range(expected)]


def read_expected(path: Path, expected: int, option: str) -> List[str]:
    """Return the lines of a file if there are ``expected`` of them, else raise :class:`ValueError`."""
    lines = read_lines(path)
    if len(lines) != expected:
        raise ValueError(f"{option} {path} has {len(lines)} lines, --expect is {expected}; give matching files")
    return lines


def show_examples(count: int, texts: Dict[str, Sequence[str]], expected: int) -> None:
    """Print ``count`` sentences, spread evenly over the test set, in each of the texts."""
    count = min(count, expected)
    for number in range(count):
        index = number * expected // count
        print(f"\n[{index + 1}]", *(f"  {name + ':':13}{lines[index]}" for name, lines in texts.items()), sep="\n")
    print(flush=True)


def score(args: argparse.Namespace) -> Dict[str, Any]:
    """Score by the options, print the report and return scores, signatures and counts."""
    found = parse_generation(read_lines(args.output))
    raw = in_order(found["H"], args.expect, "H")
    final = in_order(found["D"], args.expect, "D") if found["D"] else raw
    if args.detokenize:
        final = detokenize(final, args.detokenize)
    references = read_expected(args.reference, args.expect, "--reference")
    if args.examples > 0:
        sources = {"source": read_expected(args.source, args.expect, "--source")} if args.source else {}
        show_examples(args.examples, {**sources, "translation": final, "reference": references}, args.expect)

    reference_name = args.reference.name
    if args.sacrebleu_test_set:
        official = cached_test_set(args.sacrebleu_test_set, args.source_lang, args.target_lang)
        if official is None:
            print(f"sacreBLEU's {args.sacrebleu_test_set} is not on this machine; using {reference_name}")
        else:
            references = read_expected(official, args.expect, "--sacrebleu-test-set")
            reference_name = f"sacrebleu:{args.sacrebleu_test_set}"
    scores, signatures = {}, {}
    scores["sacrebleu"], signatures["sacrebleu"] = sacre_bleu(final, references, args.target_lang)
    empty = sum(not hypothesis.strip() for hypothesis in final)
    if empty:
        print(f"warning: {empty} of {args.expect} hypotheses are empty")
    print(f"sentences scored: {len(final)} of {args.expect}")
    print(f"sacreBLEU = {scores['sacrebleu']:.2f}   {signatures['sacrebleu']}   reference: {reference_name}")
    if args.compound_split:
        if args.tokenized_reference:
            tokenized = read_expected(args.tokenized_reference, args.expect, "--tokenized-reference")
        else:
            tokenized = in_order(found["T"], args.expect, "T")
        scores["tokenized_bleu"], signatures["tokenized_bleu"] = compound_split_bleu(raw, tokenized)
        print(f"tokenised BLEU (compounds split) = {scores['tokenized_bleu']:.2f}   {signatures['tokenized_bleu']}")
    return {"scores": scores, "signatures": signatures, "reference": reference_name, "empty_hypotheses": empty}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``translations``."""
    add = parser.add_argument
    add("output", type=Path, help="file with the standard output of fairseq-generate (H-, D- and T- lines)")
    reference = "plain reference text, one sentence a line"
    add("--reference", type=Path, required=True, metavar="FILE", help=reference)
    add("--source", type=Path, metavar="FILE", help="plain source text, shown with the examples")
    add("--target-lang", required=True, metavar="LANG")
    add("--source-lang", metavar="LANG", help="language pair, required with --sacrebleu-test-set")
    add("--expect", type=int, required=True, metavar="N", help="number of sentences in the test set")
    add("--detokenize", metavar="LANG", help="undo Moses tokenisation with sacremoses' rules of LANG")
    split = "also report tokenised BLEU with compounds split; the H- lines must have BPE undone"
    add("--compound-split", action="store_true", help=split)
    tokenised = "tokenised reference for --compound-split (default: the T- lines of the output)"
    add("--tokenized-reference", type=Path, metavar="FILE", help=tokenised)
    official = "use sacreBLEU's own copy of the reference (wmt14/full) where it is on this machine"
    add("--sacrebleu-test-set", metavar="NAME", help=official)
    add("--examples", type=int, default=0, metavar="K", help="print K translations (default: 0)")
    add("--json", metavar="FILE", help="write the result with versions, revision and hardware")
    add("--benchmark", default="translation", help="name of the benchmark in the JSON result")
    add("--label", default="", help="name of this run in the JSON result")
    add("--command", default="", help="command to record in the JSON result (default: this one)")
    add("--seed", type=int, help="training seed to record in the JSON result")
    setting = "a setting of this run, to record in the JSON result; may be repeated"
    add("--setting", action="append", default=[], metavar="NAME=VALUE", help=setting)


def run(options: argparse.Namespace) -> None:
    """Score the translations, and write the result file."""
    settings = dict(text.split("=", 1) for text in options.setting)
    report = score(options)
    if not options.json:
        return
    command = options.command or shlex.join(["fairseq-mega-report", *options.given])
    scores = report.pop("scores")
    result = make_result(
        options.benchmark, options.label, scores, options.expect, command, options.seed, settings, **report
    )
    write_result(options.json, result)
    print(f"result written to {options.json}")


REPORT = Report(DESCRIPTION, add_options, run)
