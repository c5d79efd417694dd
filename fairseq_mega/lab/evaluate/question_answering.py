"""Answer questions about long documents with a language model, and score the answers.

    fairseq-mega-qa narrative_qa --questions narrative_qa/validation.jsonl --path CHECKPOINT --data DATA --output FILE
    fairseq-mega-qa qasper --questions qasper/validation.jsonl --examples qasper/train.jsonl ...
    fairseq-mega-qa qmsum --questions qmsum/validation.jsonl --examples qmsum/train.jsonl ...

The data sets are SCROLLS's (tau/scrolls), as .jsonl files that you provide. The model reads DOCUMENT, "Q: QUESTION" and
"A:", a line each, and decodes greedily to the end of the line. With --shots N, N answered questions from --examples
come first. A document is read chunk by chunk, in constant memory, and is never shortened. NarrativeQA and Qasper are
scored by the F1 of words, QMSum by the geometric mean of ROUGE-1, 2 and L, against the best of the references, in
percent. The scores are written to --output as JSON, and each answer at once to a file beside it: the same command
continues an interrupted run.

The tasks scrolls_* of lm-evaluation-harness give other scores: they ask with "Question:" and "Answer:" behind an empty
line, join all references in a worked example, and load metrics and data from a hub.
"""

import argparse
import json
import math
import random
import re
import shlex
import string
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.runs.files import add_json_line, read_json_lines
from fairseq_mega.lab.runs.results import make_result, write_result

PROGRAM = "fairseq-mega-qa"
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
NOT_ROUGE = re.compile(r"[^a-z0-9]+")
ROUGE = ("rouge1", "rouge2", "rougeL")


class DataSet(NamedTuple):
    """Metric and limits of the answers to a data set of SCROLLS."""

    metric: str  # a key of METRICS
    shots: int  # of MEGALODON's table
    answer_tokens: int  # at most


DATA_SETS: Dict[str, DataSet] = {
    "narrative_qa": DataSet("f1", 0, 64),
    "qasper": DataSet("f1", 2, 128),
    "qmsum": DataSet("rouge", 1, 256),
}


class Question(NamedTuple):
    """A question about a document."""

    number: str  # its id in SCROLLS
    document: str
    text: str
    answer: str


def questions_of(path: Path) -> Iterator[Question]:
    """Yield the questions of a file one by one: it has a document once for every question, gigabytes.

    A line is a JSON object with ``id``, ``input`` (the question, an empty line, the document) and ``output``; lines
    with the same id are the references of one question.
    """
    with path.open(encoding="utf-8") as file:
        for line in filter(str.strip, file):
            item = json.loads(line)
            text, _, document = item["input"].replace("\r\n", "\n").partition("\n\n")
            yield Question(item["id"], document.strip(), text.strip(), item["output"].strip())


def prompt_of(question: Question, shots: Sequence[Question], one_line: bool) -> str:
    """Return the text that an answer continues.

    ``shots`` come first, each as document, question and answer, then the document and the question without it::

        DOCUMENT
        Q: QUESTION
        A: ANSWER

        DOCUMENT
        Q: QUESTION
        A:

    Args:
        question: the question to answer.
        shots: questions with their answers.
        one_line: whether the prompt is one line, for models that treat a line as a document.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 4.3: the document, "Q:", the question, "A:".
    """
    worked = [f"{shot.document}\nQ: {shot.text}\nA: {shot.answer}" for shot in shots]
    whole = "\n\n".join([*worked, f"{question.document}\nQ: {question.text}\nA:"])
    return " ".join(whole.split()) if one_line else whole


def draw_shots(examples: Sequence[Question], count: int, seed: int, question: Question) -> List[Question]:
    """Draw ``count`` examples for a question, not the question itself: the same in each call, others per question."""
    others = [one for one in examples if (one.text, one.document) != (question.text, question.document)]
    return random.Random(f"{seed} {question.number}").sample(others, count)


def harmonic(common: float, answered: int, expected: int) -> float:
    """Return the F1 of ``common`` units in an answer of ``answered`` and a reference of ``expected``; 0 without common
    units.
    """
    return 2 * common / (answered + expected) if common else 0.0


def overlap(answer: Iterable[Hashable], reference: Iterable[Hashable]) -> float:
    """Return the F1 of two bags."""
    found, expected = Counter(answer), Counter(reference)
    return harmonic((found & expected).total(), found.total(), expected.total())


def f1(answer: str, reference: str) -> Dict[str, float]:
    """Return the F1 of the words, without case, punctuation and articles; 0 if no word is common.

    Source: SQuAD (Rajpurkar et al., 2016), for the words; SCROLLS, section 3.
    """
    words = (ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split() for text in (answer, reference))
    return {"f1": overlap(*words)}


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for place, other in enumerate(second, start=1):
            above = row[place]
            row[place] = diagonal + 1 if word == other else max(above, row[place - 1])
            diagonal = above
    return row[-1]


def rouge(answer: str, reference: str) -> Dict[str, float]:
    """Return the F1 of words, of pairs of words, and of the longest common subsequence, without stemming.

    Source: Lin, 2004.
    """
    found, expected = (NOT_ROUGE.sub(" ", text.lower()).split() for text in (answer, reference))
    return {
        "rouge1": overlap(found, expected),
        "rouge2": overlap(zip(found, found[1:]), zip(expected, expected[1:])),
        "rougeL": harmonic(common_subsequence(found, expected), len(found), len(expected)),
    }


METRICS: Dict[str, Callable[[str, str], Dict[str, float]]] = {"f1": f1, "rouge": rouge}


