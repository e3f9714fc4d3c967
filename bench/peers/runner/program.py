"""The programs of the peers: each run is one command, answered with a line of JSON."""

import contextlib
import json
import subprocess
import tempfile
import threading

# The longest that a command may take. A peer that hangs fails the run.
SECONDS_MAX = 900


class Program:
    """A command that runs."""

    def __init__(self, command: list[str], **options):
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        self.command = [*command, *words]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.timer = threading.Timer(SECONDS_MAX, self.process.kill)
        self.timer.daemon = True
        self.timer.start()

    def answer(self) -> dict:
        """The next line that it writes."""
        line = self.process.stdout.readline()
        if not line:
            self.fail()
        return json.loads(line)

    def tell(self, number: int) -> None:
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()

    def ended(self) -> None:
        if self.process.wait():
            self.fail()
        self.timer.cancel()

    def fail(self):
        self.process.kill()
        code = self.process.wait()
        self.timer.cancel()
        self.errors.seek(0)
        raise RuntimeError(f"{' '.join(self.command)} ended with {code}:\n{self.errors.read()[-4000:]}")


@contextlib.contextmanager
def running(command: list[str], **options):
    """A command that is ended with the block, whatever happens in it."""
    program = Program(command, **options)
    try:
        yield program
        program.ended()
    finally:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def run(command: list[str], **options) -> dict:
    with running(command, **options) as program:
        return program.answer()
