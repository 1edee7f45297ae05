"""Runs a program on a terminal of its own, as a person sees it.

terminal.py show PROGRAM...: types nothing; prints what the program showed, then `exit CODE`.
terminal.py interrupt WORD PROGRAM...: presses Ctrl-C once WORD is shown and the terminal has stopped to echo; prints
what was shown, then whether the terminal echoes again, then `exit CODE`.
terminal.py stop WORD PROGRAM...: presses Ctrl-C once WORD is shown; prints what was shown, then `exit CODE`.
terminal.py answer WORD TEXT PROGRAM...: types TEXT and Enter once WORD is shown; prints as show does.
"""

import os
import pty
import select
import subprocess
import sys
import termios
import time

PATIENCE_S = 60


def echoes(fd):
    return bool(termios.tcgetattr(fd)[3] & termios.ECHO)


def take_terminal(fd):
    os.setsid()
    import fcntl

    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def main():
    verb, args = sys.argv[1], sys.argv[2:]
    word = args.pop(0).encode() if verb in ("interrupt", "stop", "answer") else None
    answer = args.pop(0).encode() + b"\n" if verb == "answer" else b"\x03"
    ours, theirs = pty.openpty()
    assert echoes(theirs), "a new terminal echoes"
    termios.tcsetwinsize(theirs, (24, 80))
    program = subprocess.Popen(
        args, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=lambda: take_terminal(theirs)
    )
    shown, end = b"", time.monotonic() + PATIENCE_S
    while True:
        ended = program.poll() is not None
        readable = select.select([ours], [], [], 0 if ended else 0.05)[0]
        if readable:
            shown += os.read(ours, 65_536)
        elif ended:
            break
        if word and word in shown and (verb in ("stop", "answer") or not echoes(theirs)):
            os.write(ours, answer)
            word = None
        if time.monotonic() > end:
            program.kill()
            sys.exit(f"waited {PATIENCE_S} s; shown so far: {shown!r}")
    print(shown.decode().replace("\r\n", "\n"))
    if verb == "interrupt":
        print("interrupted" if word is None else "never interrupted", "with echo" if echoes(theirs) else "without echo")
    print("exit", program.returncode)


main()
