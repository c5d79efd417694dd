"""--bf16 on the command line of fairseq."""

import pytest
from fairseq import options

from fairseq_mega.compat.patches import arguments
from tests.support import helpers


class TestBfloat16:
    @pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
    def test_trains_and_resumes(self, flag, tiny_corpus, device_flags, tmp_path) -> None:
        given = [tiny_corpus, *helpers.TINY_TRAINING, *device_flags, flag, "--save-dir", tmp_path]
        helpers.run_fairseq("train", [*given, "--max-update", 2])
        output = helpers.run_fairseq("train", [*given, "--max-update", 4])
        assert "@ 2 updates" in output and "num_updates: 4 >= max_update: 4" in output

    def test_tpu_stays_a_choice(self, monkeypatch) -> None:
        monkeypatch.setattr(arguments, "PACKAGES", {})
        words = ["data", "--arch", "mega_tiny", "--bf16"]
        parser = options.get_training_parser()
        assert options.parse_args_and_arch(parser, input_args=words).tpu is False
        parser = options.get_training_parser()
        assert options.parse_args_and_arch(parser, input_args=[*words, "--tpu"]).tpu is True


@pytest.mark.parametrize("package", sorted(set(arguments.PACKAGES.values())))
def test_a_missing_package_is_named(package, capsys, monkeypatch) -> None:
    monkeypatch.setattr(arguments.importlib.util, "find_spec", lambda name: None)
    for name in (name for name, needed in arguments.PACKAGES.items() if needed == package):
        with pytest.raises(SystemExit):
            words = ["data", "--arch", "mega_tiny", f"--{name.replace('_', '-')}"]
            options.parse_args_and_arch(options.get_training_parser(), words)
        assert f"requires {package}: pip install {package}, or leave the option out" in capsys.readouterr().err
