#!/usr/bin/env python3
"""Makes stream.wav, a sound for examples/stream.c: 8 s, 16 kHz, mono, 16 bits.

    stream_clip.py stream.wav

A bar of a second, notes and drums, is played eight times, over a little noise. At 3.0 s a bell
joins in, which is new; at 5.5 s a whistle, which is new, too; at 7.0 s the same bell again. Needs
Python 3 alone; the random numbers are those of a fixed seed.
"""
import math
import random
import struct
import sys
import wave

RATE, BARS = 16000, 8
NEW_BELL, WHISTLE, SAME_BELL = 3.0, 5.5, 7.0  # seconds
NOTES = [262, 330, 392, 330]  # Hz, in each bar


def note(pitch):
    return lambda t: (0.2 * min(1, t / 0.005) * math.exp(-6 * t)
                      * sum(math.sin(2 * math.pi * pitch * n * t) / n for n in range(1, 5)))


def drum(t):
    return 0.5 * math.exp(-18 * t) * math.sin(2 * math.pi * (55 * t + 3 * (1 - math.exp(-30 * t))))


def bell(t):
    return (0.15 * min(1, t / 0.002) * math.exp(-5 * t)
            * sum(math.sin(2 * math.pi * f * t) for f in (1370, 2230, 3610)))


def whistle(t):
    return (0.25 * math.sqrt(math.sin(math.pi * t / 0.3))
            * math.sin(2 * math.pi * (4500 * t + 5000 * t * t)))


def make_clip():
    """Samples from -32768 to 32767."""
    numbers = random.Random(1)
    clip = [0.0] * (RATE * BARS)

    def add(at, seconds, sound):
        first = int(at * RATE)
        for i in range(int(seconds * RATE)):
            clip[first + i] += sound(i / RATE)

    def cymbal(t):
        return 0.12 * math.exp(-60 * t) * (2 * numbers.random() - 1)

    for bar in range(BARS):
        for i, pitch in enumerate(NOTES):
            add(bar + i / 4, 0.25, note(pitch))
            add(bar + i / 4 + 0.125, 0.1, cymbal)
        add(bar, 0.25, drum)
        add(bar + 0.5, 0.25, drum)
    add(NEW_BELL, 0.5, bell)
    add(WHISTLE, 0.3, whistle)
    add(SAME_BELL, 0.5, bell)
    return [max(-32768, min(32767, round(32767 * (x + 0.001 * (2 * numbers.random() - 1)))))
            for x in clip]


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    clip = make_clip()
    with open(sys.argv[1], "wb") as out, wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(struct.pack(f"<{len(clip)}h", *clip))


if __name__ == "__main__":
    try:
        main()
    except OSError as problem:
        sys.exit(f"stream_clip.py: {problem}")
