"""The task through fairseq's commands: training, resume, streamed evaluation, generation, and bad input."""

import json
import re
import shutil

import numpy as np
import pytest
from fairseq.data import indexed_dataset

from fairseq_mega.cli import console
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.tasks.mega_language_modeling import segments_of
from tests.support.evaluation import evaluate, exact_bits
from tests.support.helpers import (
    captured_output,
    forget_earlier_runs,
    hypotheses,
    random_sentences,
    run_fairseq,
    train_with_two_processes,
)

TASK = ["--task", "mega_language_modeling"]
MODEL = ["--arch", "mega_lm_tiny", "--decoder-layers", 1, "--decoder-embed-dim", 16, "--decoder-hidden-dim", 32]
MODEL += ["--decoder-z-dim", 8, "--decoder-n-dim", 4, "--decoder-chunk-size", 8]
ADAPTIVE = ["--adaptive-softmax-cutoff", "8,16", "--adaptive-input", "--tie-adaptive-weights", "--tie-adaptive-proj"]
TRAINING = ["--optimizer", "adam", "--lr", 0.01, "--max-tokens", 100, "--num-workers", 0, "--no-progress-bar"]
TRAINING += ["--log-format", "json", "--log-interval", 1]
TEST_TOKENS = 597


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A binarised text with empty lines; 597 test tokens."""
    folder = tmp_path_factory.mktemp("text")
    arguments = ["--only-source", "--destdir", folder / "data-bin"]
    for seed, (split, count) in enumerate((("train", 200), ("valid", 40), ("test", 97))):
        lines = random_sentences(count, seed + 8)
        lines[3] = lines[7] = ""
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
        arguments += [f"--{split}pref", folder / f"{split}.txt"]
    run_fairseq("preprocess", arguments)
    return folder / "data-bin"


def train(data, folder, *options, model=(*MODEL, "--share-decoder-input-output-embed")):
    return run_fairseq("train", [data, *TASK, *model, *TRAINING, "--save-dir", folder, *options])


@pytest.fixture(scope="module", params=["megalodon", "adaptive"])
def trained(request, data, device_flags, tmp_path_factory):
    """A checkpoint after three epochs, of MEGALODON, or of MEGA with adaptive tables."""
    folder = tmp_path_factory.mktemp(request.param)
    options = [*device_flags, "--max-epoch", 3, "--no-epoch-checkpoints"]
    if request.param == "adaptive":
        model = [*MODEL[:1], "mega_lm", *MODEL[2:], *ADAPTIVE, "--adaptive-softmax-factor", 2]
        model += ["--adaptive-input-factor", 2, "--normalize-before", "--rel-pos-bias", "rotary"]
        train(data, folder, *options, "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp", model=model)
    else:
        model = ["--arch", "megalodon_lm_tiny", *MODEL[2:], "--decoder-ffn-embed-dim", 32, "--norm-num-groups", 4]
        train(data, folder, *options, model=[*model, "--share-decoder-input-output-embed"])
    return folder / "checkpoint_last.pt"


def test_loss_depends_on_neither_groups_nor_batches(data, trained, device_flags):
    losses = set()
    for options in ([], ["--chunk-nums", 1, "--max-tokens", 8], ["--batch-size", 1, "--num-workers", 1]):
        loss, tokens, segments = evaluate(data, trained, device_flags, "--valid-block", "splits:3", *options)
        assert tokens == TEST_TOKENS and segments in (3, 4)
        losses.add(loss)
    assert max(losses) - min(losses) <= 1e-4 + 1e-9, losses  # fairseq prints four digits


def test_streams_are_read_without_saying_the_task(data, trained, device_flags):
    """fairseq-eval-lm would take blocks of its own language_modeling, and give another number."""
    forget_earlier_runs()
    given = [data, "--path", trained, "--gen-subset", "test", "--no-progress-bar", *device_flags]
    with captured_output() as buffer:
        assert console.run("eval-lm", [str(argument) for argument in given]) == 0
    loss = re.search(r"Loss \(base 2\): ([\d.]+)", buffer.getvalue())
    assert loss is not None and float(loss.group(1)) == evaluate(data, trained, device_flags)[0]


def test_context_and_chunks_count(data, trained, device_flags):
    """Segments without memory of each other, or another chunk, give another loss; each token is scored all the same."""
    one = evaluate(data, trained, device_flags, "--valid-block", "splits:1")
    assert evaluate(data, trained, device_flags, "--valid-block", "size:100000000") == one  # the published default
    many = evaluate(data, trained, device_flags, "--valid-block", "splits:40")
    longer = evaluate(data, trained, device_flags, "--valid-block", "splits:1", "--test-chunk-size", 16)
    assert {one[1], many[1], longer[1]} == {TEST_TOKENS}
    assert one[0] != many[0] and one[0] != longer[0]


def test_validation_in_training_equals_evaluation(data, device_flags, tmp_path):
    output = train(
        data, tmp_path, *device_flags, "--max-epoch", 2, "--valid-subset", "test", "--ignore-unused-valid-subsets"
    )
    losses = [json.loads(line) for line in re.findall(r"\| test \| (\{.*\})", output)]
    loss, _, _ = evaluate(data, tmp_path / "checkpoint2.pt", device_flags, "--valid-block", "splits:10")
    assert abs(float(losses[-1]["test_loss"]) - loss) < 2e-3  # logged with three digits
    given = [data, *TASK, "--path", tmp_path / "checkpoint2.pt", "--valid-subset", "test", *device_flags]
    again = run_fairseq("validate", [*given, "--no-progress-bar", "--max-tokens", 50, "--log-format", "json"])
    validated = re.search(r'"test_loss": "?([\d.]+)', again)
    assert validated is not None and abs(float(validated.group(1)) - loss) < 2e-3


def test_a_file_of_embeddings_is_needed_once(data, device_flags, tmp_path):
    """A checkpoint holds the vectors: it is scored where the file is gone."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("2 16\n" + "".join(f"w{word} " + " ".join(["0.5"] * 16) + "\n" for word in (1, 2)))
    train(data, tmp_path, *device_flags, "--max-update", 1, "--decoder-embed-path", vectors)
    vectors.unlink()
    assert evaluate(data, tmp_path / "checkpoint_last.pt", device_flags)[1] == TEST_TOKENS


