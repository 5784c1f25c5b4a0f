#!/usr/bin/env python3
"""Writes the page of the HTML report as a C++ source: page.html with our style, our scripts and Chart.js inside, and with
a policy that names exactly these by their SHA-256, so that the browser runs nothing else. The data's place divides it."""

import argparse
import base64
import hashlib
import pathlib
import re

BYTES_PER_LINE = 96


def hash_source(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text).digest()).decode() + "'"


def element(name, text, path):
    if re.search(rb"<!--|</(script|style)", text, re.IGNORECASE):
        raise SystemExit(f"{path}: holds '<!--' or an end tag, which HTML would read as markup: write it otherwise")
    return b"<%s>%s</%s>\n" % (name, text, name)


def page(template, style, scripts):
    texts = [(path, path.read_bytes().replace(b"\r\n", b"\n")) for path in scripts]
    style_text = style.read_bytes()
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
        f"; style-src {hash_source(style_text)}; script-src {' '.join(hash_source(text) for _, text in texts)}"
    )
    parts = {
        b"@POLICY@": policy.encode(),
        b"@STYLE@": element(b"style", style_text, style),
        b"@SCRIPTS@": b"".join(element(b"script", text, path) for path, text in texts),
    }
    whole = re.sub(rb"@(POLICY|STYLE|SCRIPTS)@", lambda match: parts[match.group()], template.read_bytes())
    before, after = whole.split(b"@DATA@")
    return before, after


def bytes_in_cpp(name, text):
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '"\\?'}
    written = [plain.get(byte, f"\\{byte:03o}") for byte in text]
    lines = ["".join(written[i : i + BYTES_PER_LINE]) for i in range(0, len(written), BYTES_PER_LINE)]
    return f"constexpr char {name}[] =\n" + "\n".join(f'    "{line}"' for line in lines) + ";\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--template", type=pathlib.Path, required=True)
    parser.add_argument("--style", type=pathlib.Path, required=True)
    parser.add_argument("scripts", type=pathlib.Path, nargs="+", help="in this order")
    options = parser.parse_args()
    before, after = page(options.template, options.style, options.scripts)
    options.output.write_text(
        "// Written by analysis/compare/html/embed_page.py.\n"
        '#include "analysis/compare/html_page.h"\n\n'
        "namespace ops_debug::analysis {\nnamespace {\n\n"
        + bytes_in_cpp("kBefore", before)
        + bytes_in_cpp("kAfter", after)
        + "\n}  // namespace\n\n"
        "const std::string_view kHtmlBeforeData(kBefore, sizeof(kBefore) - 1);\n"
        "const std::string_view kHtmlAfterData(kAfter, sizeof(kAfter) - 1);\n\n"
        "}  // namespace ops_debug::analysis\n"
    )


if __name__ == "__main__":
    main()
