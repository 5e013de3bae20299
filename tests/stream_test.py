#!/usr/bin/env python3
"""Checks examples/stream.c from outside: what it tells of a sound against a model of it in NumPy,
in double precision; the events of examples/data/stream.wav; equal bytes on every instruction set,
with two threads, and from a copy; WAV files of all kinds, and damaged ones.

    stream_test.py PATH_TO_STREAM [DATA_DIR]

STREAM_RUN is put before the program, say "qemu-aarch64". Prints one line for each check and exits
with 1 if any failed. Needs Python 3 and NumPy.
"""
import importlib.util
import os
import pty
import struct
import sys
import time

sys.dont_write_bytecode = True  # beside the source

import numpy as np

import checks
from checks import OUT, check, check_common_options, present_isas, refuse, run

BANDS, LATE = 16, 20
MEMORIES = [0.3, 1, 10, 60]  # seconds
EXTENDED = bytes([0, 0, 0, 0, 16, 0, 128, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71])


# ---- The model: from the formulas in stream.c, the filters by their response to frequencies ------

def band_energies(x, rate):
    """Of each hop and band, over -60 dB. The analogue filter s / (s^2 + k s + 1), s = (z - 1) /
    (z + 1) / g, in the frequencies of the whole signal."""
    low, high = np.pi * 60 / rate, min(np.pi * 16000 / rate, 3)
    k = np.log(high / low) / (BANDS - 1)
    g = low * np.exp(k * np.arange(BANDS))[:, None]
    length = len(x) + rate  # they ring for less than a second
    z = np.exp(2j * np.pi * np.fft.rfftfreq(length))
    with np.errstate(divide="ignore", invalid="ignore"):
        s = (z - 1) / (z + 1) / g
        response = 1 / (s + k + 1 / s)
    response[:, 0] = 0
    bands = np.fft.irfft(np.fft.rfft(x, length) * response, length)[:, :len(x)]
    ends = np.arange(len(x) * 100 // rate + 1) * rate // 100
    sums = np.concatenate([np.zeros((BANDS, 1)), np.cumsum((k * bands) ** 2, axis=1)], axis=1)
    return (np.diff(sums[:, ends]) / np.diff(ends)).T / 1e-6


def features(energies):
    above = np.log1p(energies)
    above = np.maximum(above - above.mean(axis=1, keepdims=True), 0)
    return above / np.sqrt((above ** 2).sum(axis=1, keepdims=True) + 1e-6)


def novelty(hops):
    """Of each hop against each memory S: forget, correct by what is LATE hops old, ask."""
    decay = np.exp(-0.01 / np.array(MEMORIES))[:, None, None]
    S, out = np.zeros((len(MEMORIES), BANDS, BANDS)), np.zeros((len(hops), len(MEMORIES)))
    for t, hop in enumerate(hops):
        S = decay * S
        if t >= LATE:
            old = hops[t - LATE]
            S = S + old[:, None] * (old - old @ S)[:, None, :]
        answer = hop @ S
        similar = (2 * answer @ hop + 0.01) / ((answer ** 2).sum(axis=1) + hop @ hop + 0.01)
        out[t] = 1 - np.maximum(similar, 0)
    return out


# ---- WAV files -----------------------------------------------------------------------------------

def chunk(name, body, padding=b"\0"):
    return name + struct.pack("<I", len(body)) + body + (padding if len(body) % 2 else b"")


def riff(*chunks):
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def format_chunk(kind, channels, rate, bits, frame=None, extended=False):
    frame = channels * bits // 8 if frame is None else frame
    body = struct.pack("<HHIIHH", 0xfffe if extended else kind, channels, rate, rate * frame, frame,
                       bits)
    if extended:
        body += struct.pack("<HHIH", 22, bits, 0, kind) + EXTENDED
    return chunk(b"fmt ", body)


def encoded(x, bits):
    """Samples from -1 to 1, of shape (n) or (n, channels)."""
    return (np.round(x * 32768).clip(-32768, 32767).astype("<i2") if bits == 16
            else x.astype("<f4")).tobytes()


def wav(path, x, rate, bits=16, extended=False):
    channels = 1 if x.ndim == 1 else x.shape[1]
    path.write_bytes(riff(format_chunk(1 if bits == 16 else 3, channels, rate, bits,
                                       extended=extended),
                          chunk(b"data", encoded(x, bits))))
    return path


def samples_of(clip):
    return np.frombuffer(clip.read_bytes()[44:], "<i2") / 32768


# ---- Running -------------------------------------------------------------------------------------

def stream(clip, *options):
    """The bytes of the novelty against the best memory, and against each."""
    out, each = clip.parent / "out.npy", clip.parent / "each.npy"
    done = run(clip, "--out", out, "--memories", each, "--quiet", *options)
    if done.returncode or done.stdout or done.stderr:
        raise RuntimeError(f"{options}: {done.returncode} {done.stdout!r} {done.stderr!r}")
    return out.read_bytes(), each.read_bytes()


def arrays(clip, *options):
    stream(clip, *options)
    return np.load(clip.parent / "out.npy"), np.load(clip.parent / "each.npy")


def noise(seconds, rate, channels=1):
    """Noise that changes its colour and its loudness every tenth of a second."""
    g = np.random.default_rng(rate)
    tenth = np.arange(int(seconds * rate)) * 10 // rate
    x = g.uniform(-1, 1, (len(tenth), channels))
    dark = np.stack([np.convolve(c, np.ones(rate // 500) * 0.1, "same") for c in x.T], axis=1)
    loudness = 10.0 ** g.uniform(-1.5, 0, tenth[-1] + 1)[tenth]
    return np.clip(np.where(tenth[:, None] % 3 == 0, dark, x), -1, 0.99) * loudness[:, None]


# ---- What it tells -------------------------------------------------------------------------------

def check_model(name, clip, x, rate, *options):
    out, each = arrays(clip, *options)
    expected = novelty(features(band_energies(x, rate)))
    error = abs(each - expected).max() if each.shape == expected.shape else np.inf
    check(f"{name}: as the model has it", error < 2e-5 and out.dtype == each.dtype == np.float32
          and np.array_equal(out, each.min(axis=1)), f"{error:.1g}")


def test_model(work, clip):
    check_model("the clip", clip, samples_of(clip), 16000)
    for rate, bits, channels in [(8000, 16, 1), (11025, 32, 2), (44100, 16, 2), (48000, 32, 1),
                                 (96000, 16, 1), (192000, 32, 2)]:
        x = noise(2.5, rate, channels)
        x = np.frombuffer(encoded(x, bits), "<i2" if bits == 16 else "<f4").reshape(x.shape)
        x = x.astype(np.float64) / (32768 if bits == 16 else 1)
        path = wav(work / f"{rate}.wav", x if channels == 2 else x[:, 0], rate, bits)
        check_model(f"{rate} Hz, {bits} bits, {channels} channels", path, x.mean(axis=1), rate)


def test_events(_, clip, script):
    out, each = arrays(clip)
    at = {name: int(100 * getattr(script, name)) for name in ["NEW_BELL", "WHISTLE", "SAME_BELL"]}
    bars = out.reshape(-1, 100).mean(axis=1)
    check("all is new at first, and then less in each bar",
          (out[:15] > 0.9).all() and bars[0] > 4 * bars[1] > 4 * bars[2] / 0.75,
          " ".join(f"{b:.3f}" for b in bars))
    bell, whistle = [out[at[name]:at[name] + 20].max() for name in ["NEW_BELL", "WHISTLE"]]
    known = np.ones(len(out), bool)
    known[:150] = False
    for name in ["NEW_BELL", "WHISTLE"]:
        known[at[name]:at[name] + 60] = False
    check("the bell and the whistle stand out", min(bell, whistle) > 0.4 > 3 * out[known].max(),
          f"{bell:.2f}, {whistle:.2f}, all else below {out[known].max():.2f}")
    again = each[at["SAME_BELL"]:at["SAME_BELL"] + 20].max(axis=0)
    first = each[at["NEW_BELL"]:at["NEW_BELL"] + 20].max(axis=0)
    check("four seconds later the bell is known to the long memories alone",
          (again[:2] > 0.9 * first[:2]).all() and (again[2:] < first[2:] / 3).all(),
          " ".join(f"{x:.2f}" for x in again))


def test_silence(work):
    rate = 16000
    quiet = np.concatenate([noise(0.5, rate)[:, 0], np.zeros(rate), np.full(rate, 1e-20),
                            1e-9 * noise(1, rate)[:, 0]])
    out, _ = arrays(wav(work / "quiet.wav", quiet, rate, 32))
    check("silence is not new", np.isfinite(out).all() and out[100:].max() < 1e-3,
          f"{out[100:].max():.1g}")
    loud = 1e6 * np.sign(noise(1, rate)[:, 0])
    out, _ = arrays(wav(work / "loud.wav", loud, rate, 32))
    check("the loudest floats do not overflow", np.isfinite(out).all() and out.max() <= 1)


def test_clip(_, clip, script):
    made = np.array(script.make_clip())
    check("the clip is the one that its script makes", len(clip.read_bytes()) <= 300 * 1024
          and abs(made - np.round(32768 * samples_of(clip))).max() <= 1)


# ---- The same bytes ------------------------------------------------------------------------------

def test_same_bytes(work, clip):
    whole = stream(clip, "--isa", "scalar")
    isas = list(present_isas(clip, "--quiet", "--hops", 1))
    for isa in isas:
        check(f"the same bytes: {isa}", stream(clip, "--isa", isa) == whole)
    check("the same bytes: two threads in turn", stream(clip, "--handoff") == whole)
    done = run(clip, "--isa", "all", "--hops", 20)
    rows = [line.split() for line in done.stdout.splitlines() if b"the same bits" in line]
    check("--isa all has a row for each", done.returncode == 0
          and sorted(row[0].decode() for row in rows) == sorted(isas))
    best, each = arrays(clip, "--hops", 2000)
    once, once_each = arrays(clip)
    check("a clip begins again", best.shape == (2000,) and each.shape == (2000, 4)
          and np.array_equal(best[:800], once) and np.array_equal(each[:800], once_each)
          and best[800:1600].max() < 0.5)
    check_copies(work, clip, each)
    begin = time.monotonic()
    paced, _ = arrays(clip, "--hops", 40, "--realtime")
    seconds = time.monotonic() - begin
    check("--realtime takes its time", 0.4 <= seconds and np.array_equal(paced, best[:40]),
          f"{seconds:.2f} s")


def check_copies(work, clip, each):
    """A run from a copy is the rest of the whole."""
    for how in [["--realtime", "--hops", 50], ["--hops", 1500], ["--hops", 1500, "--handoff"],
                ["--hops", 1]]:
        saved = work / "saved"
        done = run(clip, "--save", saved, *how)
        copies, hop = [int(line.split()[i]) for line in done.stdout.splitlines()
                       if b"copies were taken" in line for i in (0, -1)]
        _, rest = arrays(clip, "--resume", saved, "--hops", 2000 - hop)
        check(f"goes on from a copy that was taken in a run with {how}", copies >= 1
              and 1 <= hop <= how[how.index("--hops") + 1] and np.array_equal(rest, each[hop:]),
              f"{copies} copies, the last after hop {hop}")


# ---- Files ---------------------------------------------------------------------------------------

def test_formats(work, clip):
    x = samples_of(clip)[:40000]
    rate, sound = 16000, encoded(x, 16)
    plain = wav(work / "plain.wav", x, rate)
    expected = stream(plain)
    mono, data, list_ = format_chunk(1, 1, rate, 16), chunk(b"data", sound), chunk(b"LIST", b"odd")
    pair = np.stack([x + 0.125, x - 0.125], axis=1)
    files = {
        "floats": riff(format_chunk(3, 1, rate, 32), chunk(b"data", encoded(x, 32))),
        "stereo": riff(format_chunk(1, 2, rate, 16), chunk(b"data", encoded(np.stack([x, x], 1),
                                                                            16))),
        "stereo of floats": riff(format_chunk(3, 2, rate, 32), chunk(b"data", encoded(pair, 32))),
        "extensible": riff(format_chunk(1, 1, rate, 16, extended=True), data),
        "extensible, floats": riff(format_chunk(3, 1, rate, 32, extended=True),
                                   chunk(b"data", encoded(x, 32))),
        "a format of 18 bytes": riff(chunk(b"fmt ", mono[8:] + b"\0\0"), data),
        "chunks of no interest": riff(chunk(b"JUNK", b""), mono, list_, data, list_),
        "the data first": riff(list_, data, mono),
        "no padding at the end": riff(mono, data, chunk(b"LIST", b"odd", b"")),
        "bytes behind the end": riff(mono, data) + b"anything",
        "less than a hop at the end": riff(mono, chunk(b"data", sound + bytes(2 * 159))),
    }
    for name, content in files.items():
        path = work / "file.wav"
        path.write_bytes(content)
        check(f"reads {name}", stream(path) == expected)


def test_damaged(work, clip):
    sound = encoded(samples_of(clip)[:400], 16)
    mono, data = format_chunk(1, 1, 16000, 16), chunk(b"data", sound)
    whole = riff(mono, data)
    odd_float = np.array([0, np.nan] + [0] * 200, "<f4")
    damaged = {
        "an empty file": (b"", b"RIFF"),
        "another kind of file": (b"RIFX" + whole[4:], b"RIFF"),
        "no WAVE": (whole[:8] + b"AVI " + whole[12:], b"WAVE"),
        "a file cut short": (whole[:-1], b"truncated"),
        "a form of no size": (whole[:4] + bytes(4) + whole[8:], b"damaged"),
        "a form of unknown size": (whole[:4] + b"\xff" * 4 + whole[8:], b"truncated"),
        "a chunk that is too long": (riff(mono, data[:4] + struct.pack("<I", 801) + data[8:]),
                                     b"801"),
        "a chunk of 4 GiB": (riff(mono, b"LIST" + b"\xff" * 4 + data), b"LIST"),
        "bytes behind the last chunk": (riff(mono, data, b"LIST\0\0"), b"last chunk"),
        "no format": (riff(data), b"fmt"),
        "no data": (riff(mono), b"data"),
        "two formats": (riff(mono, mono, data), b"two chunks"),
        "two chunks of data": (riff(mono, data, data), b"two chunks"),
        "a short format": (riff(chunk(b"fmt ", mono[8:22]), data), b"14 bytes"),
        "half a sample": (riff(mono, chunk(b"data", sound + b"\0")), b"units of 2"),
        "8 bits": (riff(format_chunk(1, 1, 16000, 8), data), b"8 bits"),
        "24 bits": (riff(format_chunk(1, 1, 16000, 24), data), b"24 bits"),
        "double precision": (riff(format_chunk(3, 1, 16000, 64), data), b"64 bits"),
        "mu-law": (riff(format_chunk(7, 1, 16000, 16), data), b"format 7"),
        "no channel": (riff(format_chunk(1, 0, 16000, 16), data), b"0 channels"),
        "6 channels": (riff(format_chunk(1, 6, 16000, 16), data), b"6 channels"),
        "a wrong size of samples": (riff(format_chunk(1, 1, 16000, 16, frame=4), data), b"4 bytes"),
        "samples of no size": (riff(format_chunk(1, 1, 16000, 16, frame=0), data), b"0 bytes"),
        "7999 Hz": (riff(format_chunk(1, 1, 7999, 16), data), b"7999"),
        "192001 Hz": (riff(format_chunk(1, 1, 192001, 16), data), b"192001"),
        "an unknown extension": (riff(format_chunk(1, 1, 16000, 16, extended=True)[:-1] + b"x",
                                      data), b"extensible"),
        "an extension cut short": (riff(chunk(b"fmt ", struct.pack("<H", 0xfffe) + mono[10:]),
                                        data), b"extensible"),
        "less than a hop": (riff(mono, chunk(b"data", bytes(2 * 159))), b"hop"),
        "no sample": (riff(mono, chunk(b"data", b"")), b"hop"),
        "a NaN": (riff(format_chunk(3, 1, 16000, 32), chunk(b"data", odd_float.tobytes())),
                  b"sample 1 "),
    }
    for name, (content, says) in damaged.items():
        path = work / "damaged.wav"
        path.write_bytes(content)
        refuse(name, path, "--out", OUT, says=[b"damaged.wav", says])
    refuse("a file that is not there", work / "none.wav", "--out", OUT, says=[b"none.wav"])
    refuse("a folder", work, "--out", OUT, says=[b"regular file"])
    extended = format_chunk(1, 2, 16000, 16, extended=True)
    check_any_damage(work, riff(chunk(b"LIST", b"odd"), extended, data))


def check_any_damage(work, whole):
    """Cut anywhere near its beginning, or with a byte changed, it is read or refused in a line."""
    g = np.random.default_rng(1)
    path, wrong, refused, tried = work / "any.wav", [], 0, 0
    header = len(whole) - 800
    for at in range(header + 8):
        changed = bytearray(whole)
        changed[at % header] = g.choice([0, 1, 127, 128, 255, changed[at % header] ^ 16])
        for content in [whole[:at], bytes(changed)]:
            path.write_bytes(content)
            done = run(path, "--quiet")
            tried += 1
            refused += done.returncode == 2
            if not (done.returncode == 0 and not done.stderr
                    or done.returncode == 2 and done.stderr.count(b"\n") == 1):
                wrong.append((at, done.returncode, done.stderr))
    check("any damage is read or refused in a line", not wrong and refused > tried / 2,
          str(wrong[:3] or f"{tried} files, {refused} refused"))


def test_states(work, clip):
    saved, other = work / "saved", work / "other"
    run(clip, "--save", saved, "--hops", 30)
    content = saved.read_bytes()
    for name, wrong in {"cut short": content[:-1], "with a byte more": content + b"\0",
                        "of no bytes": b"", "of zeros": bytes(len(content))}.items():
        other.write_bytes(wrong)
        refuse(f"a copy {name}", clip, "--resume", other, "--out", OUT, says=[b"other"])
    for at in [0, 130, len(content) // 2, len(content) - 9, len(content) - 1]:
        other.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1:])
        refuse(f"a copy with a bit changed in byte {at}", clip, "--resume", other, "--out", OUT,
               says=[b"other", b"damaged"])
    for at, says in {7: b"damaged", 15: b"version", 20: b"damaged", 30: b"damaged"}.items():
        other.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
        refuse(f"a copy with a bit changed in byte {at}, of its clip", clip, "--resume", other,
               "--out", OUT, says=[b"other", says])
    x = samples_of(clip)
    louder = x.copy()
    louder[-1] += 1 / 32768  # behind all that the copy has heard
    others = {"another rate": (x[:32000], 32000, [b"16000", b"32000"]),
              "more samples": (np.append(x, 0), 16000, [str(len(x) + 1).encode()]),
              "fewer samples": (x[:-1], 16000, [str(len(x) - 1).encode()]),
              "another sample": (louder, 16000, [b"another clip", b"another.wav"]),
              "other samples": (x[::-1], 16000, [b"another clip"])}
    for name, (samples, rate, says) in others.items():
        refuse(f"a copy of a clip with {name}", wav(work / "another.wav", samples, rate),
               "--resume", saved, "--out", OUT, says=[b"saved", *says])
    same = wav(work / "same.wav", x, 16000, 32)
    done = run(same, "--resume", saved, "--quiet", "--hops", 1)
    check("the same samples in a file of another format are the same clip",
          done.returncode == 0 and not done.stderr, repr(done.stderr))
    version_1 = content[32:-8]
    other.write_bytes(version_1 + struct.pack("<Q", fnv_1a(version_1)))
    refuse("a copy of version 1", clip, "--resume", other, "--out", OUT,
           says=[b"other", b"earlier version"])


def fnv_1a(content):
    value = 0xcbf29ce484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return value


# ---- Times, the terminal, options ----------------------------------------------------------------

def test_times(work, clip):
    path = work / "times.npy"
    done = run(clip, "--times", path, "--hops", 10000)
    times = np.load(path).astype(np.float64)
    check("--times has both times of each hop", times.shape == (10000, 2) and (times > 0).all()
          and (times[:, 1] < times[:, 0]).all() and times.max() < 10)
    row = [float(x) for x in done.stdout.splitlines()[-1].split()[1:7]]
    times = np.sort(1e6 * times, axis=0)
    expected = [times[rank - 1, column] for column in (0, 1) for rank in (5000, 9999, 10000)]
    check("the table has their median, 99.99th percentile and worst",
          np.allclose(row, expected, rtol=1e-4, atol=0.006), f"{row}")


def on_terminal(*arguments):
    """What the program prints on a terminal."""
    ours, its = pty.openpty()
    try:
        done = run(*arguments, stdout=its)
        os.close(its)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # it is closed
                break
            if not part:
                break
            shown += part
    finally:
        os.close(ours)
    return done, shown


def test_meter(_, clip):
    done, shown = on_terminal(clip, "--hops", 50)
    frames = shown.split(b"\r")[1:]
    meters = [frame for frame in frames if b" |" in frame]
    check("the meter is one line of at most 79 characters", done.returncode == 0
          and len(meters) == 10 and b"0.01 s  0.99 |################|" in meters[0]
          and max(map(len, meters)) <= 79 and not any(b"\n" in m for m in meters[:-1]),
          f"{len(meters)} of up to {max(map(len, meters), default=0)}")
    _, shown = on_terminal(clip, "--hops", 50, "--quiet")
    check("--quiet prints nothing on a terminal", shown == b"")
    done = run(clip, "--hops", 50)
    check("elsewhere there is the table alone", b"\r" not in done.stdout
          and b"linattn_recurrent" in done.stdout and not done.stderr)


def test_options(work, clip):
    cases = {
        "no clip": ([], [b"CLIP.wav"]),
        "an unknown option": ([clip, "--no-such"], [b"--no-such"]),
        "no hop": ([clip, "--hops", 0], [b"--hops"]),
        "too many hops": ([clip, "--hops", 2 ** 63], [b"--hops"]),
        "an unknown instruction set": ([clip, "--isa", "mmx"],
                                       [b"mmx", b"scalar", b", all\n"]),
        "--isa all and --times": ([clip, "--isa", "all", "--times", OUT], [b"--times"]),
        "--isa all and --save": ([clip, "--isa", "all", "--save", OUT], [b"--save"]),
        "--isa all and --realtime": ([clip, "--isa", "all", "--realtime"], [b"--realtime"]),
        "one file for two outputs": ([clip, "--out", OUT, "--times", OUT], [b"same file"]),
        "an output that cannot be": ([clip, "--out", work / "none" / "out.npy"], [b"none"]),
    }
    for name, (arguments, says) in cases.items():
        refuse(name, *arguments, says=says)
    check_common_options(clip)
    done = run("--help")
    names = ["out", "memories", "times", "hops", "isa", "realtime", "handoff", "save", "resume",
             "quiet", "help"]
    check("--help names every option", done.returncode == 0 and not done.stderr
          and all(b"--" + name.encode() in done.stdout for name in names))
    if os.path.exists("/dev/full"):
        done = run(clip, "--quiet", "--out", "/dev/full")
        check("a full disk is a failure", done.returncode == 2 and b"/dev/full" in done.stderr)


def make_tests(work, data):
    spec = importlib.util.spec_from_file_location("stream_clip", data / "stream_clip.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    clip = work / "stream.wav"
    clip.write_bytes((data / "stream.wav").read_bytes())
    return {test_model: (clip,), test_events: (clip, script), test_silence: (),
            test_clip: (clip, script), test_same_bytes: (clip,), test_formats: (clip,),
            test_damaged: (clip,), test_states: (clip,), test_times: (clip,), test_meter: (clip,),
            test_options: (clip,)}


if __name__ == "__main__":
    checks.main("stream", __doc__, make_tests)
