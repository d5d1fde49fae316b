#!/bin/sh
# Installs the emulators of storages that are no Python packages, for the tests: Azurite, by npm, below .emulators.
# sshd, for sftp, comes with the system's package openssh-server. Tests that miss one of them are skipped.
set -eu
cd "$(dirname "$0")/.."
npm install --prefix .emulators --no-save --no-fund --no-audit --loglevel=error azurite@3.35.0
