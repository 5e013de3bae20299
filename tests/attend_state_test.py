#!/usr/bin/env python3
"""Checks the state files of examples/attend.c: their header and checksum, damage, files of earlier
versions, and that a disk that is full loses nothing.

    attend_state_test.py PATH_TO_ATTEND [DATA_DIR]

Prints one line for each check and exits with 1 if any failed. Needs Python 3 alone.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

HEADER = 24
checks = failed = 0


def check(name, passed, detail=""):
    global checks, failed
    checks += 1
    failed += not passed
    print(("ok - " if passed else "not ok - ") + name + (f" ({detail})" if detail else ""),
          flush=True)


def run(*arguments):
    command = [attend, "--dir", str(data / "lm"), "--causal", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def refused(name, folder, content, says):
    """One line on stderr, which names the file; the output is what it was."""
    out, state = folder / "out.npy", folder / "state-in"
    out.write_bytes(b"older")
    state.write_bytes(content)
    done = run("--out", out, "--state-in", state)
    line = done.stderr
    check(f"refused: {name}",
          done.returncode == 2 and line.startswith(b"attend: " + bytes(state) + b": ")
          and line.count(b"\n") == 1 and line.endswith(b"\n") and says in line
          and out.read_bytes() == b"older", repr(line))


def header_of(state, version=1, checksum=None, size=None):
    checksum = zlib.crc32(state) if checksum is None else checksum
    size = len(state) if size is None else size
    return (b"LINATTNS" + version.to_bytes(4, "little") + checksum.to_bytes(4, "little")
            + size.to_bytes(8, "little"))


def test_format(folder):
    path = folder / "state"
    run("--out", folder / "out.npy", "--state-out", path)
    content = path.read_bytes()
    state = content[HEADER:]
    check("the header is as documented", content[:HEADER] == header_of(state))
    check("what follows is the library's state", state[:4] in [b"LATT", b"TTAL"])
    refused("a state alone, as version 0 was", folder, state, b"an earlier attend")
    refused("a later version", folder, header_of(state, version=2) + state, b"version 2")
    refused("another checksum", folder, header_of(state, checksum=zlib.crc32(state) ^ 1) + state,
            b"damaged")
    refused("another size", folder, header_of(state, size=len(state) + 4) + state, b"bytes")
    refused("the largest size", folder, header_of(state, size=2**64 - 1) + state, b"bytes")
    refused("an empty file", folder, b"", b"not a state")
    refused("a header alone", folder, content[:HEADER], b"truncated")
    refused("a part of a magic string", folder, content[:7], b"not a state")
    for size in [8, 10, HEADER - 1]:
        refused(f"{size} bytes of a header", folder, content[:size], b"truncated")
    refused("a state that ends early", folder, content[:-1], b"truncated")
    refused("a byte too many", folder, content + b"\0", b"behind its end")
    refused("no state", folder, b"x" * len(content), b"not a state")
    changed = bytearray(state)
    changed[8] ^= 255  # the header of the state itself, with a checksum that agrees
    refused("a state of other options", folder, header_of(changed) + changed, b"not a state")


def test_damage(folder):
    """Every byte of the header, and many of the state, with one bit changed."""
    path, out = folder / "state", folder / "out.npy"
    run("--out", out, "--state-out", path, "--map", "exp")
    content, missed = path.read_bytes(), []
    for at in [*range(HEADER), *range(HEADER, len(content), len(content) // 100)]:
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        if run("--out", out, "--map", "exp", "--state-in", path).returncode != 2:
            missed.append(at)
    check("a changed bit is found", not missed, missed or "")


def test_full_disk(folder):
    """A file system with room for the old state and half of the new one."""
    disk = folder / "disk"
    disk.mkdir()
    out, state = disk / "out.npy", disk / "state"
    run("--out", folder / "out.npy", "--state-out", folder / "state")
    content = (folder / "state").read_bytes()
    size = 4096 * (len(content) * 3 // 2 // 4096)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk],
                             stderr=subprocess.PIPE)
    if mounted.returncode != 0:
        print("not run - a full disk: nothing can be mounted here")
        return
    try:
        state.write_bytes(content)
        done = run("--out", folder / "out.npy", "--state-out", state, "--split", "7")
        check("a full disk is reported", done.returncode == 2 and done.stderr.count(b"\n") == 1
              and b"cannot be written" in done.stderr, repr(done.stderr))
        check("the old state is whole", state.read_bytes() == content)
        check("nothing else is left there", os.listdir(disk) == ["state"])
        done = run("--out", folder / "out.npy", "--state-in", state, "--state-out", state)
        check("nor is it lost where it is continued in place",
              done.returncode == 2 and state.read_bytes() == content)
        done = run("--out", out, "--state-out", folder / "state")
        check("an output without room leaves the other file as it was",
              done.returncode == 2 and not out.exists()
              and (folder / "state").read_bytes() == content, repr(done.stderr))
    finally:
        subprocess.run(["umount", disk])


def main():
    global attend, data
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__.strip())
    here = pathlib.Path(__file__).resolve().parent
    attend = os.path.abspath(sys.argv[1])
    data = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else here.parent / "examples/data"
    for test in [test_format, test_damage, test_full_disk]:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
    print(f"{checks} checks, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