def test_lines_are_shortened(data, trained, device_flags):
    """--shorten-method, as the published task: each line to --tokens-per-sample, in the splits of the list."""
    options = ["--shorten-method", "truncate", "--tokens-per-sample", 4]
    output = run_fairseq("eval-lm", [data, *TASK, "--path", trained, "--gen-subset", "test", *options, *device_flags])
    loader = indexed_dataset.MMapIndexedDataset(str(data / "test"))
    expected = int(np.minimum(loader.sizes, 4).sum())
    assert f"scored {expected} of {expected} tokens" in output
    assert evaluate(data, trained, device_flags, *options, "--shorten-data-split-list", "train")[1] == TEST_TOKENS


@pytest.mark.slow
@pytest.mark.parametrize("segments", [5, 1])
def test_two_processes_score_each_token_once(segments, data, device_flags, tmp_path):
    """Each reads whole segments; with one segment the second process has nothing to read at all."""
    if not device_flags:
        pytest.skip("starts two processes on the CPU: run without --device cuda")
    options = [*TASK, *MODEL, *TRAINING, "--share-decoder-input-output-embed", "--save-dir", tmp_path]
    options += ["--max-update", 3, "--valid-block", f"splits:{segments}"]
    options += ["--valid-subset", "test", "--ignore-unused-valid-subsets"]
    output = train_with_two_processes([data, *options])
    found = [json.loads(line) for line in re.findall(r"\| test \| (\{.*\})", output)]
    trained = tmp_path / "checkpoint_last.pt"
    loss, tokens, _ = evaluate(data, trained, device_flags, "--valid-block", f"splits:{segments}")
    assert tokens == TEST_TOKENS and len(found) == 1
    assert abs(float(found[0]["test_loss"]) - loss) < 2e-3  # logged with three digits


def test_generate_continues_lines(data, trained, device_flags):
    output = run_fairseq(
        "generate",
        [data, *TASK, "--path", trained, "--valid-block", "lines", "--gen-subset", "test", *device_flags]
        + ["--beam", 2, "--max-len-b", 4, "--max-tokens", 400, "--no-progress-bar"],
    )
    found, source = hypotheses(output), hypotheses(output, "S")
    assert len(found) == 97
    assert all(found[i].startswith(source[i]) for i in found) and any(found[i] != source[i] for i in found)


PROMPTS = ("w1", "w2 w3 w4 w5 w6 w7 w8 w9 w10 w11", "w3 w4 w5")


@pytest.mark.parametrize(("beam", "least"), [(1, 1), (2, 4), (1, 100)])
def test_limits_count_what_follows_each_prompt(beam, least, data, trained, device_flags):
    """A prompt's continuation is the same alone and beside longer ones; without an end it has --max-len-b tokens."""
    arguments = [data, *TASK, "--path", trained, *device_flags, "--beam", beam, "--min-len", least, "--max-len-b", 6]
    text = "".join(f"{prompt}\n" for prompt in PROMPTS)
    alone = hypotheses(run_fairseq("interactive", arguments, stdin=text))
    beside = hypotheses(run_fairseq("interactive", [*arguments, "--buffer-size", 3, "--batch-size", 3], stdin=text))
    assert alone == beside
    for prompt, found in zip(PROMPTS, alone.values()):
        assert found.startswith(prompt)
        longest = len(prompt.split()) + 6
        assert min(max(least, len(prompt.split())), longest) <= len(found.split()) <= longest


