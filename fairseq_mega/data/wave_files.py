"""Recordings in WAV files."""

import io
import wave

import numpy as np

RATE = 16_000  # samples per second of Speech Commands


def read_wave(name: str, content: bytes) -> np.ndarray:
    """Return the samples of a 16-bit mono WAV file at 16 kHz, (n,) int16; raises ValueError naming any other file."""
    try:
        with wave.open(io.BytesIO(content)) as clip:
            form = (clip.getnchannels(), clip.getsampwidth(), clip.getframerate())
            data = clip.readframes(clip.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{name} cannot be read as WAV: {error}; get a new copy") from error
    if form != (1, 2, RATE):
        raise ValueError(
            f"{name}: one channel of 16 bits at {RATE} Hz is needed, "
            f"found {form[0]} of {8 * form[1]} bits at {form[2]} Hz; convert it, for example with "
            f"`ffmpeg -i IN.wav -ac 1 -ar {RATE} -c:a pcm_s16le OUT.wav`"
        )
    return np.frombuffer(data[: len(data) // 2 * 2], dtype="<i2")
