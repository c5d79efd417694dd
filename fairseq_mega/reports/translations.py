"""Score the output of ``fairseq-generate``: sacreBLEU and, on request, compound-split tokenised BLEU.

    python -m fairseq_mega.reports.translations generate.txt --reference test.de --target-lang de --expect 3003

A hypothesis that is missing, doubled or out of range stops the program: fairseq can leave sentences out of
its batches without a word, and a score over fewer sentences must never pass for the score of the test set.
"""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from sacrebleu.dataset import DATASETS
from sacrebleu.metrics import BLEU

from fairseq_mega.reports.results import make_result, write_result

OUTPUT_LINE = re.compile(r"([HDT])-(\d+)\t(.*)", re.DOTALL)
COMPOUND = re.compile(rb"(\S)-(\S)")


class ScoringError(ValueError):
    """The translations cannot be scored; the message names the file, what was found and the remedy."""


def read_lines(path: str, what: str) -> List[str]:
    """Return the lines of the UTF-8 text file ``path``, cut at line feeds only.

    Raises :class:`ScoringError` naming ``what`` when the file is missing or is no UTF-8.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ScoringError(f"{what} {path}: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise ScoringError(f"{what} {path}: byte {error.start} is not UTF-8; convert the file first") from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_generation(lines: Sequence[str], where: str) -> Dict[str, Dict[int, str]]:
    """Sort the lines of ``fairseq-generate`` by kind: ``{"H": {id: text}, "D": ..., "T": ...}``.

    ``H`` is the hypothesis, ``D`` the same with BPE and tokenisation undone, ``T`` the reference. Raises
    :class:`ScoringError` for an id that occurs twice within one kind.
    """
    found: Dict[str, Dict[int, str]] = {"H": {}, "D": {}, "T": {}}
    for number, line in enumerate(lines, start=1):
        match = OUTPUT_LINE.fullmatch(line)
        if match is None:
            continue
        kind, index, text = match.group(1), int(match.group(2)), match.group(3)
        if kind != "T":
            _score, separator, text = text.partition("\t")
            if not separator:
                raise ScoringError(f"{where}: line {number} has no text column: {line!r}; generate it again")
        if index in found[kind]:
            raise ScoringError(
                f"{where}: line {number}: sentence {index} has a second {kind}- line; generate with --nbest 1 and "
                "do not append one run's output to another's"
            )
        found[kind][index] = text
    return found


def in_order(texts: Dict[int, str], expected: int, where: str, kind: str) -> List[str]:
    """Return the ``expected`` texts in order of id; raise :class:`ScoringError` for any other number of them."""
    missing = [index for index in range(expected) if index not in texts]
    surplus = sorted(index for index in texts if index >= expected)
    if missing or surplus:
        details = [f"{len(missing)} missing (first: {missing[0]})"] if missing else []
        details += [f"{len(surplus)} beyond the last id {expected - 1} (first: {surplus[0]})"] if surplus else []
        raise ScoringError(
            f"{where}: {len(texts)} {kind}- lines found, --expect says {expected}: {', '.join(details)}; let the "
            "generation run to its end over the whole test set (with --required-batch-size-multiple 1)"
        )
    return [texts[index] for index in range(expected)]


def split_compounds(line: str) -> str:
    """Return ``line`` with ``X-Y`` inside a token turned into ``X ##AT##-##AT## Y``.

    The customary rule ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` works on bytes and its matches do not overlap:
    in ``a-b-c`` the ``b`` is used up by the first match, so that only the first hyphen is split.
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
    """Return corpus BLEU of plain (detokenised) text and its signature; the tokeniser follows ``target_lang``."""
    metric = BLEU(trg_lang=target_lang)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return score.score, str(metric.get_signature())


def detokenize(lines: Sequence[str], language: str) -> List[str]:
    """Return ``lines`` with Moses tokenisation undone by sacremoses."""
    try:
        from sacremoses import MosesDetokenizer
    except ImportError as error:
        raise ScoringError("--detokenize needs sacremoses: pip install 'fairseq_mega[translation]'") from error
    moses = MosesDetokenizer(lang=language)
    return [moses.detokenize(line.split()) for line in lines]


def cached_test_set(name: str, source_lang: str, target_lang: str) -> Optional[List[str]]:
    """Return the reference of sacreBLEU's test set ``name`` where it lies on this machine, else ``None``.

    Nothing is downloaded. Raises :class:`ScoringError` for a name or language pair that sacreBLEU does not know.
    """
    pair = f"{source_lang}-{target_lang}"
    if name not in DATASETS:
        raise ScoringError(f"--sacrebleu-test-set {name}: unknown to sacreBLEU; `sacrebleu --list` prints the names")
    dataset: Any = DATASETS[name]
    if pair not in dataset.langpairs:
        raise ScoringError(f"--sacrebleu-test-set {name} has no pair {pair}; it has {', '.join(dataset.langpairs)}")
    # FakeSGMLDataset and friends keep one text file per field: <cache>/<name>/<name>.<pair>.<field>
    for path in (dataset._get_txt_file_path(pair, "ref"), dataset._get_txt_file_path(pair, "ref:0")):
        if Path(path).is_file() and Path(path).stat().st_size > 0:
            return read_lines(path, "sacreBLEU reference")
    return None


def show_examples(count: int, hypotheses: Sequence[str], references: Sequence[str], sources: Optional[Sequence[str]]):
    """Print ``count`` translations, spread evenly over the test set, beside source and reference."""
    count = min(count, len(hypotheses))
    for number in range(count):
        index = number * len(hypotheses) // count
        print(f"\n[{index + 1}]")
        if sources is not None:
            print(f"  source:      {sources[index]}")
        print(f"  translation: {hypotheses[index]}")
        print(f"  reference:   {references[index]}")
    print(flush=True)


def expect_lines(lines: Sequence[str], expected: int, option: str, path: str) -> List[str]:
    """Return ``lines`` if there are ``expected`` of them, else raise :class:`ScoringError`."""
    if len(lines) != expected:
        raise ScoringError(f"{option} {path} has {len(lines)} lines, --expect says {expected}; give matching files")
    return list(lines)


def score(args: argparse.Namespace) -> Dict[str, Any]:
    """Score as the options say, print the report and return scores, signatures and counts."""
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
            raise ScoringError("--sacrebleu-test-set needs --source-lang to name the language pair")
        official = cached_test_set(args.sacrebleu_test_set, args.source_lang, args.target_lang)
        if official is None:
            print(f"sacreBLEU's {args.sacrebleu_test_set} is not on this machine: scoring against {reference_name}")
        else:
            references = expect_lines(official, args.expect, "--sacrebleu-test-set", args.sacrebleu_test_set)
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


def parse_settings(pairs: Sequence[str]) -> Dict[str, str]:
    """Return ``["direction=en-de", ...]`` as a dictionary; raises :class:`ScoringError` for a malformed pair."""
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ScoringError(f"--setting {pair!r}: write it as NAME=VALUE")
        settings[key] = value
    return settings


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="translations", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("output", help="file with the standard output of fairseq-generate (H-, D- and T- lines)")
    parser.add_argument("--reference", required=True, metavar="FILE", help="plain reference text, one sentence a line")
    parser.add_argument("--source", metavar="FILE", help="plain source text, shown with the examples")
    parser.add_argument("--target-lang", required=True, metavar="LANG")
    parser.add_argument("--source-lang", metavar="LANG", help="needed with --sacrebleu-test-set")
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
        help="what tells this run from others, recorded in the JSON result; may be repeated",
    )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    args = build_parser().parse_args(argv)
    try:
        settings = parse_settings(args.setting)
        report = score(args)
        if args.json:
            command = args.command or shlex.join(
                ["python", "-m", "fairseq_mega.reports.translations", *(sys.argv[1:] if argv is None else argv)]
            )
            scores = report.pop("scores")
            write_result(
                args.json,
                make_result(
                    args.benchmark,
                    args.label,
                    scores,
                    args.expect,
                    command,
                    seed=args.seed,
                    settings=settings,
                    **report,
                ),
            )
            print(f"result written to {args.json}")
    except (ScoringError, OSError) as error:
        print(f"translations: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
