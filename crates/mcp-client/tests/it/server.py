"""A server over stdio. Its tools show its surroundings, or misbehave."""

import json
import os
import subprocess
import sys
import time


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def call(name, message):
    if name == "environment":
        return json.dumps(dict(os.environ), sort_keys=True)
    if name == "folder":
        return os.getcwd()
    if name == "write":
        path = message["params"]["arguments"]["path"]
        try:
            open(path, "w").close()
            return "written"
        except OSError as error:
            return type(error).__name__
    if name == "die":
        sys.stderr.write("cannot open \x1b[31mthe door\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "child":
        return str(subprocess.Popen(["sleep", "1000"]).pid)
    if name == "huge":
        chunk = "x" * (1 << 20)
        sys.stdout.write('{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "' % message["id"])
        for _ in range(64):
            sys.stdout.write(chunk)
        sys.stdout.write('"}]}}\n')
        sys.stdout.flush()
        return None
    if name == "hang":
        token = message["params"]["_meta"]["progressToken"]
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        time.sleep(1000)
    return "?"


TOOLS = ["environment", "folder", "write", "die", "child", "huge", "hang"]

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        info = {"name": "box", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    elif method == "tools/call":
        text = call(message["params"]["name"], message)
        if text is None:
            continue
        result = {"content": [{"type": "text", "text": text}]}
    elif "id" in message:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown method"}})
        continue
    else:
        continue
    send({"jsonrpc": "2.0", "id": message["id"], "result": result})
