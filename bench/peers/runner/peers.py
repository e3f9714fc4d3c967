"""Who is measured, and how each of them is installed: by package name, into the folder `.work`."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
WORK = HERE / ".work"
NODE = WORK / "node"
PYTHON = WORK / "python"
TARGET = WORK / "target"


@dataclass(frozen=True)
class Peer:
    name: str
    #: `postgres` or `sqlite`
    store: str
    #: What it is installed with.
    kind: str
    #: The program, in the folder of its kind.
    program: str
    #: What its drain and bulk are divided by: those who need minutes have less to do.
    slow: int = 1
    #: Whether each job has an idempotency key of its own.
    keys: bool = False

    def command(self) -> list[str]:
        match self.kind:
            case "node":
                return [str(NODE / "node_modules/.bin/node"), str(NODE / self.program)]
            case "python":
                return [str(PYTHON / "bin/python"), "-B", str(HERE / "python" / self.program)]
            case "rust" | "ours":
                return [str(TARGET / "release" / self.program)]


PEERS = [
    Peer("plimsoll", "postgres", "ours", "peer-plimsoll"),
    Peer("plimsoll-keys", "postgres", "ours", "peer-plimsoll", keys=True),
    Peer("graphile-worker", "postgres", "node", "graphile-worker.mjs"),
    Peer("pg-boss", "postgres", "node", "pg-boss.mjs"),
    Peer("awa", "postgres", "rust", "peer-awa"),
    Peer("apalis-postgres", "postgres", "rust", "peer-apalis-postgres"),
    Peer("procrastinate", "postgres", "python", "procrastinate_peer.py", slow=10),
    Peer("plimsoll-sqlite", "sqlite", "ours", "peer-plimsoll"),
    Peer("plimsoll-sqlite-keys", "sqlite", "ours", "peer-plimsoll", keys=True),
    Peer("apalis-sqlite", "sqlite", "rust", "peer-apalis-sqlite", slow=5),
]


def install(kinds: set[str]) -> None:
    """Whatever cannot be installed ends the run."""
    WORK.mkdir(exist_ok=True)
    for kind in sorted(kinds):
        print(f"installing: {kind}", flush=True)
        {"node": node, "python": python, "rust": rust, "ours": ours}[kind]()


def node() -> None:
    # Node finds packages beside the scripts that ask for them.
    NODE.mkdir(exist_ok=True)
    for file in (HERE / "node").iterdir():
        shutil.copy(file, NODE)
    do("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error", cwd=NODE)


def python() -> None:
    if not (PYTHON / "bin/python").exists():
        do("python3", "-m", "venv", str(PYTHON))
    do(str(PYTHON / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(HERE / "python/requirements.txt"))


def rust() -> None:
    cargo(HERE / "rust")


def ours() -> None:
    cargo(HERE / "rust/plimsoll")


def cargo(folder: Path) -> None:
    do("cargo", "build", "--release", "--quiet", cwd=folder, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)})


def do(*command: str, **options) -> None:
    subprocess.run(command, check=True, **options)
