"""A published checkpoint, converted, gives the published outputs."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_mega.convert import command, convert_checkpoint
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support.in_process import call
from tests.support.tiny_classifier import task as classification
from tests.support.tiny_mega import dictionary

GOLDENS = Path(__file__).parent.parent / "goldens"


def close(got, want):
    assert (got - want).abs().max() <= 2e-5 + 1e-4 * want.abs().max()


@pytest.fixture(scope="module")
def expected():
    return torch.load(GOLDENS / "translator.expected.pt")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The published translator, through the command and a file."""
    output = tmp_path_factory.mktemp("converted") / "converted.pt"
    words = ["--input", GOLDENS / "translator.official.pt", "--output", output]
    done = call(command.main, *words)
    assert done.returncode == 0, done.stderr
    again = call(command.main, *words)
    assert again.returncode == 2 and f"--output {output} exists" in again.stderr
    saved = torch.load(output)
    symbols = dictionary(26)
    built = MegaModel.build_model(saved["args"], SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols))
    built.load_state_dict(saved["model"])
    return built.eval()


def test_outputs(model, expected):
    inputs, outputs = expected["inputs"], expected["outputs"]
    encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    close(encoder_out["encoder_out"][0], outputs["encoder_out"])
    logits, extra = model.decoder(inputs["prev_output_tokens"], encoder_out=encoder_out)
    close(logits, outputs["logits"])
    close(extra["attn"][0], outputs["attn"])


def test_incremental_outputs(model, expected):
    tokens = expected["inputs"]["inc_tokens"]
    encoder_out = model.encoder(expected["inputs"]["src_tokens"])
    memory: dict = {}
    steps = [
        model.decoder(tokens[:, : end + 1], encoder_out=encoder_out, incremental_state=memory)[0]
        for end in range(tokens.size(1))
    ]
    close(torch.cat(steps, dim=1), expected["outputs"]["inc_logits"])


def test_invariant_padding_differs_from_the_published_one_only_where_padded(model, expected):
    """Our default moves left-padded rows to the left edge; the row without padding keeps the published logits."""
    inputs, outputs = expected["inputs"], expected["outputs"]
    model.encoder.published_source_padding = False
    try:
        logits, _ = model(inputs["src_tokens"], None, inputs["prev_output_tokens"])
    finally:
        model.encoder.published_source_padding = True
    close(logits[0], outputs["logits"][0])
    assert (logits[1] - outputs["logits"][1]).abs().max() > 1e-3


def test_language_model():
    converted = convert_checkpoint(torch.load(GOLDENS / "language_model.official.pt"), "language_model.official.pt")
    assert converted["args"].task == "mega_language_modeling"
    symbols = dictionary(26)
    task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols)
    language_model = MegaLanguageModel.build_model(converted["args"], task)
    language_model.load_state_dict(converted["model"])
    expected = torch.load(GOLDENS / "language_model.expected.pt")
    inputs, outputs = expected["inputs"], expected["outputs"]
    real = inputs["src_tokens"].ne(symbols.pad())
    found = language_model.eval()(inputs["src_tokens"])
    close(found[0][real], outputs["logits"][real])
    close(language_model.get_normalized_probs(found, log_probs=True)[real], outputs["log_probs"][real])
    state, steps = None, []
    for token in inputs["src_tokens"][:1].unbind(1):
        scores, state = language_model.decoder.advance(token.unsqueeze(1), state)
        steps.append(scores)
    row = real[0]
    close(torch.stack(steps, dim=1)[0][row], outputs["log_probs"][0][row])


def test_a_classifier():
    converted = convert_checkpoint(torch.load(GOLDENS / "lra_classifier.official.pt"), "lra_classifier.official.pt")
    published = MegaClassifier.build_model(converted["args"], classification(symbols=26))
    published.load_state_dict(converted["model"])
    published.eval()
    expected = torch.load(GOLDENS / "lra_classifier.expected.pt")
    inputs, outputs = expected["inputs"], expected["outputs"]
    close(published(**inputs), outputs["logits"])
    close(published.represent(inputs["src_tokens"]), outputs["sentence_rep"])
    hidden, padding_mask = published.encoder(inputs["src_tokens"])
    close(hidden.transpose(0, 1), outputs["last_state"][: hidden.size(1)])
    assert padding_mask.equal(inputs["src_tokens"].eq(1))
