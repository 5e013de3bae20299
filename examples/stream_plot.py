#!/usr/bin/env python3
"""Draws what examples/stream.c told of a clip, and how long its hops took.

    stream_plot.py CLIP.wav MEMORIES.npy PICTURE.png TIMES.npy...

CLIP.wav has integers of 16 bits, MEMORIES.npy is from --memories, each TIMES.npy from --times, with
a name that says of what:

    ./stream clip.wav --memories memories.npy
    for isa in scalar avx2 avx512; do
        ./stream clip.wav --isa $isa --times $isa.npy --hops 100000
    done
    examples/stream_plot.py clip.wav memories.npy picture.png scalar.npy avx2.npy avx512.npy

Needs Python 3, NumPy and Matplotlib.
"""
import pathlib
import sys
import wave

try:
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError as missing:
    sys.exit(f"stream_plot.py: {sys.executable}: {missing}. Install python3-numpy and"
             " python3-matplotlib (or with pip: numpy matplotlib), or use a python3 that has them.")

MEMORIES = ["0.3 s", "1 s", "10 s", "60 s"]
DEADLINE = 1e4  # us


def read_clip(path):
    """Mono, and the samples per second."""
    try:
        file = wave.open(path)
    except (wave.Error, EOFError) as problem:
        sys.exit(f"stream_plot.py: {path}: not a WAV file: {problem}")
    with file:
        if file.getsampwidth() != 2:
            sys.exit(f"stream_plot.py: {path}: expected integers of 16 bits")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        return samples.reshape(-1, file.getnchannels()).mean(axis=1), file.getframerate()


def draw_signal(axes, samples, rate):
    """The extremes of every 2 ms: more is not to be seen."""
    step = rate // 500
    parts = samples[:len(samples) // step * step].reshape(-1, step)
    axes.fill_between(np.arange(len(parts)) * step / rate, parts.min(axis=1), parts.max(axis=1),
                      color="0.35", linewidth=0)
    axes.set(ylabel="signal\n(full scale 1)", ylim=(-1, 1))


def draw_novelty(axes, memories):
    seconds = np.arange(len(memories)) / 100
    for i, name in enumerate(MEMORIES):
        axes.plot(seconds, memories[:, i], color=plt.cm.viridis_r(0.15 + 0.28 * i), linewidth=1,
                  label=f"memory of {name}")
    axes.set(xlabel="time (s)", ylabel="novelty\n(0 known, 1 new)", xlim=(0, len(memories) / 100),
             ylim=(0, 1.35), yticks=[0, 0.5, 1])
    axes.legend(fontsize=9, ncol=4, loc="upper right")


def draw_times(axes, files):
    bins = np.geomspace(0.3, 2 * DEADLINE, 140)
    for i, path in enumerate(files):
        times, name = 1e6 * np.load(path), path.stem
        for column, style, what in [(0, "-", "whole hop"), (1, ":", "linattn_recurrent")]:
            axes.hist(times[:, column], bins, histtype="step", color=f"C{i}", linestyle=style,
                      label=f"{name}, {what}")
    axes.axvline(DEADLINE, color="red", linewidth=1)
    axes.text(0.95 * DEADLINE, 1000, "the deadline, 10 ms", color="red", rotation=90, ha="right",
              va="center", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="time of a hop (µs)",
             ylabel=f"hops,\nof {len(times)} each", xlim=(bins[0], bins[-1]), ylim=(0.7, None))
    axes.legend(fontsize=9, loc="upper right", bbox_to_anchor=(0.92, 1))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    clip, memories, picture = sys.argv[1:4]
    figure, axes = plt.subplots(3, 1, figsize=(9, 7.5), height_ratios=[2, 3, 4],
                                layout="constrained")
    samples, rate = read_clip(clip)
    draw_signal(axes[0], samples, rate)
    draw_novelty(axes[1], np.load(memories)[:len(samples) * 100 // rate])
    draw_times(axes[2], [pathlib.Path(path) for path in sys.argv[4:]])
    axes[0].set_xlim(axes[1].get_xlim())
    axes[0].set_xticklabels([])
    for a in axes:
        a.grid(alpha=0.3)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    try:
        main()
    except OSError as problem:
        sys.exit(f"stream_plot.py: {problem}")
