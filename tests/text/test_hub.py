"""A tokenizer by its name on the hub, from a server on loopback that speaks the hub's way."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from .test_tokenizers import metaspace_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The address of a hub with one repository, `team/model`."""
    metaspace_tokenizer(tmp_path / "tokenizer.json")
    config = json.dumps({"eos_token": "<unk>"}).encode()
    files = {"tokenizer.json": (tmp_path / "tokenizer.json").read_bytes(), "tokenizer_config.json": config}

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            name = self.path.rsplit("/", 1)[-1]
            known = self.path.startswith("/team/model/resolve/") and name in files
            data = files[name] if known else b"not found"
            self.send_response(200 if known else 404)
            if not known:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def prepared(tmp_path: Path, hub: str, name: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "in.txt").write_text("the quick brown fox")
    words = ["--input_files", str(tmp_path / "in.txt"), "--out_dir", str(tmp_path / "out"), "--tokenization", name]
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    environment["HF_HUB_OFFLINE"] = "0"
    command = [sys.executable, "-m", "penstock", "prepare", *words, "--val_fraction", "0", "--json"]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_a_hub_name_is_fetched_with_its_end_of_text(tmp_path: Path, hub: str) -> None:
    done = prepared(tmp_path, hub, "team/model")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokenizer"] == "team/model"
    manifest = json.loads((tmp_path / "out" / "dataset_metadata.json").read_bytes())
    assert manifest["eos_token"] == "<unk>"


def test_a_name_that_the_hub_does_not_know_is_one_clear_message(tmp_path: Path, hub: str) -> None:
    done = prepared(tmp_path, hub, "team/nothing")
    assert done.returncode == 1
    assert "team/nothing" in done.stderr and "hub" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists(), "a run that could not start leaves no trace"
