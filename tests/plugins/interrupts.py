"""Ctrl-C works in the programs that tests start, also where somebody has started the tests in the background: a shell has
those ignore it, and what they start would do so, too."""

import signal
import threading

IGNORED = signal.getsignal(signal.SIGINT) is signal.SIG_IGN

if IGNORED and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
