"""Options of fairseq's task of translation: alignments, weights of training sets, and BLEU by the target's language."""

import argparse
import ast
import inspect
import logging
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import fairseq.options
import pytest
from fairseq import scoring
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask
from fairseq_cli import generate
from sacrebleu.metrics import BLEU

from fairseq_mega.compat.patches import translating
from fairseq_mega.lab.evaluate.bleu import sacre_bleu
from tests.support import helpers

REFERENCES = {
    "zh": "今天早上老师在图书馆找到一本旧书。",
    "th": "วันนี้ครูพบหนังสือเก่าในห้องสมุด",
    "de": "Heute fand sie ein Buch.",
}
TRANSLATIONS = {
    "zh": "今天早上老师在图书馆找到一本新书。",
    "th": "วันนี้ครูพบหนังสือในห้องสมุด",
    "de": "Heute fand sie ein Buch!",
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("code", ["zh", "zh_CN", "th", "de"])
def test_sacrebleu_is_that_of_the_language(code: str, named: bool, tmp_path: Path) -> None:
    """A language that is named decides, and else the folder's."""
    (tmp_path / f"test.en-{code}.en.bin").touch()
    words = [str(tmp_path), "--path", "x", "--scoring", "sacrebleu", "--task", "translation"]
    words += ["--source-lang", "en", "--target-lang", code] if named else []
    parsed = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), words)
    scorer = scoring.build_scorer(convert_namespace_to_omegaconf(parsed).scoring, None)
    scorer.add_string(REFERENCES[code[:2]], TRANSLATIONS[code[:2]])
    wanted, _ = sacre_bleu([TRANSLATIONS[code[:2]]], [REFERENCES[code[:2]]], code)
    assert scorer.score() == pytest.approx(wanted) and 20 < wanted < 100


