"""Scores of the output of ``fairseq-generate``."""

import argparse
import shlex
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from fairseq_mega.lab.evaluate.bleu import cached_test_set, compound_split_bleu, detokenize, sacre_bleu, tokenizer_for
from fairseq_mega.lab.evaluate.generation import ScoringError, expect_lines, in_order, parse_generation, read_lines
from fairseq_mega.lab.runs.options import split_assignment
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import make_result, write_result

DESCRIPTION = """\
Score the output of fairseq-generate: sacreBLEU and, on request, compound-split tokenised BLEU.

    fairseq-mega-report translations generate.txt --reference test.de --target-lang de --expect 3003

A missing, repeated or surplus hypothesis is an error: fairseq can skip sentences without a message, and a score of
fewer sentences is not the score of the test set.
"""


def show_examples(count: int, hypotheses: Sequence[str], references: Sequence[str], sources: Optional[Sequence[str]]):
    """Print ``count`` translations, spread evenly over the test set, with source and reference."""
    count = min(count, len(hypotheses))
    for number in range(count):
        index = number * len(hypotheses) // count
        print(f"\n[{index + 1}]")
        if sources is not None:
            print(f"  source:      {sources[index]}")
        print(f"  translation: {hypotheses[index]}")
        print(f"  reference:   {references[index]}")
    print(flush=True)


def score(args: argparse.Namespace) -> Dict[str, Any]:
    """Score by the options, print the report and return scores, signatures and counts."""
    if args.expect <= 0:
        raise ScoringError(f"--expect {args.expect}: the number of sentences must be positive")
    found = parse_generation(read_lines(args.output, "generation output"), args.output)
    raw = in_order(found["H"], args.expect, args.output, "H")
    final = in_order(found["D"], args.expect, args.output, "D") if found["D"] else raw
    if args.detokenize:
        final = detokenize(final, args.detokenize)
    references = expect_lines(read_lines(args.reference, "reference"), args.expect, "--reference", args.reference)
    sources = None
    if args.source:
        sources = expect_lines(read_lines(args.source, "source"), args.expect, "--source", args.source)
    if args.examples > 0:
        show_examples(args.examples, final, references, sources)

    reference_name = Path(args.reference).name
    if args.sacrebleu_test_set:
        if not args.source_lang:
            raise ScoringError("--sacrebleu-test-set requires --source-lang to name the language pair")
        official = cached_test_set(args.sacrebleu_test_set, args.source_lang, args.target_lang)
        if official is None:
            print(f"sacreBLEU's {args.sacrebleu_test_set} is not on this machine; using {reference_name}")
        else:
            references = expect_lines(official, args.expect, "--sacrebleu-test-set", args.sacrebleu_test_set)
            reference_name = f"sacrebleu:{args.sacrebleu_test_set}"
    scores, signatures = {}, {}
    scores["sacrebleu"], signatures["sacrebleu"] = sacre_bleu(final, references, args.target_lang)
    empty = sum(not hypothesis.strip() for hypothesis in final)
    if empty:
        print(f"warning: {empty} of {args.expect} hypotheses are empty")
    print(f"sentences scored: {len(final)} of {args.expect}")
    reason = tokenizer_for(args.target_lang).reason
    if reason:
        print(f"BLEU of characters, not of words: {reason}")
    print(f"sacreBLEU = {scores['sacrebleu']:.2f}   {signatures['sacrebleu']}   reference: {reference_name}")
    if args.compound_split:
        if args.tokenized_reference:
            tokenized = expect_lines(
                read_lines(args.tokenized_reference, "tokenised reference"),
                args.expect,
                "--tokenized-reference",
                args.tokenized_reference,
            )
        else:
            tokenized = in_order(found["T"], args.expect, args.output, "T")
        scores["tokenized_bleu"], signatures["tokenized_bleu"] = compound_split_bleu(raw, tokenized)
        print(f"tokenised BLEU (compounds split) = {scores['tokenized_bleu']:.2f}   {signatures['tokenized_bleu']}")
    return {"scores": scores, "signatures": signatures, "reference": reference_name, "empty_hypotheses": empty}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``translations``."""
    parser.add_argument("output", help="file with the standard output of fairseq-generate (H-, D- and T- lines)")
    parser.add_argument("--reference", required=True, metavar="FILE", help="plain reference text, one sentence a line")
    parser.add_argument("--source", metavar="FILE", help="plain source text, shown with the examples")
    parser.add_argument("--target-lang", required=True, metavar="LANG")
    parser.add_argument("--source-lang", metavar="LANG", help="language pair, required with --sacrebleu-test-set")
    parser.add_argument("--expect", type=int, required=True, metavar="N", help="number of sentences in the test set")
    parser.add_argument("--detokenize", metavar="LANG", help="undo Moses tokenisation with sacremoses' rules of LANG")
    parser.add_argument(
        "--compound-split",
        action="store_true",
        help="also report tokenised BLEU with compounds split; the H- lines must have BPE undone",
    )
    parser.add_argument(
        "--tokenized-reference",
        metavar="FILE",
        help="tokenised reference for --compound-split (default: the T- lines of the output)",
    )
    parser.add_argument(
        "--sacrebleu-test-set",
        metavar="NAME",
        help="use sacreBLEU's own copy of the reference (wmt14/full) where it is on this machine",
    )
    parser.add_argument("--examples", type=int, default=0, metavar="K", help="print K translations (default: 0)")
    parser.add_argument("--json", metavar="FILE", help="write the result with versions, revision and hardware")
    parser.add_argument("--benchmark", default="translation", help="name of the benchmark in the JSON result")
    parser.add_argument("--label", default="", help="name of this run in the JSON result")
    parser.add_argument("--command", default="", help="command to record in the JSON result (default: this one)")
    parser.add_argument("--seed", type=int, help="training seed to record in the JSON result")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of this run, to record in the JSON result; may be repeated",
    )


def run(options: argparse.Namespace) -> None:
    """Score the translations, and write the result file."""
    settings = dict(split_assignment("--setting", text) for text in options.setting)
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
