"""Scores of fairseq-generate's output: order, counts, compound splitting, the result file."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from fairseq_mega.lab.evaluate import translations
from fairseq_mega.lab.evaluate.translations import compound_split_bleu, detokenize, sacre_bleu, split_compounds
from fairseq_mega.lab.report import command
from fairseq_mega.lab.runs import results

REFERENCES = [f"das ist Satz Nummer {number} von elf kurzen Sätzen ." for number in range(11)]


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def generation(hypotheses: Dict[int, str], detokenized: bool = True) -> List[str]:
    """Output of fairseq-generate: sentences in a shuffled order, other lines in between."""
    lines = ["2030-01-01 | INFO | loading"]
    order = list(hypotheses)
    random.Random(3).shuffle(order)
    for index in order:
        lines += [f"S-{index}\tsource", f"T-{index}\t{REFERENCES[index % len(REFERENCES)]}"]
        lines.append(f"H-{index}\t-0.25\t{hypotheses[index]}")
        if detokenized:
            lines.append(f"D-{index}\t-0.25\t{hypotheses[index]}")
        lines.append(f"P-{index}\t-0.1 -0.4")
    return [*lines, "Generate test with beam=5: BLEU4 = 1.00"]


def run(tmp_path: Path, lines: Sequence[str], *options: str, expect: int = 11, references: Any = REFERENCES) -> int:
    output = write_lines(tmp_path / "generate.txt", lines)
    reference = write_lines(tmp_path / "reference.de", references)
    given = [str(output), "--reference", str(reference), "--target-lang", "de", "--expect", str(expect), *options]
    return command.main(["translations", *given])


@pytest.mark.parametrize("detokenized", [True, False])
def test_hypotheses_are_scored_in_order_of_their_ids(tmp_path: Path, capsys: Any, detokenized: bool) -> None:
    """Lines end at line feeds alone, and a byte-order mark is no part of the first."""
    references = [f"\ufeff{REFERENCES[0]}", "ein\u2028Satz mit\x85vielen seltenen Zeichen .", *REFERENCES[2:]]
    found = {**dict(enumerate(REFERENCES)), 1: references[1]}
    assert run(tmp_path, generation(found, detokenized), references=references) == 0
    printed = capsys.readouterr().out
    assert "sentences scored: 11 of 11" in printed
    assert "sacreBLEU = 100.00   nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in printed
    found[2], found[3] = found[3], found[2]
    assert run(tmp_path, generation(found, detokenized), references=references) == 0
    assert "sacreBLEU = 100.00" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ids", "more", "references", "expect"),
    [
        (range(8), "", 11, 11),  # the last are missing
        ([*range(4), *range(5, 12)], "", 11, 11),
        (range(11), "", 10, 10),  # one too many
        (range(11), "", 10, 11),  # of the references one is missing
        (range(11), "H-4\t-0.5\tnoch einmal", 11, 11),
        (range(11), "D-4\t-0.5\tnoch einmal", 11, 11),
    ],
)
def test_sentences_are_neither_repeated_nor_omitted(
    tmp_path: Path, capsys: Any, ids: Sequence[int], more: str, references: int, expect: int
) -> None:
    result = tmp_path / "result.json"
    lines = [*generation(dict.fromkeys(ids, "ja .")), more]
    assert run(tmp_path, lines, "--json", str(result), expect=expect, references=REFERENCES[:references]) == 1
    assert "error" in capsys.readouterr().err and not result.exists()


def test_empty_hypotheses_count_as_sentences_and_are_reported(tmp_path: Path, capsys: Any) -> None:
    hypotheses = dict(enumerate(REFERENCES))
    hypotheses[5] = ""
    assert run(tmp_path, generation(hypotheses)) == 0
    printed = capsys.readouterr().out
    assert "warning: 1 of 11 hypotheses are empty" in printed
    assert "sentences scored: 11 of 11" in printed


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("a state-of-the-art test", "a state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art test"),
        # Matches do not overlap: b is used up by the first one.
        ("a-b-c-d", "a ##AT##-##AT## b-c ##AT##-##AT## d"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("ab - cd -ef gh-", "ab - cd -ef gh-"),
        # On bytes the second half of a two-byte letter is free for the next match.
        ("a-é-c", "a ##AT##-##AT## é ##AT##-##AT## c"),
    ],
)
def test_compounds_split_as_worked_out_by_hand(line: str, split: str) -> None:
    assert split_compounds(line) == split


def test_compounds_split_as_perl_does() -> None:
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("perl is not installed: the rule is checked on worked examples only")
    draw = random.Random(1)
    letters = ["a", "b", "-", "-", "é", "漢", "\u00a0", " ", "\x0b", "\x85", "\u2028", "–"]
    lines = ["".join(draw.choice(letters) for _ in range(draw.randrange(14))) for _ in range(2000)]
    rule = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"
    text = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run([perl, "-pe", rule], input=text, capture_output=True, check=True).stdout.decode()
    assert [split_compounds(line) for line in lines] == done.split("\n")[:-1]


def test_tokenised_bleu_of_a_hand_worked_pair() -> None:
    # 7 tokens each after splitting; 6 of 7 words, 4 of 6 pairs, 3 of 5 triples, 2 of 4 quadruples agree.
    score, signature = compound_split_bleu(["ein EU-Bericht kam an ."], ["ein EU-Bericht kam heute ."])
    assert score == pytest.approx(100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25, abs=1e-9)
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:")


def test_the_tokeniser_follows_the_target_language() -> None:
    for code in ("zh", "zh_CN", "zh-Hans"):
        assert "tok:zh" in sacre_bleu(["你好 世界"], ["你好 世界"], code)[1]
    for codes, text in {"fr fr_FR fr-CA FR": "C' est l' hiver .", "en en_GB": "We know the man 's name ."}.items():
        assert len({detokenize([text], code)[0] for code in codes.split()} - {text}) == 1


def test_the_result_file_holds_everything_needed_to_repeat_the_measurement(tmp_path: Path) -> None:
    path = tmp_path / "results" / "one.json"
    options = ["--compound-split", "--json", str(path), "--label", "tiny", "--seed", "11", "--command", "bash run.sh"]
    options += ["--benchmark", "test", "--setting", "direction=en-de"]
    assert run(tmp_path, generation(dict(enumerate(REFERENCES))), *options) == 0
    result = results.read_result(path)
    assert result["scores"] == {"sacrebleu": pytest.approx(100), "tokenized_bleu": pytest.approx(100)}
    assert (result["examples"], result["seed"], result["command"]) == (11, 11, "bash run.sh")
    assert result["settings"] == {"direction": "en-de"} and result["reference"] == "reference.de"
    assert set(result["signatures"]) == set(result["scores"])
    assert {"python", "torch", "sacrebleu", "fairseq_mega"} <= set(result["versions"])
    assert result["hardware"]["cores"] >= 1
    assert [item["label"] for item in results.read_results(path.parent, "test")] == ["tiny"]


@pytest.mark.parametrize(
    "change", [{"examples": 0}, {"scores": {}}, {"scores": {"bleu": float("nan")}}, {"schema": 99}, {"command": None}]
)
def test_incomplete_results_are_refused(tmp_path: Path, change: Dict[str, Any]) -> None:
    result = {**results.make_result("test", "x", {"bleu": 1.0}, 3, "command"), **change}
    path = tmp_path / "x.json"
    with pytest.raises(results.ResultError):
        results.write_result(path, result)
    assert list(tmp_path.iterdir()) == []
    path.write_text(json.dumps(result))
    with pytest.raises(results.ResultError):
        results.read_result(path)


def test_the_official_test_set_is_used_where_it_lies_and_its_absence_is_said(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = translations.DATASETS["wmt14/full"]
    monkeypatch.setattr(dataset, "_outdir", str(tmp_path / "cache"))
    lines = generation(dict(enumerate(REFERENCES)))
    options = ["--sacrebleu-test-set", "wmt14/full", "--source-lang", "en"]
    assert run(tmp_path, lines, *options) == 0
    assert "wmt14/full is not on this machine; using reference.de" in capsys.readouterr().out

    official = Path(dataset._get_txt_file_path("en-de", "ref"))
    assert tmp_path in official.parents
    official.parent.mkdir(parents=True, exist_ok=True)
    write_lines(official, REFERENCES)
    wrong = ["etwas ganz anderes"] * 11
    assert run(tmp_path, lines, *options, references=wrong) == 0
    assert "sacreBLEU = 100.00" in capsys.readouterr().out
