"""BLEU of translations: sacreBLEU of plain text, and BLEU of tokenised text with compounds split."""

import re
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from sacrebleu.dataset import DATASETS
from sacrebleu.metrics import BLEU

from fairseq_mega.compat.features.translating import tokenizer_of

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


class Tokenizer(NamedTuple):
    """Name of sacreBLEU's tokeniser, and the reason if it is not the usual one of the language."""

    name: str
    reason: Optional[str] = None


def tokenizer_for(language: str) -> Tokenizer:
    """Return the tokeniser for the code of a language; characters if MeCab, which it requires, is not installed."""
    name = tokenizer_of(language)
    try:
        BLEU(tokenize=name)
    except (Exception, SystemExit):  # MeCab raises various errors if a dictionary is missing
        extra = name.partition("-")[0]
        return Tokenizer("char", f"sacreBLEU's {name} does not work here; run pip install 'sacrebleu[{extra}]'")
    return Tokenizer(name)


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], target_lang: str) -> Tuple[float, str]:
    """Return corpus BLEU of plain (detokenised) text and its signature, which names the tokeniser.

    The tokeniser depends on ``target_lang``, a code of a language or a locale, such as ``zh_CN``.
    """
    metric = BLEU(tokenize=tokenizer_for(target_lang).name)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return score.score, str(metric.get_signature())


def detokenize(lines: Sequence[str], language: str) -> List[str]:
    """Return ``lines`` detokenised with the Moses rules of sacremoses, which this alone requires."""
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=re.split(r"[-_]", language.lower())[0])
    return [moses.detokenize(line.split()) for line in lines]


def cached_test_set(name: str, source_lang: str, target_lang: str) -> Optional[Path]:
    """Return the reference of sacreBLEU's test set ``name`` if it is on this machine, else ``None``.

    Nothing is downloaded. Raises :class:`ValueError` for a name or language pair that sacreBLEU does not have.
    """
    dataset: Any = DATASETS.get(name)
    pair = f"{source_lang}-{target_lang}"
    if dataset is None or pair not in dataset.langpairs:
        raise ValueError(
            f"--sacrebleu-test-set {name}: sacreBLEU has no such test set of {pair}; see `sacrebleu --list`"
        )
    # FakeSGMLDataset and friends keep one text file per field: <cache>/<name>/<name>.<pair>.<field>
    files = [Path(dataset._get_txt_file_path(pair, field)) for field in ("ref", "ref:0")]
    return next((file for file in files if file.is_file() and file.stat().st_size > 0), None)
