"""An MCP server with two tools for files of its folder, for tests without a network.

Each call is written to `calls`, the process to `pid`. A file `description` replaces the description of the first tool. While a
file `slow` exists, the list of tools is not sent.
"""
import json
import os
import sys
import time

TEXT = {"type": "string"}
TOOLS = [
    {
        "name": "read_text_file",
        "description": "Read a file as text.",
        "inputSchema": {"type": "object", "properties": {"path": TEXT}, "required": ["path"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "write_file",
        "description": "Write a file.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": TEXT, "content": TEXT},
            "required": ["path", "content"],
        },
    },
]


with open("pid", "w", encoding="utf-8") as pid:
    pid.write(str(os.getpid()))
try:
    with open("description", encoding="utf-8") as changed:
        TOOLS[0]["description"] = changed.read()
except OSError:
    pass


def call(name, arguments):
    with open("calls", "a", encoding="utf-8") as calls:
        calls.write(name + "\n")
    if name == "read_text_file":
        with open(arguments["path"], encoding="utf-8") as file:
            return file.read()
    with open(arguments["path"], "w", encoding="utf-8") as file:
        file.write(arguments["content"] + "\n")
    return "written"


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        info = {"name": "files", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        while os.path.exists("slow"):
            time.sleep(0.02)
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, is_error = call(params["name"], params.get("arguments", {})), False
        except OSError as error:
            text, is_error = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": is_error}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request)
    outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
