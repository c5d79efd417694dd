"""Options of classifiers of colour images."""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass

BOUNDS = {"encoder_layers": 1, "image_size": 1, "patch_size": 1, "image_class_num": 2}


@dataclass
class ImageOptions(FairseqDataclass):
    """The images and their classes."""

    image_size: int = field(default=224, metadata={"help": "height and width of the images in pixels"})
    patch_size: int = field(default=16, metadata={"help": "height and width of the patches they are cut into"})
    image_class_num: int = field(default=1000, metadata={"help": "number of classes"})
    drop_path: float = field(
        default=0.2,
        metadata={"help": "stochastic depth: probability that an image skips the last layer, less in those below it"},
    )
