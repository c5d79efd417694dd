"""Tables of tokens in both kinds of model: of another width, read from a file, adaptive."""

import math

import pytest
import torch

from fairseq_mega.convert import convert_name
from fairseq_mega.models.tables import plain_table
from tests.support import tiny_lm, tiny_mega
from tests.support.tiny_mega import PAD, batch, dictionary, lively

CUTOFF = {"adaptive_softmax_cutoff": "6,13", "adaptive_softmax_factor": 2.0}
TIED = {"adaptive_input": True, "adaptive_input_factor": 2.0, "tie_adaptive_weights": True, "tie_adaptive_proj": True}
ADAPTIVE = {"apart": CUTOFF, "all": {**CUTOFF, "share_all_embeddings": True}, "tied": {**CUTOFF, **TIED}}
VECTORS = "3 3\nw3 1 2 3\nunseen 4 5 6\nw5 7 8 9\n"


class TestInputWidth:
    OPTIONS = {"decoder_input_dim": 4, "share_decoder_input_output_embed": False}

    def test_a_map_leads_to_the_width_of_the_layers(self):
        """Published: sqrt(d) times the table's row, then a map without bias; d is the width of the layers."""
        model = tiny_lm.build(**self.OPTIONS, dropout=0.0)
        embedding, read = model.decoder.embedding, tiny_lm.tokens(2, 7)
        assert embedding.tokens.weight.shape == (24, 4) and embedding.projection.weight.shape == (8, 4)
        want = math.sqrt(8.0) * embedding.tokens.weight[read] @ embedding.projection.weight.T
        torch.testing.assert_close(embedding(read), want)
        assert embedding.projection.weight.abs().max() <= math.sqrt(6.0 / (8 + 4))  # Xavier uniform
        assert convert_name("decoder.project_in_dim.weight") in model.state_dict()
        assert tiny_lm.build(decoder_input_dim=8).decoder.embedding.projection is None


class TestFile:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "vectors.txt"
        path.write_text(VECTORS)
        return path

    def test_known_symbols_are_read_the_others_drawn(self, path):
        symbols = dictionary()
        table = plain_table(symbols, 3, str(path)).weight
        assert table[symbols.index("w3")].tolist() == [1, 2, 3] and table[symbols.index("w5")].tolist() == [7, 8, 9]
        assert table[PAD].eq(0).all() and table[symbols.index("w4")].abs().sum() > 0

    def test_reaches_language_models_and_translators(self, path):
        options = {"decoder_input_dim": 3, "share_decoder_input_output_embed": False}
        model = tiny_lm.build(decoder_embed_path=str(path), **options)
        row = dictionary().index("w5")
        assert model.decoder.embedding.tokens.weight[row].tolist() == [7, 8, 9]
        path.write_text(VECTORS.replace("7 8 9", "7 8 9 0 0 0 0 0").replace("1 2 3", "1 2 3 0 0 0 0 0"))
        model = tiny_mega.build(decoder_embed_path=str(path))
        assert model.decoder.embedding.tokens.weight[row].tolist()[:3] == [7, 8, 9]
        assert model.encoder.embedding.tokens.weight[row].tolist()[:3] != [7, 8, 9]

    @pytest.mark.parametrize("text", ["3 3\nw3 1 2\n", "1 3\nother 1 2 3\n"])
    def test_another_file_is_refused(self, text, path):
        path.write_text(text)
        with pytest.raises(ValueError, match=str(path)):
            plain_table(dictionary(), 3, str(path))


class TestAdaptiveTranslator:
    @pytest.fixture(params=ADAPTIVE)
    def model(self, request):
        return lively(tiny_mega.build(**ADAPTIVE[request.param]))

    def test_probabilities(self, model):
        source, target = batch(left=True), batch((6, 6, 6), seed=3)
        features, _ = model(source, None, target)
        assert features.shape == (3, 6, 8) and not hasattr(model.decoder, "output_projection")
        found = model.get_normalized_probs((features, None), log_probs=False)
        assert found.shape == (3, 6, 24)
        torch.testing.assert_close(found.sum(-1), torch.ones(3, 6), atol=1e-5, rtol=0, check_dtype=False)

    def test_tables_are_shared_as_requested(self):
        everything, tied = (tiny_mega.build(**ADAPTIVE[name]).decoder for name in ("all", "tied"))
        assert everything.adaptive_softmax.head.weight.shape == (6 + 2, 8)
        embeddings, softmax = tied.embedding.tokens.embeddings, tied.adaptive_softmax
        assert softmax.head.word_proj.weight is embeddings[0][0].weight
        assert softmax.tail[1][2].weight is embeddings[2][0].weight
