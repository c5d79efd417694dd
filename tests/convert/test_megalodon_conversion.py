"""Consolidated checkpoints of XuezheMax/megalodon, of one rank and of several, converted and back."""

from argparse import Namespace
from pathlib import Path
from typing import Any, Dict

import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary

from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert import command
from fairseq_mega.convert.building import check_complete
from fairseq_mega.convert.megalodon import convert_megalodon, publish_megalodon, read_consolidated
from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from tests.support import tiny_classifier, tiny_lm
from tests.support.plain import megalodon
from tests.support.plain.comparing import assert_same, largest_difference, our_ids
from tests.support.published_megalodon import CONFIG, SYMBOLS, model, write

OURS = {"order": "fairseq"}  # of tokens, in a published layout that was written here


def test_outputs_of_another_shape_are_those_of_a_plain_transcription() -> None:
    """Those of the usual one are in the contract of layouts."""
    changed = {"swiglu": False, "rescale_nffn": False, "scale_emb": True, "num_heads": 1}
    whole = {name: value for name, value in model().items() if not name.endswith(("fc3.weight", "nffn.alpha"))}
    published = {"config": {"model": {**CONFIG, **changed}}, "model": whole}
    converted = convert_megalodon(published, "official")
    assert largest_difference(published, converted) < 1e-5


OVER_FEATURES = ("rmsnorm.weight", "nffn.norm.weight", "nffn.norm.bias")


def test_norms_over_time_keep_scale_and_shift(tmp_path: Path) -> None:
    """``norm_affine: false`` is about the norms over features alone, there and here, and survives the way back."""
    whole = {name: tensor for name, tensor in model().items() if not name.endswith(OVER_FEATURES)}
    write(tmp_path / "official", whole, 2)
    read = read_consolidated(tmp_path / "official")
    read["config"]["model"]["norm_affine"] = False
    converted = convert_megalodon(read, "official")
    assert converted["args"].no_affine_norm
    check_complete(converted["args"], converted["model"], "official")
    assert largest_difference(read, converted) < 1e-5
    back = publish_megalodon(converted)
    assert_same(back["model"], whole)
    assert back["config"]["model"]["norm_affine"] is False


def test_every_published_symbol_can_be_read(tmp_path: Path) -> None:
    """Begin, end and unknown have fairseq's ids; padding is a row of its own, without probability or gradient."""
    published = {"config": {"model": CONFIG}, "model": model(), "consolidation": {}}
    converted = convert_megalodon(published, "official")
    table, whole = converted["model"]["decoder.embedding.tokens.weight"], model()["embed.weight"]
    dictionary = tiny_lm.task(SYMBOLS + 1 - 4).source_dictionary
    token_ids = [dictionary.unk(), dictionary.bos(), dictionary.eos(), *range(4, SYMBOLS + 1)]
    assert torch.equal(table[token_ids], whole) and not table[dictionary.pad()].any()
    assert our_ids(torch.arange(SYMBOLS)).tolist() == token_ids
    built = MegalodonLanguageModel.build_model(converted["args"], tiny_lm.task(SYMBOLS + 1 - 4))
    built.load_state_dict(converted["model"])
    tokens = our_ids(torch.arange(SYMBOLS))[None]
    logits, _ = built.eval()(tokens)
    shares = logits.softmax(-1)
    assert not shares[..., dictionary.pad()].any()
    expected = megalodon.language_model(model(), CONFIG, torch.arange(SYMBOLS)[None]).exp()
    torch.testing.assert_close(shares[..., token_ids], expected, rtol=1e-4, atol=1e-6)
    logits.log_softmax(-1).sum().backward()  # as with label smoothing
    assert built.decoder.output_projection.weight.grad[dictionary.pad()].abs().max() == 0
    assert built.decoder.embedding.tokens.weight.grad[dictionary.pad()].abs().max() == 0
    last, _ = built.decoder.advance(tokens)
    assert last[0, dictionary.pad()].exp() == 0 and last.isfinite().all()


