"""A stand-in for the Hugging Face hub on loopback: enough of its protocol to create, upload, list and download."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHA = "0123456789abcdef0123456789abcdef01234567"
API = re.compile(r"/api/models/([^/]+/[^/]+)/(preupload|commit|revision|tree)/")
FILE = re.compile(rf"/([^/]+/[^/]+)/resolve/(?:main|{SHA})/(.+)")


class Hub:
    """What is there: of each repository its files."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.refuses_uploads = False
        self.url = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path = path.partition("?")[0]
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.repositories.setdefault(name, {})
            return _json({"url": f"{self.url}/{name}", "id": name, "name": name})
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if found := API.match(path):
            return self._of_repository(found[2], found[1], body)
        if (found := FILE.fullmatch(path)) and found[1] in self.repositories:
            return self._of_file(self.repositories[found[1]].get(found[2]), method)
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _of_file(self, content: bytes | None, method: str) -> tuple[int, dict[str, str], bytes]:
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        tag = hashlib.sha1(content).hexdigest()  # what the hub names contents by
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": SHA, "Content-Length": str(len(content))}
        return 200, headers, b"" if method == "HEAD" else content

    def _of_repository(self, verb: str, name: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if name not in self.repositories:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        held = self.repositories[name]
        if verb == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            return _json({"files": [{**file, "shouldIgnore": False, "oid": None} for file in files]})
        if verb == "commit":
            if self.refuses_uploads:
                return 403, {}, b'{"error": "no permission"}'
            lines = [json.loads(line) for line in body.splitlines()]
            files = [line["value"] for line in lines if line["key"] == "file"]
            held.update({file["path"]: base64.b64decode(file["content"]) for file in files})
            return _json({"commitUrl": f"{self.url}/{name}/commit/{SHA}", "commitOid": SHA, "success": True})
        if verb == "tree":
            rows = [{"type": "file", "path": path, "size": len(held[path]), "oid": "0" * 40} for path in sorted(held)]
            return _json(rows)
        siblings = [{"rfilename": path} for path in sorted(held)]
        return _json({"id": name, "modelId": name, "sha": SHA, "siblings": siblings, "private": False, "tags": []})


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    content = json.dumps(value).encode()
    return 200, {"Content-Type": "application/json", "Content-Length": str(len(content))}, content


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers on a free port of loopback, until the end of the block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, headers, content = hub.answer(self.command, self.path, body)
            self.send_response(code)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
