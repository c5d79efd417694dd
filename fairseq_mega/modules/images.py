"""Input and output of image classifiers: images to hidden states, and hidden states to the logits of a class."""

import torch
from torch import Tensor, nn

from fairseq_mega.ops.activation import silu

from .classifier_head import sentence_vector
from .drawn import PlainLinear
from .errors import FieldError
from .linear import linear

CHANNELS = 3


class PatchEmbedding(nn.Module):
    """A linear map of each square patch of an image, plus a learned vector for its place.

    Args:
        embed_dim: d.
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch, a divisor of the image's.

    Raises:
        FieldError: if the patches do not divide the image.

    Source: MEGA (Ma et al., ICLR 2023), section 4.4, and its published code; after ViT (Dosovitskiy et al., 2021),
    without a class token.
    """

    def __init__(self, embed_dim: int, image_size: int, patch_size: int) -> None:
        super().__init__()
        check_patches(image_size, patch_size)
        self.image_size = image_size
        self.patches = nn.Conv2d(CHANNELS, embed_dim, patch_size, stride=patch_size)
        self.positions = nn.Parameter(torch.empty(patch_count(image_size, patch_size), embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors of the places."""
        nn.init.trunc_normal_(self.positions, std=self.positions.size(1) ** -0.5)

    def forward(self, images: Tensor, padding_mask: None = None) -> Tensor:
        """Embed images (B, 3, S, S), S the image size, as (B, (S / P)^2, d), row by row.

        Raises:
            FieldError: for input of another shape.
        """
        check_images(images, self.image_size)
        x = self.patches(images.to(self.patches.weight.dtype))
        return x.flatten(2).transpose(1, 2) + self.positions


class ImageHead(nn.Module):
    """``W mean(SiLU(U x + b)) + c``, the mean over all positions.

    Args:
        embed_dim: d.
        classes: number of classes.

    Source: the published image classifiers of MEGA.
    """

    def __init__(self, embed_dim: int, classes: int) -> None:
        super().__init__()
        self.hidden = linear(embed_dim, embed_dim)
        self.output = PlainLinear(embed_dim, classes).drawn(nn.init.xavier_uniform_)

    def forward(self, x: Tensor) -> Tensor:
        """Map hidden states (B, L, d) to logits (B, classes)."""
        return self.output(sentence_vector(silu(self.hidden(x)), None, "mp"))


def check_patches(image_size: int, patch_size: int) -> None:
    """Raise a FieldError unless patches divide an image."""
    if image_size % patch_size:
        raise FieldError(
            "patch_size",
            "{field} {patch} does not divide {image_size} {image}: give sizes in pixels of which one divides the "
            "other, for example 16 and 224",
            patch=patch_size,
            image=image_size,
        )


def check_images(images: Tensor, size: int) -> None:
    """Raise a FieldError for anything but images (B, 3, size, size)."""
    if images.dim() != 4 or images.shape[1:] != (CHANNELS, size, size):
        raise FieldError(
            "image_size",
            "input of shape {found}: this model reads images (batch, 3, {size}, {size}), see {field}; resize or "
            "crop them",
            found=tuple(images.shape),
            size=size,
        )


def patch_count(image_size: int, patch_size: int) -> int:
    """Return the number of patches of an image, the L of its hidden states."""
    return (image_size // patch_size) ** 2
