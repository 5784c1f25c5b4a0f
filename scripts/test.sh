#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest: scripts/test.sh -R ptx
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --tests
scripts/build.sh --all
exec ctest --test-dir build --parallel 2 --timeout 600 --output-on-failure --no-tests=error "$@"