@pytest.mark.parametrize("name, warned", [("bleu", True), ("sacrebleu", False), ("chrf", False)])
def test_fairseq_warns_of_its_own_bleu_alone(
    name: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And its warnings name an option that fairseq-generate has."""
    words = [str(tmp_path), "--path", "x", "--scoring", name, "--task", "translation"]
    words += ["--source-lang", "en", "--target-lang", "de"]
    parsed = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), words)
    assert convert_namespace_to_omegaconf(parsed).generation.sacrebleu is not warned  # read for these warnings alone
    tree = ast.walk(ast.parse(inspect.getsource(generate)))
    texts = [part.value for part in tree if isinstance(part, ast.Constant) and "--sacrebleu" in str(part.value)]
    for text in texts:
        logging.getLogger("fairseq_cli.generate").warning(text)
    assert len(texts) == len(caplog.messages) == 2
    assert all("Use --scoring sacrebleu" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("code", "script", "options", "tokenizer"),
    [
        ("zh", "zh", [], "zh"),
        ("th", "th", [], "char"),
        ("de", "de", [], "13a"),
        ("tgt", "zh", [], "zh"),
        ("tgt", "th", [], "char"),
        ("tgt", "de", [], "13a"),
        ("tw", "zh", [], "zh"),
        ("tw", "de", [], "13a"),  # in Twi, say
        ("zho_Latn", "de", [], "13a"),
        ("zh", "zh", ["--sacrebleu-tokenizer", "13a"], "13a"),
        ("tgt", "zh", ["--sacrebleu-tokenizer=13a"], "13a"),
        ("tgt", "zh", ["--sacrebleu-lowercase"], "zh"),
        ("tgt", "zh", ["--sacrebleu-char-level"], "char"),
    ],
)
def test_the_references_decide(code: str, script: str, options: List[str], tokenizer: str) -> None:
    """The script of the references decides if neither an option nor the code of the language says how text is cut."""
    words = ["x", "--path", "x", "--scoring", "sacrebleu", "--task", "translation"]
    words += ["--source-lang", "src", "--target-lang", code, *options]
    parsed = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), words)
    scorer = scoring.build_scorer(convert_namespace_to_omegaconf(parsed).scoring, None)
    scorer.add_string(REFERENCES[script], TRANSLATIONS[script])
    scorer.add_string("12", "12")
    metric = BLEU(tokenize=tokenizer, lowercase="--sacrebleu-lowercase" in options)
    wanted = metric.corpus_score([TRANSLATIONS[script], "12"], [[REFERENCES[script], "12"]]).score
    assert scorer.score() == scorer.score() == pytest.approx(wanted) and "BLEU" in scorer.result_string()


@pytest.mark.parametrize("tokenized", [False, True])
@pytest.mark.parametrize("languages", ["zh zh", "th th", "de de", "tgt zh", "tgt th", "tgt de", "tw zh"])
def test_bleu_of_a_validation_is_that_of_the_language(languages: str, tokenized: bool) -> None:
    """Or of the script of the sentences to validate with, whatever is in a batch."""
    import sacrebleu

    code, script = languages.split()

    def score(self: Any) -> Any:
        return sacrebleu.corpus_bleu(
            [TRANSLATIONS[script]], [[REFERENCES[script]]], **({"tokenize": "none"} if tokenized else {})
        )

    before = sacrebleu.corpus_bleu
    cfg = argparse.Namespace(target_lang=code, eval_tokenized_bleu=tokenized, eval_bleu_remove_bpe=None)
    words = argparse.Namespace(string=lambda sentence, way: sentence)
    datasets = {"train": argparse.Namespace(tgt=["a b c"] * 9), "valid": argparse.Namespace(tgt=[REFERENCES[script]])}
    task = argparse.Namespace(cfg=cfg, datasets=datasets, target_dictionary=words)
    found = translating._score_in_language(score, task).score
    wanted = score(None).score if tokenized else sacre_bleu([TRANSLATIONS[script]], [REFERENCES[script]], code)[0]
    assert found == pytest.approx(wanted, abs=1e-6) and sacrebleu.corpus_bleu is before
    assert hasattr(TranslationTask._inference_with_bleu, "wrappers_of_fairseq_mega")


def folder_of(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("files", "pairs"),
    [
        (["dict.en.txt", "train.en-de.en.bin", "train.en-de.de.bin", "valid.en-de.de.idx"], [("en", "de")]),
        (["train.en-de.en.bin", "train.en-fr.en.bin"], [("en", "de"), ("en", "fr")]),
        (["train.en-de.en", "test.de-en.en"], [("de", "en"), ("en", "de")]),
        (["dict.zh-Hans.txt", "train.en-zh-Hans.en.bin", "train.en-zh-Hans.zh-Hans.bin"], [("en", "zh-Hans")]),
        (["dict.zh-Hans.txt", "train.zh-Hans-ja.ja.bin"], [("zh-Hans", "ja")]),
        (["train.align.en-de.bin", "train.en-de.de.bin", "test.en-None.en.bin"], [("en", "de")]),
        (["test.en-None.en.bin"], [("en", "None")]),
        (["dict.txt", "train.bin", "preprocess.log", "a.b-c.d"], []),
    ],
)
def test_pairs_of_a_folder(files: List[str], pairs: List[Tuple[str, str]], tmp_path: Path) -> None:
    """One pair is taken, whatever else lies there; of several, none is."""
    folder = folder_of(tmp_path, *files)
    assert translating.pairs_of(str(folder)) == pairs
    if len(pairs) > 1:
        with pytest.raises(ValueError, match=f"has data of {'-'.join(pairs[0])} and {'-'.join(pairs[1])}: give --so"):
            data_utils.infer_language_pair(str(folder))
    else:
        assert tuple(data_utils.infer_language_pair(str(folder))) == (pairs[0] if pairs else (None, None))


COMMANDS: Dict[str, Callable[[], argparse.ArgumentParser]] = {
    "train": fairseq.options.get_training_parser,
    "generate": fairseq.options.get_generation_parser,
    "interactive": fairseq.options.get_interactive_generation_parser,
}


NAMED: Dict[str, List[str]] = {
    "by one pair": ["--task", "translation", "--source-lang", "en", "--target-lang", "fr"],
    "by several": ["--task", "translation_multi_simple_epoch", "--lang-pairs", "en-de,en-fr"],
    "": ["--task", "translation"],
}


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_several_pairs(
    command: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that reads pairs asks which of them, before it reads anything; a training may read several."""
    folder = folder_of(tmp_path, "train.en-de.en.bin", "train.en-fr.en.bin", "dict.en.txt")
    words = [str(folder), *NAMED[named], *(["--arch", "transformer_tiny"] if command == "train" else ["--path", "x"])]
    if named == "by one pair" or (named and command == "train"):
        parsed = fairseq.options.parse_args_and_arch(COMMANDS[command](), words)
        assert parsed.target_lang == ("fr" if named == "by one pair" else None)
        return
    with pytest.raises((SystemExit, ValueError)) as refused:
        fairseq.options.parse_args_and_arch(COMMANDS[command](), words)
    assert re.search(
        "(has data of en-de and en-fr|--task translation_multi_simple_epoch): give --source-lang and --target-lang",
        capsys.readouterr().err + str(refused.value),
    )


@pytest.mark.parametrize(("words", "bleu"), [((0, 0), 0.0), ((4, 0), 36.79), ((4, 4), 100.0), ((), None)])
def test_a_validation_without_words_has_bleu_0(words: Sequence[int], bleu: Optional[float]) -> None:
    """Empty translations, as after the first updates, have BLEU 0; updates themselves have no BLEU."""
    task: Any = TranslationTask.__new__(TranslationTask)
    task.cfg = argparse.Namespace(eval_bleu=True)
    with metrics.aggregate() as found:
        for right in words or (None,):
            log: Dict[str, Any] = {"loss": 1.0, "ntokens": 4, "nsentences": 1, "sample_size": 4}
            if right is not None:  # words of a translation, all of them right, beside a reference of four
                orders = {f"_bleu_{kind}_{n}": max(right - n, 0) for kind in ("counts", "totals") for n in range(4)}
                log.update(orders, _bleu_sys_len=right, _bleu_ref_len=4)
            task.reduce_metrics([log], CrossEntropyCriterion.__new__(CrossEntropyCriterion))
    assert found.get_smoothed_values().get("bleu") == bleu  # 100 / e where one of two is empty


def with_second_part(corpus: Path, folder: Path) -> Path:
    """The data with another training set, train1, of the validation pairs."""
    shutil.copytree(corpus, folder)
    for path in list(folder.glob("valid.*")):
        shutil.copyfile(path, folder / path.name.replace("valid.", "train1.", 1))
    return folder


@pytest.mark.parametrize(("weight", "times"), [([], 1), (["--upsample-primary", 1], 1), (["--upsample-primary", 3], 3)])
def test_a_second_training_set_is_read(weight: List[object], times: int, tiny_corpus: Path, tmp_path: Path) -> None:
    """Whole and once, beside the first, which the option repeats."""
    data = with_second_part(tiny_corpus, tmp_path / "data")
    given = [data, *helpers.TINY_TRAINING, "--cpu", "--max-epoch", 1, "--save-dir", tmp_path / "a", "--no-save"]
    output = helpers.run_fairseq("train", [*given, *weight])
    sizes = [int(number) for number in re.findall(r" (\d+) examples\n", output)]
    names = re.findall(r"data (\w+) en-de \d+ examples", output)
    first, second = (sizes[-len(names) :][names.index(name)] for name in ("train", "train1"))
    pairs = re.findall(r'"train_bsz": "([\d.]+)".*?"train_num_updates": "(\d+)"', output)[-1]
    assert float(pairs[0]) * int(pairs[1]) == pytest.approx(times * first + second, rel=0.01)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_alignments_that_are_not_there(
    split: str, tiny_corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Refuse to train without them; warn where a validation is without."""
    words = [str(tiny_corpus), "--task", "translation", "--load-alignments", "--arch", "transformer_tiny"]
    words += ["--criterion", "label_smoothed_cross_entropy_with_alignment"]
    parsed = fairseq.options.parse_args_and_arch(fairseq.options.get_training_parser(), words)
    task = TranslationTask.setup_task(convert_namespace_to_omegaconf(parsed).task)
    if split == "train":
        with pytest.raises(ValueError, match=r"--load-alignments: .*train.align.en-de does not exist: give --align"):
            task.load_dataset(split, combine=True)
    else:
        with caplog.at_level("WARNING"):
            task.load_dataset(split)
        assert "valid.align.en-de does not exist" in caplog.text


DICTIONARIES = {
    "words": "house 5\nthe@@ 0\na 3\n",
    "subword_nmt": "ho@@ 5\nuse 4\na 30\n",
    "sentencepiece": "\u2581ho 5\nuse 4\n",
    "characters": "\u2581 9\nh 4\no 5\n",
}


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--path", "x", "--scoring", "sacrebleu"], "--post-process"),
        (["--path", "x"], "--post-process"),
        (["--path", "x", "--post-process", "letter"], "--post-process"),
        (["--path", "x", "--post-process", "OWN"], None),
        (["--path", "x", "--remove-bpe"], "--post-process but for subword_nmt"),
        (["--path", "x", "--bpe", "characters"], None),
        (["--arch", "transformer_tiny", "--eval-bleu"], "--eval-bleu-remove-bpe"),
        (["--arch", "transformer_tiny", "--eval-bleu", "--eval-bleu-remove-bpe", "OWN"], None),
        (
            ["--arch", "transformer_tiny", "--eval-bleu", "--eval-bleu-remove-bpe"],
            "--eval-bleu-remove-bpe but for subword_nmt",
        ),
        (["--arch", "transformer_tiny"], None),
    ],
)
@pytest.mark.parametrize("kind", DICTIONARIES)
def test_bleu_of_pieces(
    kind: str, words: List[str], remedy: Optional[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Warn where nothing joins the pieces of the data before they are scored; OWN stands for what does."""
    way = "subword_nmt" if kind == "subword_nmt" else "sentencepiece"
    words = [way if word == "OWN" else word for word in words]
    (tmp_path / "dict.src.txt").write_text("a 1\n")
    (tmp_path / "dict.tgt.txt").write_text(DICTIONARIES[kind])
    parser = COMMANDS["train" if "--arch" in words else "generate"]()
    given = [str(tmp_path), "--task", "translation", "--source-lang", "src", "--target-lang", "tgt", *words]
    if kind == "words" and "--path" in words and words[-1] in ("letter", "sentencepiece"):  # which lose all spaces
        with pytest.raises(SystemExit):
            fairseq.options.parse_args_and_arch(parser, given)
        return
    with caplog.at_level("WARNING"):
        fairseq.options.parse_args_and_arch(parser, given)
    warned = [message for message in caplog.messages if "are pieces" in message]
    option, _, exception = (remedy or "").partition(" but for ")
    if kind == "words" or not option or kind == exception:
        assert not warned
    else:
        assert len(warned) == 1
        assert f"{tmp_path / 'dict.tgt.txt'} are pieces, and BLEU counts pieces: give {option} {way}" in warned[0]


@pytest.mark.parametrize(
    ("words", "joins"),
    [
        ([], [*DICTIONARIES]),  # nothing is asked for
        (["--remove-bpe"], ["words", "subword_nmt"]),
        (["--remove-bpe", "@@ "], ["words", "subword_nmt"]),
        (["--post-process", "sentencepiece"], ["sentencepiece", "characters"]),
        (["--post-process", "_EOW"], []),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", DICTIONARIES)
@pytest.mark.parametrize("language_model", [False, True])
def test_lines_of_other_pieces(
    language_model: bool, kind: str, words: List[str], joins: List[str], tmp_path: Path, caplog: Any
) -> None:
    """Warn where interactive joins other pieces than those of the data."""
    file = tmp_path / ("dict.txt" if language_model else "dict.tgt.txt")
    file.write_text(DICTIONARIES[kind])
    given = [str(tmp_path), "--path", "x", *words]
    given += ["--task", "language_modeling"] if language_model else ["--source-lang", "src", "--target-lang", "tgt"]
    parser = fairseq.options.get_interactive_generation_parser()
    if kind == "words" and words[-1:] in (["sentencepiece"], ["_EOW"]):  # which lose all spaces
        with pytest.raises(SystemExit):
            fairseq.options.parse_args_and_arch(parser, given)
        return
    with caplog.at_level("WARNING"):
        fairseq.options.parse_args_and_arch(parser, given)
    warned = [message for message in caplog.messages if f"the words of {file} are pieces" in message]
    assert len(warned) == (kind not in joins)
    assert all("give --post-process s" in message for message in warned)


OF_LANGUAGE_MODELS = {
    **DICTIONARIES,
    "words": "house 5\nthe 0\na 3\n",
    "subword_nmt without counts": "ho@@ 0\nuse 0\na 0\n",
    "rarely cut": "ho@@ 1\nthe 5000\na 3000\n",
    "sentencepiece with @@": "\u2581ho 500\nuse 400\n\u2581@@ 1\n",
    "bytes": "".join(f"{byte} 1\n" for byte in range(256)),
    "none": "",  # of a task that reads texts
}
JOINED = ("subword_nmt", "subword_nmt without counts", "rarely cut")


@pytest.mark.parametrize("kind", OF_LANGUAGE_MODELS)
@pytest.mark.parametrize(
    ("words", "joins"),
    [
        ([], None),
        (["--remove-bpe"], True),
        (["--remove-bpe", "--output-word-probs"], True),
        (["--post-process", "subword_nmt"], True),
        (["--post-process"], True),
        (["--remove-bpe", "@@ "], True),
        (["--remove-bpe", "sentencepiece"], False),
        (["--post-process", "letter"], False),
        (["--post-process", "none"], False),
    ],
)
def test_perplexity_of_words(
    kind: str, words: List[str], joins: Optional[bool], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Refuse to join the words of a text whose perplexity would stay that of its pieces."""
    if OF_LANGUAGE_MODELS[kind]:
        (tmp_path / "dict.txt").write_text(OF_LANGUAGE_MODELS[kind], encoding="utf-8")
    given = [str(tmp_path), "--task", "language_modeling", "--path", "x", *words]
    if joins is None or (joins and kind in JOINED):
        fairseq.options.parse_args_and_arch(fairseq.options.get_eval_lm_parser(), given)
        return
    with pytest.raises(SystemExit):
        fairseq.options.parse_args_and_arch(fairseq.options.get_eval_lm_parser(), given)
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert "--post-process (--remove-bpe)" in error and "leave it out" in error
    assert ("give that" in error) is (kind in JOINED)


@pytest.mark.parametrize(
    ("language", "pieces", "words", "warned"),
    [
        ("zh", "\u2581ab 9\nc 9\n", ["--post-process", "sentencepiece"], True),  # by the code
        ("tgt", "\u2581\u4f60 9\n\u597d 9\n", ["--post-process", "sentencepiece"], True),  # by the script
        ("tgt", "\u2581\u0e2a\u0e27 9\n\u0e31\u0e2a 9\n", ["--bpe", "sentencepiece"], True),
        ("ja", "\u2581a 9\nb 9\n", ["--post-process", "sentencepiece", "--scoring", "sacrebleu"], False),
        ("ko", "\u2581\ud55c 9\n\uad6d 9\n", ["--post-process", "sentencepiece"], False),  # has spaces
        ("de", "\u2581ab 9\nc 9\n", ["--post-process", "sentencepiece"], False),
        ("zh", "\u4f60\u597d 9\n", [], False),  # words that somebody cut
    ],
)
def test_sentences_without_spaces_are_no_words(
    language: str, pieces: str, words: List[str], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dict.src.txt").write_text("a 1\n")
    (tmp_path / f"dict.{language}.txt").write_text(pieces, encoding="utf-8")
    pair = ["--source-lang", "src", "--target-lang", language]
    with caplog.at_level("WARNING"):
        fairseq.options.parse_args_and_arch(
            COMMANDS["generate"](), [str(tmp_path), "--task", "translation", *pair, "--path", "x", *words]
        )
    assert any("has no spaces: give --scoring sacrebleu" in message for message in caplog.messages) is warned


class Encoder:
    """Encoder of sentencepiece, as fairseq decodes its pieces."""

    text = "kept"

    def decode(self, text: str) -> str:
        return text.replace(" ", "").replace("\u2581", " ").strip()


@pytest.mark.parametrize("command", ["generate", "interactive"])
@pytest.mark.parametrize(
    ("options", "decoded"),
    [
        ([], "ab"),
        (["--post-process", "sentencepiece"], "a b"),
        (["--remove-bpe", "sentencepiece"], "a b"),
        (["--remove-bpe=_EOW"], "a b"),
        (["--remove-bpe"], "ab"),
        (["--post-process", "none"], "ab"),
    ],
)
def test_a_text_is_put_together_once(command: str, options: List[str], decoded: str, tmp_path: Path) -> None:
    fairseq.options.parse_args_and_arch(COMMANDS[command](), [str(tmp_path), "--path", "x", *options])
    encoder = translating.joined_once(Encoder())
    assert encoder.decode("a b") == decoded and encoder.text == "kept"
    assert translating.joined_once(None) is None
    fairseq.options.parse_args_and_arch(COMMANDS[command](), [str(tmp_path), "--path", "x"])
    assert translating.joined_once(encoder) is encoder


@pytest.mark.parametrize("command", ["generate", "interactive"])
@pytest.mark.parametrize("file", ["dict.txt", "dict.de.txt"])
@pytest.mark.parametrize(
    ("symbols", "way", "lost"),
    [
        ("\u2581an be", "sentencepiece", False),
        ("an be", "sentencepiece", True),
        ("an@@ be", "sentencepiece", False),  # warned of, where it is scored
        ("an@@ be", "subword_nmt", False),
        ("an be", "letter", True),
        ("an | be", "letter", False),
        ("猫 犬 be", "letter", False),
        ("an be", "wordpiece", True),
        ("an_ be", "wordpiece", False),
        ("an be", "_EOW", True),
        ("an be", "silence", False),
        ("", "sentencepiece", False),
    ],
)
def test_spaces_that_would_be_lost(
    symbols: str, way: str, lost: bool, file: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_text("".join(f"{symbol} 1\n" for symbol in symbols.split()))
    words = [str(tmp_path), "--path", "x", "--post-process", way]
    words += ["--source-lang", "en", "--target-lang", "de"] if file == "dict.de.txt" else []
    if not lost:
        fairseq.options.parse_args_and_arch(COMMANDS[command](), words)
        return
    with pytest.raises(SystemExit):
        fairseq.options.parse_args_and_arch(COMMANDS[command](), words)
    assert f"--post-process (--remove-bpe) {way} makes spaces of " in capsys.readouterr().err
