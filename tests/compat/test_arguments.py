"""--bf16 on the command line of fairseq."""

import pytest
from fairseq import options

from tests.support import helpers


class TestBfloat16:
    @pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
    def test_trains_and_resumes(self, flag, tiny_corpus, device_flags, tmp_path) -> None:
        given = [tiny_corpus, *helpers.TINY_TRAINING, *device_flags, flag, "--save-dir", tmp_path]
        helpers.run_fairseq("train", [*given, "--max-update", 2])
        output = helpers.run_fairseq("train", [*given, "--max-update", 4])
        assert "@ 2 updates" in output and "num_updates: 4 >= max_update: 4" in output

    def test_tpu_stays_a_choice(self) -> None:
        words = ["data", "--arch", "mega_tiny", "--bf16"]
        parser = options.get_training_parser()
        assert options.parse_args_and_arch(parser, input_args=words).tpu is False
        parser = options.get_training_parser()
        assert options.parse_args_and_arch(parser, input_args=[*words, "--tpu"]).tpu is True
