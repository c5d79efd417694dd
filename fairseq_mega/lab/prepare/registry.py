"""All data sets of fairseq-mega-prepare by their names."""

from typing import Dict

from fairseq_mega.lab.prepare.classification import (
    aan,
    cifar10,
    fashion_mnist,
    help_pages,
    imagenet,
    imdb,
    listops,
    own_images,
    own_texts,
    pathfinder,
    recordings,
    speech_commands,
)
from fairseq_mega.lab.prepare.dataset import Dataset
from fairseq_mega.lab.prepare.language_modeling import own_documents, pg19, texts
from fairseq_mega.lab.prepare.translation import dataset as translation
from fairseq_mega.lab.prepare.wmt16 import dataset as wmt16

DATASETS: Dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        listops.DATASET,
        imdb.DATASET,
        aan.DATASET,
        cifar10.DATASET,
        pathfinder.PATHFINDER,
        pathfinder.PATHX,
        speech_commands.DATASET,
        fashion_mnist.DATASET,
        imagenet.DATASET,
        own_images.DATASET,
        help_pages.DATASET,
        own_texts.DATASET,
        recordings.DATASET,
        *texts.DATASETS,
        pg19.DATASET,
        own_documents.DATASET,
        wmt16.DATASET,
        *translation.DATASETS,
    )
}
