"""Language models of equal size on the same text, as their recipes say: their trainings and scores."""

import argparse
import copy
from typing import Any, Dict, List

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.recipes.command_line import arguments
from fairseq_mega.lab.recipes.recipe import FOLDER, Config, Recipe, load
from fairseq_mega.lab.report.language_models import BENCHMARK
from fairseq_mega.lab.runs.commands import module
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.log_progress import Progress

RECIPES = FOLDER / "comparison" / "wikitext2"
SMOKE: Dict[str, Dict[str, Any]] = {  # in place of values that a recipe has
    "model": {
        "decoder_layers": 1,
        "decoder_embed_dim": 16,
        "decoder_input_dim": 16,
        "decoder_output_dim": 16,
        "decoder_ffn_embed_dim": 24,
        "decoder_hidden_dim": 32,
        "decoder_z_dim": 16,
        "decoder_chunk_size": 16,
        "norm_num_groups": 4,
        "adaptive_input_cutoff": "5,10",
        "adaptive_softmax_cutoff": "5,10",
    },
    "task": {"tokens_per_sample": 60},
    "dataset": {"max_tokens": 512},
}
SMOKE_UPDATES = 4


def plain_tables(config: Config) -> None:
    """Give a model one table for input and output, as for bytes, in place of adaptive ones."""
    model = {key: value for key, value in config["model"].items() if not key.startswith(("adaptive_", "tie_adaptive"))}
    config["model"] = {**model, "share_decoder_input_output_embed": True}
    config["criterion"] = {"_name": "cross_entropy"}
    del config["distributed_training"]["ddp_backend"]  # which adaptive tables need


class LanguageModels:
    """The models of one text.

    Args:
        options: of the command line.
        work: folder of checkpoints, logs and results.
    """

    def __init__(self, options: argparse.Namespace, work: Work) -> None:
        self.options, self.work = options, work
        self.updates = SMOKE_UPDATES if options.smoke else options.updates

    def recipe(self, model: str) -> Recipe:
        """The recipe of a model."""
        return load(RECIPES / f"{model}.yaml")

    def config(self, model: str) -> Config:
        """The configuration of a training: the recipe's, for the text and with what the options say."""
        options, config = self.options, copy.deepcopy(self.recipe(model).config)
        for group, values in SMOKE.items() if options.smoke else ():
            config[group].update({key: value for key, value in values.items() if key in config[group]})
        if options.unit == "bytes":
            plain_tables(config)
        del config["common"]["user_dir"], config["distributed_training"]["distributed_world_size"]
        flags = dict.fromkeys(precision.SETS[options.precision], True)
        config["common"].update(seed=options.seed, cpu=not options.gpu, **flags)
        config["task"]["data"] = str(options.data)
        config["optimization"].update(lr=[float(options.lr)], max_update=self.updates)
        warmup = 2 if options.smoke else self.updates // 15 + 1
        config["lr_scheduler"].update(warmup_updates=warmup, total_num_update=self.updates)
        config["checkpoint"]["save_dir"] = str(self.work.folder / model)
        return config

    def contexts(self, model: str) -> List[List[Any]]:
        """Arguments of each scoring of a model."""
        config, wanted = self.config(model), self.recipe(model).evaluate
        if "chunks" in wanted:
            lengths = [count * config["model"]["decoder_chunk_size"] for count in wanted["chunks"]]
            contexts = "--exact-contexts" if self.options.exact else "--contexts"
            return [[contexts, ",".join(map(str, lengths)), "--segments", 1]]
        return [[], ["--context-window", min(wanted["context_window"], config["task"]["tokens_per_sample"] // 2)]]

    def train(self, model: str) -> None:
        """Train, or go on from the last checkpoint."""
        words = arguments(self.config(model), self.recipe(model).preset)
        self.work.run(f"train-{model}", ["fairseq-mega-train", *words], Progress(updates=self.updates))

    def score(self, model: str) -> None:
        """Score the last checkpoint over its contexts."""
        options, folder = self.options, self.work.folder
        what: List[Any] = [options.data, "--path", folder / model / "checkpoint_last.pt", "--label", model]
        what += ["--benchmark", BENCHMARK, "--device", "cuda" if options.gpu else "cpu", "--output", folder / "results"]
        for number, words in enumerate(self.contexts(model)):
            command = module("fairseq_mega.lab.evaluate.language_model", *what, *words)
            self.work.run(f"score-{model}.{number + 1}", command)

    def report(self) -> List[str]:
        """Arguments of the report that prints the table."""
        return ["language-models", str(self.work.folder / "results"), "--benchmark", BENCHMARK]