def test_streams_are_no_prompts(data, trained, device_flags):
    with pytest.raises(ValueError, match="--valid-block splits:10"):
        run_fairseq("generate", [data, *TASK, "--path", trained, "--gen-subset", "test", *device_flags])


@pytest.fixture(scope="module")
def rare(device_flags, tmp_path_factory):
    """Data of which 70 % of the words are <unk>, and a checkpoint that expects them: folder and file."""
    folder = tmp_path_factory.mktemp("rare")
    lines = [
        " ".join(f"rare{number}x{place}" if place % 10 < 7 else "w1" for place in range(10)) for number in range(90)
    ]
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    arguments = ["--only-source", "--trainpref", folder / "text.txt", "--testpref", folder / "text.txt"]
    run_fairseq("preprocess", [*arguments, "--thresholdsrc", 2, "--destdir", folder / "data-bin"])
    train(folder / "data-bin", folder, *device_flags, "--max-epoch", 3, "--disable-validation")
    return folder / "data-bin", folder / "checkpoint_last.pt"


@pytest.mark.parametrize("options", [["--beam", 5], ["--beam", 1, "--sampling", "--sampling-topp", 0.9]])
def test_unknown_words_are_read_and_never_written(options, rare, device_flags):
    data, checkpoint = rare
    arguments = [data, *TASK, "--path", checkpoint, *device_flags, *options, "--min-len", 20, "--max-len-b", 30]
    found = hypotheses(run_fairseq("interactive", arguments, stdin="w1 w1\nw1 other w1\n"))
    assert [found[0].startswith("w1 w1"), found[1].startswith("w1 <unk> w1")] == [True, True]
    assert set(found[0].split()) == {"w1"} and found[1].count("<unk>") == 1
    hub = MegaLanguageModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))
    assert set(hub.complete("w1 other", 50, seed=1).split()) == {"w1"}


def test_a_text_is_scored_in_python_as_its_file_is(data, trained, device_flags):
    """All tokens of a text, its last line with or without an end; two models vote with the mean of probabilities."""
    hub = MegaLanguageModel.from_pretrained(str(trained.parent), trained.name, str(data))
    text = (data.parent / "test.txt").read_text()
    arguments = [data, *TASK, "--path", trained, "--gen-subset", "test", "--valid-block", "splits:1", *device_flags]
    found = hub.likelihood(text)
    assert found.tokens == TEST_TOKENS and found.bytes == len(text.encode())
    assert abs(found.bits_per_token - exact_bits(arguments)) < 1e-5
    assert found.bits_per_byte == pytest.approx(found.bits_per_token * found.tokens / found.bytes)
    assert found.perplexity == pytest.approx(2**found.bits_per_token)
    assert hub.likelihood(text[:-1])._replace(bytes=0, bits_per_byte=0) == found._replace(bytes=0, bits_per_byte=0)
    both = type(hub)(hub.cfg, hub.task, [*hub.models, *hub.models]).likelihood(text)
    assert both.bits_per_token == pytest.approx(found.bits_per_token)


def test_what_does_not_fit(data, trained, device_flags, tmp_path):
    """Options that would score a part of a text, or blocks longer than a batch."""
    for option in (["--num-shards", 2, "--shard-id", 0], ["--context-window", 4], ["--sample-break-mode", "eos"]):
        with pytest.raises(ValueError, match=str(option[0])):
            evaluate(data, trained, device_flags, *option)
    with pytest.raises(ValueError, match="--max-tokens"):
        train(data, tmp_path, *device_flags, "--max-tokens", 5)


def test_a_split_of_a_larger_dictionary_is_refused(data, trained, device_flags, tmp_path):
    (tmp_path / "test.txt").write_text("w1 w2 " + " ".join(f"more{number}" for number in range(40)) + "\n")
    arguments = ["--only-source", "--trainpref", tmp_path / "test.txt", "--testpref", tmp_path / "test.txt"]
    run_fairseq("preprocess", [*arguments, "--destdir", tmp_path / "other"])
    shutil.copytree(data, tmp_path / "mixed")
    for file in (tmp_path / "other").glob("test.*"):
        shutil.copy(file, tmp_path / "mixed")
    with pytest.raises(ValueError, match=r"token id 4\d, .*has 24"):
        evaluate(tmp_path / "mixed", trained, device_flags)


def test_segments():
    assert segments_of("splits:10") == (10, None) and segments_of("size:50") == (None, 50)
    assert segments_of("lines") == (0, None)
    with pytest.raises(ValueError, match="--valid-block"):
        segments_of("splits:0")
