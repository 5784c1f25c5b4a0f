"""Python code as a provider of `ops-debug validate` (proto/provider.h).

    python3 -m ops_debug.provider SPEC REQUEST RESPONSE [REQUEST RESPONSE ...]
    python3 -m ops_debug.provider SPEC --describe JSON

SPEC: torch.nn.Conv2d, torch.nn.functional.softmax, torch.ops.ns.op, package.module:function, file.py:function,
numpy.matmul, model.onnx. Exit codes: 0; 1 the operator failed; 2 something does not fit; 4 this Python cannot do it.
Where something is wrong, the last line of stderr says what and where.
"""

import json
import os
import random
import sys
import traceback

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT = 4  # kProviderCannot
HERE = os.path.dirname(os.path.abspath(__file__))


def _say(text):
    sys.stderr.write(" ".join(str(text).split()) + "\n")
    sys.stderr.flush()


def _where(error):
    """FILE:LINE of the last frame that is the operator's own, else of the last one outside of this package."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(HERE)]
    own = [frame for frame in frames if "site-packages" not in frame.filename and "<frozen" not in frame.filename]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return "%s:%d: in %s: " % (frame.filename, frame.lineno or 0, frame.name)


def _stdout_for_us():
    """What the operator prints goes to stderr; the stream that is given back is the real stdout."""
    real = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return real


def _output_names(metadata):
    try:
        return [entry[0] for entry in json.loads(metadata.get("outputs", "[]"))]
    except (ValueError, TypeError, IndexError, KeyError):
        return []


def serve(operator, request, response):
    from ops_debug import _safetensors

    tensors, metadata = _safetensors.read(request)
    seed = int(metadata.get("seed", "0"))
    random.seed(seed)
    if hasattr(operator.arrays, "seed"):
        operator.arrays.seed(seed)
    inputs = [tensor for tensor in tensors if not tensor.name.startswith("cotangent.")]
    cotangents = [tensor for tensor in tensors if tensor.name.startswith("cotangent.")]
    outputs, gradients = operator.answer(
        inputs,
        json.loads(metadata.get("attributes", "{}")),
        metadata.get("precision") == "float64",
        cotangents if metadata.get("gradients") == "1" else None,
        _output_names(metadata),
    )
    answer = {"description": operator.description()}
    if operator.source:
        answer["source"] = operator.source
    _safetensors.write(response, list(outputs) + list(gradients.values()), answer)


def run(spec, rest, stdout):
    from ops_debug import _operators

    operator = _operators.resolve(spec)
    if rest[0] == "--describe":
        answer = operator.describe(json.loads(rest[1]))
        answer["description"] = operator.description()
        if operator.source:
            answer["source"] = operator.source
        stdout.write(json.dumps(answer) + "\n")
        stdout.flush()
        return
    for i in range(0, len(rest), 2):
        serve(operator, rest[i], rest[i + 1])


def main(arguments):
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        sys.stderr.write(__doc__)
        return EXIT_USAGE
    stdout = _stdout_for_us()
    spec = arguments[0]
    try:
        import numpy  # noqa: F401  (all of this is written with it)
    except ImportError:
        _say("%s needs the package numpy, which %s does not have" % (spec, sys.executable))
        return EXIT_CANNOT
    from ops_debug._arrays import Cannot
    from ops_debug._operators import BadRequest

    try:
        run(spec, arguments[1:], stdout)
        return 0
    except Cannot as error:
        _say(error)
        return EXIT_CANNOT
    except BadRequest as error:
        _say("%s: %s" % (spec, error))
        return EXIT_USAGE
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the operator raises, SystemExit included
        _say("%s: %s%s: %s" % (spec, _where(error), type(error).__name__, error))
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