def score(metric: str, answers: Sequence[str], references: Sequence[Sequence[str]]) -> Dict[str, float]:
    """Return mean scores in percent, each answer against its best reference, and for ROUGE the geometric mean of the
    three.

    Args:
        metric: a key of METRICS.
        answers: n, at least one.
        references: one or more for each.
    """
    best = []
    for answer, expected in zip(answers, references):
        each = [METRICS[metric](answer, reference) for reference in expected]
        best.append({name: max(one[name] for one in each) for name in each[0]})
    means = {name: 100 * math.fsum(one[name] for one in best) / len(best) for name in best[0]}
    if metric == "rouge":
        means["geometric_mean"] = math.prod(means[name] for name in ROUGE) ** (1 / len(ROUGE))
    return means


def read_answers(path: Path, settings: Dict[str, Any]) -> Dict[str, str]:
    """Return the answers of an interrupted run by the id of their question.

    Raises:
        ValueError: if the first line of the file has other settings.
    """
    before, *found = read_json_lines(path) or [settings]
    if before != settings:
        raise ValueError(f"{path} was begun with other settings, {before}: remove it, or give another --output")
    return {item["id"]: item["answer"] for item in found}


def answer_rest(
    args: argparse.Namespace, file: Path, settings: Dict[str, Any], selected: Set[str], answers: Dict[str, str]
) -> None:
    """Answer the selected questions without an answer, greedily up to the end of the line.

    Each answer is added to ``answers`` and at once to the file, whose first line has the settings.
    """
    import torch  # torch and fairseq need seconds

    from fairseq_mega.compat.features import precision
    from fairseq_mega.models.mega_lm import MegaLanguageModel

    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    folder, name = str(args.path.parent), args.path.name
    generator = MegaLanguageModel.from_pretrained(folder, name, str(args.data.resolve())).to(device).eval()
    examples = list(questions_of(args.examples)) if args.shots else []
    resets = any(model.decoder.document_token is not None for model in generator.models)
    one_line = resets and generator.parts_lines  # for models that treat a line as a document
    with precision.evaluating(args.precision, device.type):
        for question in questions_of(args.questions):
            if question.number in selected and question.number not in answers:
                prompt = prompt_of(question, draw_shots(examples, args.shots, args.seed, question), one_line)
                text = generator.complete(prompt, args.answer_tokens, stop_at_line_end=True, temperature=0.0).strip()
                answers[question.number] = text
                if not file.exists():
                    add_json_line(file, settings)
                add_json_line(file, {"id": question.number, "answer": text})
                print(f"{len(answers)} questions answered", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    add = parser.add_argument
    add("data_set", choices=list(DATA_SETS), help="data set, which determines prompt and score")
    add("--questions", type=Path, required=True, metavar="FILE", help="questions: validation.jsonl of SCROLLS")
    add("--examples", type=Path, metavar="FILE", help="answered questions for --shots: train.jsonl of SCROLLS")
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help="checkpoint of a language model of this package")
    add("--data", type=Path, required=True, help="data folder of the training, for the dictionary")
    add("--output", type=Path, required=True, metavar="FILE", help="result file to write (JSON)")
    shots = ", ".join(f"{name} {data_set.shots}" for name, data_set in DATA_SETS.items())
    shots = f"number of answered questions in front (default: the paper's, {shots})"
    add("--shots", type=int, choices=[0, 1, 2], help=shots)
    lengths = ", ".join(f"{name} {data_set.answer_tokens}" for name, data_set in DATA_SETS.items())
    add("--answer-tokens", type=int, metavar="N", help=f"maximum tokens of an answer (default: {lengths})")
    add("--seed", type=int, default=1, help="seed that draws the --shots (default: %(default)s)")
    add("--limit", type=int, metavar="N", help="use the first N questions only")
    add("--label", help="name of the model in the result (default: the file name of --path)")
    add("--cpu", action="store_true", help="use no GPU")
    add("--precision", default="fp32", help="as of fairseq-mega-train (default: %(default)s)")
    return parser


def run(args: argparse.Namespace, command: str) -> None:
    """Answer the questions, score, write the result and print its scores; raise OSError and ValueError."""
    metric, shots, answer_tokens = DATA_SETS[args.data_set]
    args.shots = shots if args.shots is None else args.shots
    args.answer_tokens = answer_tokens if args.answer_tokens is None else args.answer_tokens
    files = {"checkpoint": args.path, "questions": args.questions, "examples": args.examples}
    settings = {name: getattr(args, name) for name in ("data_set", "shots", "answer_tokens", "seed", "precision")}
    settings.update({f"{name}_sha256": sha256_of(file) for name, file in files.items() if file is not None})
    references: Dict[str, List[str]] = {}
    for question in questions_of(args.questions):
        references.setdefault(question.number, []).append(question.answer)
    selected = list(references)[: args.limit]
    kept = args.output.with_suffix(".answers.jsonl")
    answers = read_answers(kept, settings)
    if not answers.keys() >= set(selected):
        answer_rest(args, kept, settings, set(selected), answers)
    scores = score(metric, [answers[number] for number in selected], [references[number] for number in selected])
    label = args.label or args.path.stem
    result = make_result("question-answering", label, scores, len(selected), command, args.seed, settings)
    write_result(args.output, result)
    print(", ".join(f"{name} {value:.2f}" for name, value in scores.items()), f"({len(selected)} questions)")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = sys.argv[1:] if argv is None else list(argv)
    args = build_parser().parse_args(given)
    return exit_status(PROGRAM, lambda: run(args, shlex.join([PROGRAM, *given])))


if __name__ == "__main__":
    sys.exit(main())
