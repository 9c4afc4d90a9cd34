"""Who may ask: whoever has the token, by a name of this machine, with GET; and the headers every answer carries.

Host        one of the names the server was started for, so that no other site's name leads here (DNS rebinding)
token       in the first address, then in a cookie no script can read and no other site's request carries
POST        only to `POSTS`, and only from a page of ours
policy      scripts from here alone, nothing inline without the answer's nonce, nothing from another host
"""

import hashlib
import ipaddress
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to listen on that stand for all of this machine's."""
POSTS = ("/api/try",)
ErrorPage = Callable[[Request, int, str], Response]


def new_token() -> str:
    return secrets.token_urlsafe(24)


def cookie_name(token: str) -> str:
    """Cookies are shared by all ports of a host: each explorer has its own name."""
    return f"unbraid-{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def policy(nonce: str) -> str:
    """The content-security policy of an answer.

    Vega evaluates expressions with its interpreter, so scripts need no `unsafe-eval`. Its SVG sets `style` attributes,
    which only `style-src-attr` can allow; style elements still need the nonce.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'",
            f"style-src 'self' 'nonce-{nonce}'",
            "style-src-attr 'unsafe-inline'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


class Guard:
    """The outermost layer: refuses who may not ask, adds the headers, and turns a failure of ours into a page."""

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str], error_page: ErrorPage) -> None:
        self._app, self._token, self._hosts, self._error_page = app, token, hosts, error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce, begun = secrets.token_urlsafe(16), False
        scope.setdefault("state", {})["nonce"] = nonce

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(MutableHeaders(scope=message), nonce)
            await send(message)

        try:
            await (self._refusal(Request(scope)) or self._app)(scope, receive, send_with_headers)
        except Exception as problem:
            print(f"unbraid explore: {scope['path']!r:.200}: {problem!r:.500}", file=sys.stderr)
            if not begun:
                sentence = "This page could not be made: an error of ours, not yours. The terminal says which."
                await self._error_page(Request(scope), 500, sentence)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Callable[[Scope, Receive, Send], Awaitable[None]] | None:
        """The answer to who may not ask, or None."""
        if not is_known_host(request.headers.get("host", ""), self._hosts):
            return self._error_page(
                request, 400, f"This server is not called that; accepted: {', '.join(sorted(self._hosts))}."
            )
        asked = request.query_params
        if request.method == "GET" and self._is_token(asked.get("token", "")):
            return self._welcome(request)
        if not self._is_token(request.cookies.get(cookie_name(self._token), "")) and not self._is_token(
            request.headers.get("authorization", "").removeprefix("Bearer ")
        ):
            return self._error_page(
                request, 403, "This address needs its token; accepted: the address that `unbraid explore` printed."
            )
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST" or request.url.path not in POSTS:
            return self._error_page(request, 405, f"{request.method[:20]} is not accepted here; accepted: GET.")
        if not is_same_origin(request.headers):
            return self._error_page(request, 403, "Only a page of this server may ask that.")
        return None

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="replace"), self._token.encode())

    def _welcome(self, request: Request) -> Response:
        """Keep the token in a cookie, and lead to the same address without it."""
        query = urlencode(
            [(key, value) for key, value in QueryParams(request.url.query).multi_items() if key != "token"]
        )
        path = "/" + request.url.path.lstrip("/")  # two slashes would name another host
        answer = RedirectResponse(f"{path}?{query}" if query else path, 303)
        answer.set_cookie(cookie_name(self._token), self._token, httponly=True, samesite="strict", path="/")
        return answer


def is_known_host(header: str, hosts: Collection[str]) -> bool:
    """Whether a Host header names this server; one that listens everywhere may be called by any number."""
    try:
        name = urlsplit(f"//{header}").hostname
    except ValueError:
        return False
    if name is None or any(letter in header for letter in "/@?# \\"):
        return False
    if name in hosts:
        return True
    return any(host in EVERYWHERE for host in hosts) and _is_number(name)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_same_origin(headers: Headers) -> bool:
    """Whether a page of this very server asks, by what a browser says of it."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == headers.get("host")


def _add_headers(headers: MutableHeaders, nonce: str) -> None:
    headers["Content-Security-Policy"] = policy(nonce)
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["X-Frame-Options"] = "DENY"
    headers.setdefault("Cache-Control", "no-store")
