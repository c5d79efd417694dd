"""Validation takes under a twentieth of every training, reckoned from the counts of the data and the options."""

import math

from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.prepare.language_modeling.pg19 import WORDS
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe

MOST = 0.05
FORWARD = 1 / 3  # of what an example costs in training, which goes backward, too
DECODED = 100  # what a token costs that a beam search writes, beside one that is read with all others at once
WIKITEXT = CORPORA["wikitext-103"].tokens
BEAM = 5

# By the folder of the data, examples of train and validation; of language models tokens, of translations pairs.
SIZES = {
    "outputs/lra/listops": (96000, 2000),
    "outputs/lra/text": (25000, 25000),
    "outputs/lra/retrieval": (147086, 18090),
    "outputs/lra/image": (45000, 5000),
    "outputs/lra/pathfinder": (160000, 20000),
    "outputs/lra/pathx": (160000, 20000),
    "outputs/lra/speech": (24482, 5246),
    "outputs/miniature/listops": (96000, 2000),
    "outputs/miniature/text": (24000, 1000),
    "outputs/miniature/image": (20000, 1000),
    "outputs/wikitext-103/data-bin": (WIKITEXT[0], WIKITEXT[1]),
    "outputs/wikitext-2/data-bin": (CORPORA["wikitext-2"].tokens[0], CORPORA["wikitext-2"].tokens[1]),
    "outputs/pg19": (WORDS["train"], WORDS["valid"]),  # words, in place of their tokens
    "outputs/enwik8/data-bin": (90_000_000, 5_000_000),
    "outputs/wmt16/data-bin": (4_500_000, 3000),
    "outputs/imagenet": (IMAGES["train"], IMAGES["valid"]),
    "outputs/quickstart/data-bin": (34_651, 991),
    "outputs/quickstart-lm/data-bin": (6_000_000, 100_000),
    "outputs/gcide-bytes-16m/data-bin": (16_150_000, 425_000),
}
# Comparisons train for minutes and score the best of a few validations, often on data of one's own.
COUNTED = [
    recipe for recipe in catalogue().values() if recipe.place in SIZES or not recipe.name.startswith("comparison/")
]
PIECES_PER_SENTENCE = 22  # of the help, 12 words
PAIRS_PER_UPDATE = 2200  # of 65,536 tokens at most, sentences of English and German being 30 long


def per_update(recipe: Recipe) -> float:
    """Return the number of examples, tokens or pairs of an update."""
    batches = recipe.gpus * recipe.config["optimization"]["update_freq"][0]
    if recipe.evaluate["kind"] == "translation":
        return PAIRS_PER_UPDATE
    dataset = recipe.config["dataset"]
    if recipe.dataset == "help-pairs":
        return batches * dataset["max_tokens"] / PIECES_PER_SENTENCE
    return batches * dataset.get("max_tokens", dataset.get("batch_size"))


def updates_between(recipe: Recipe, train: int) -> float:
    """Updates from one validation to the next: after epochs, after so many updates, and wherever it is saved."""
    dataset, checkpoint = recipe.config["dataset"], recipe.config["checkpoint"]
    often = per_update(recipe) / (train * dataset.get("validate_interval", 1))
    counts = {dataset.get("validate_interval_updates", 0), checkpoint.get("save_interval_updates", 0)} - {0}
    return 1 / (often + sum(1 / count for count in counts))


def validation_share(recipe: Recipe) -> float:
    """Time of validation beside that of training."""
    train, valid = SIZES[recipe.place]
    cost = FORWARD * valid
    if recipe.config["task"].get("eval_bleu"):
        cost *= 1 + BEAM * DECODED / 2  # half of the tokens of a pair are written
    streams = int(recipe.config["task"].get("valid_block", "splits:0").partition(":")[2])
    if streams:  # which do not come out even on the GPUs
        cost *= math.ceil(streams / recipe.gpus) * recipe.gpus / streams
    return cost / (per_update(recipe) * updates_between(recipe, train))


def test_validation_takes_little() -> None:
    shares = {recipe.name: validation_share(recipe) for recipe in COUNTED}
    assert len(shares) > 100 and not {name: share for name, share in shares.items() if share >= MOST}


def test_beam_searches_are_few() -> None:
    """Fewer than 60 beam searches are made; validation at every epoch and every 5,000 updates made some 330."""
    searching = [recipe for recipe in catalogue().values() if "eval_bleu" in recipe.config["task"]]
    assert searching
    for recipe in searching:
        assert recipe.updates / updates_between(recipe, SIZES[recipe.place][0]) < 60, recipe.name
