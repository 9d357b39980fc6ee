"""An MCP server with notes: two tools, resources and a prompt, for tests without a network.

It works in its folder. `pid` has its process, `notes` what was added, and a file `description` replaces the description of the first
tool.
"""
import json
import os
import sys

TEXT = {"type": "string"}
TOOLS = [
    {
        "name": "add_note",
        "description": "Add a note.",
        "inputSchema": {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
    },
    {"name": "read_notes", "description": "Read all notes.", "inputSchema": {"type": "object"}},
]
RESOURCES = [
    {"uri": "note://all", "name": "all notes", "mimeType": "text/plain"},
    {"uri": "note://picture", "name": "a drawing", "mimeType": "application/pdf"},
]
PROMPTS = [{"name": "summarize", "arguments": [{"name": "style", "required": True}]}]


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


with open("pid", "w", encoding="utf-8") as pid:
    pid.write(f"{os.getpid()}\n")
TOOLS[0]["description"] = read("description") or TOOLS[0]["description"]


def call(name, arguments):
    if name == "read_notes":
        return read("notes")
    with open("notes", "a", encoding="utf-8") as notes:
        notes.write(arguments["text"] + "\n")
    return "added"


def read_resource(uri):
    if uri == "note://picture":
        return {"uri": uri, "mimeType": "application/pdf", "blob": "aGFsbG8="}
    return {"uri": uri, "text": read("notes")} if uri == "note://all" else None


def answer(method, params):
    if method == "initialize":
        capabilities = {"tools": {}, "resources": {}, "prompts": {}}
        info = {"name": "library", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": call(params["name"], params.get("arguments", {}))}]}
    if method == "resources/list":
        return {"resources": RESOURCES}
    if method == "resources/read":
        contents = read_resource(params["uri"])
        return contents and {"contents": [contents]}
    if method == "prompts/list":
        return {"prompts": PROMPTS}
    if method == "prompts/get":
        text = f"Summarize in the style {params['arguments']['style']}."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params", {}))
    outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
