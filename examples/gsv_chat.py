#!/usr/bin/env python3
"""A client of the gsv door in a page: it says something in a session, prints what comes, and passes on what you type.

    python3 examples/gsv_chat.py ws://127.0.0.1:8443/ws SESSION "MESSAGE"      # the token is $CLIENT_TOKEN

What an agent asks appears as a message; the next line that you type answers it. It ends when the agent has answered. It needs Python
3.9 and nothing else, and knows no TLS: a real client takes a library for WebSocket.
"""

import base64
import json
import os
import socket
import struct
import sys
import threading
import uuid
from urllib.parse import urlsplit


class Line:
    """A WebSocket: JSON objects in text frames."""

    def __init__(self, url):
        at = urlsplit(url)
        try:
            self.socket = socket.create_connection((at.hostname, at.port or 80))
        except OSError as error:
            raise SystemExit(f"nobody answers at {url}: {error}") from None
        self.stream, self.writing = self.socket.makefile("rb"), threading.Lock()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {at.path or '/'} HTTP/1.1", f"Host: {at.netloc}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        status = self.stream.readline().decode().strip()
        while self.stream.readline().strip():
            pass
        if " 101 " not in status:
            raise SystemExit(f"no gateway's door at {url}: {status}")

    def write(self, payload, kind=1):
        length, mask = len(payload), os.urandom(4)
        head = bytes([0x80 | kind])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 65536:
            head += bytes([0x80 | 126]) + struct.pack("!H", length)
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", length)
        with self.writing:
            self.socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)))

    def ask(self, method, **params):
        """Sends a request. Answers come in any order, under its id."""
        name = str(uuid.uuid4())
        self.write(json.dumps({"type": "req", "id": name, "method": method, "params": params}).encode())
        return name

    def frames(self):
        """What the gateway says, until it closes."""
        while head := self.stream.read(2):
            kind, length = head[0] & 15, head[1] & 127
            if length == 126:
                (length,) = struct.unpack("!H", self.stream.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self.stream.read(8))
            payload = self.stream.read(length)
            if kind == 9:
                self.write(payload, 10)  # a ping wants its pong
            elif kind == 8:
                return
            else:
                yield json.loads(payload)


def text(message):
    """The words of a message."""
    content = message.get("content", [])
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return "\n".join(part for part in parts if part)


def main(url, session, message):
    token = os.environ.get("CLIENT_TOKEN")
    if not token:
        raise SystemExit("CLIENT_TOKEN is not set: it holds the token that the gateway's configuration has as clients.token")
    line = Line(url)
    client = {"id": "gsv_chat", "version": "1", "platform": sys.platform, "mode": "client"}
    hello = line.ask("connect", minProtocol=1, maxProtocol=1, client=client, auth={"token": token})
    tools, said = None, None

    def type_on():
        for typed in sys.stdin:
            line.ask("chat.send", sessionKey=session, message=typed.strip())

    for frame in line.frames():
        if frame["type"] == "res" and not frame["ok"]:
            raise SystemExit(f"{frame['error']['code']} {frame['error']['message']}")
        if frame["type"] == "res" and frame["id"] == hello:
            tools = line.ask("tools.list")
        elif frame["type"] == "res" and frame["id"] == tools:
            names = sorted(tool["name"] for tool in frame["payload"]["tools"])
            print("tools of nodes:", ", ".join(name for name in names if not name.startswith("gsv__")) or "none")
            said = line.ask("chat.send", sessionKey=session, message=message)
        elif frame["type"] == "res" and frame["id"] == said:
            threading.Thread(target=type_on, daemon=True).start()
        elif frame["type"] == "evt" and frame["event"] == "chat" and frame["payload"]["sessionKey"] == session:
            told = frame["payload"]
            if told.get("message"):
                print(text(told["message"]), flush=True)
            if told.get("error"):
                print("failed:", told["error"], flush=True)
            # A card is final too: what comes next is up to whoever answers it.
            asks = told.get("message") and text(told["message"]).startswith("Approval needed")
            if told["state"] in ("final", "error") and not asks:
                return


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