def test_the_row_of_padding_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A training here draws the row of the output matrix that no logit uses, and the published layout lacks."""
    ours = convert_megalodon({"config": {"model": CONFIG}, "model": model()}, "official")
    table = ours["model"]["decoder.output_projection.weight"]
    table[1] = 3.0
    torch.save(ours, tmp_path / "ours.pt")
    arguments = ["--input", str(tmp_path / "ours.pt"), "--output", str(tmp_path / "there"), "--to", "official"]
    assert command.main([*arguments, "--verify"]) == 0
    assert "equal, bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize("symbols", [{}, OURS])
@pytest.mark.parametrize("window", [0, 6])
def test_the_window_of_statistics_comes_back(
    window: int, symbols: Dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The published code always has a window at test time, and no option for it."""
    ours = convert_megalodon({"config": {"model": CONFIG}, "model": model(), "symbols": symbols}, "official")
    ours["args"].statistics_window = window
    torch.save(ours, tmp_path / "ours.pt")
    words = ["--input", str(tmp_path / "ours.pt"), "--output", str(tmp_path / "there"), "--to", "official"]
    assert command.main([*words, "--verify"]) == 0
    assert ("--statistics-window 6 does" in capsys.readouterr().err) is (window == 0)
    assert command.main(["--input", str(tmp_path / "there"), "--output", str(tmp_path / "back.pt"), "--verify"]) == 0
    found = load_checkpoint(tmp_path / "back.pt")
    assert_same(found["model"], ours["model"])
    back = found["args"]
    assert back.statistics_window == window
    assert bool(getattr(back, "no_padding_logit", False)) is (not symbols)


def test_classifiers_are_no_published_models(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arch = "megalodon_lra"
    options = Namespace(arch=arch, task="lra-text", encoder_z_dim=8)
    torch.save({"args": options, "model": tiny_classifier.build(arch).state_dict()}, tmp_path / "ours.pt")
    with pytest.raises(SystemExit):
        command.main(["--input", str(tmp_path / "ours.pt"), "--output", str(tmp_path / "there"), "--to", "official"])
    assert f"--arch {arch}: the published code has language models only" in capsys.readouterr().err
    assert not (tmp_path / "there").exists()


def test_the_dictionary_of_a_tokeniser(tmp_path: Path) -> None:
    """sentencepiece's tokens from id 3 on, as the advice says, have the ids of the converted rows."""
    (tmp_path / "text.txt").write_text("the first words of a text and some others\n" * 9)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"), model_prefix=str(tmp_path / "s"), vocab_size=24, minloglevel=2
    )
    tokeniser = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "s.model"))
    pieces = [tokeniser.id_to_piece(number) for number in range(tokeniser.get_piece_size())]
    (tmp_path / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces[3:]), encoding="utf-8")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    text = "the others of a Xylophone"
    line = " ".join(tokeniser.encode(text, out_type=str))
    got = dictionary.encode_line(line, add_if_not_exist=False)
    assert got.tolist() == [*our_ids(torch.tensor(tokeniser.encode(text))).tolist(), dictionary.eos()]
    assert our_ids(torch.tensor([tokeniser.bos_id(), tokeniser.eos_id(), tokeniser.unk_id()])).tolist() == [
        *(dictionary.bos(), dictionary.eos(), dictionary.unk())
    ]


def test_ranks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "official", model(), 2)
    file = tmp_path / "official" / "consolidated.01.pth"
    rank = torch.load(file)
    torch.save({**rank, "layers.0.mega.rmsnorm.weight": rank["layers.0.mega.rmsnorm.weight"] + 1}, file)
    with pytest.raises(ValueError, match="layers.0.mega.rmsnorm.weight must be equal in all ranks"):
        read_consolidated(tmp_path / "official")
    del rank["layers.1.mega.cema.omega"]
    torch.save(rank, file)
    with pytest.raises(ValueError, match="have different tensors: layers.1.mega.cema.omega"):
        read_consolidated(tmp_path / "official")
    file.unlink()
    with pytest.raises(FileNotFoundError, match="consolidated.01.pth"):
        read_consolidated(tmp_path / "official")


def test_what_no_model_here_has_is_refused(tmp_path: Path) -> None:
    whole = model()
    whole["output.final_norm.prior_count"] = torch.tensor(3)
    write(tmp_path / "official", whole, 1)
    with pytest.raises(ValueError, match="output.final_norm.prior_count is 3"):
        convert_megalodon(read_consolidated(tmp_path / "official"), "official")
    with pytest.raises(ValueError, match="output_size 30 differs from the 24 tokens of the input"):
        convert_megalodon({"config": {"model": {**CONFIG, "output_size": 30}}, "model": model()}, "official")
    for size in (-1, SYMBOLS):
        convert_megalodon({"config": {"model": {**CONFIG, "output_size": size}}, "model": model()}, "official")
    with pytest.raises(ValueError, match="norm_eps 0.001 is not supported: give a model with 1e-05"):
        convert_megalodon({"config": {"model": {"norm_eps": 1e-3}}, "model": {}}, "official")
