"""The process around a driver: JSON lines in, JSON lines out.

`python -m conformance.clients.serve MODULE HOST:PORT`; an input line is {"call": name, "args":
{...}}, an output line is {"result": ...} or {"error": text}.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any

from conformance.clients.base import ClientMessage


def main() -> None:
    """Answer calls until standard input ends."""
    module_name, address = sys.argv[1:3]
    # Native libraries log to descriptor 1, which carries the answers: redirect them to standard
    # error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    driver = importlib.import_module(f"conformance.clients.{module_name}").DRIVER(address)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": _call(driver, request["call"], request["args"])}
        except Exception as error:  # The error is the case's result; the process continues.
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _call(driver: Any, name: str, args: dict[str, Any]) -> Any:
    if "messages" in args:
        args["messages"] = [ClientMessage.from_json(fields) for fields in args["messages"]]
    result = getattr(driver, name)(**args)
    if isinstance(result, list):
        return [item.to_json() for item in result]
    return result


if __name__ == "__main__":
    main()
