#!/usr/bin/env bash
# Installs, with apt, what pip cannot: `base` is what the sandbox needs, `test` is what some tests need besides.
#
#   scripts/install_system.sh base|test
#
# Does nothing, silently, where everything is there. Where it cannot install (no root, no apt, no network) it says what
# is missing and ends well: `ratchet doctor` tells what does not work without it, and tests that need it are skipped.
set -euo pipefail

# Not `grep -q`: it ends early, and the writer that finds its pipe closed would then count as a failure now and then.
has_library() { { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep "$1" >/dev/null; }
has_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

missing=()
case "${1:-}" in
base)
    has_library libseccomp.so.2 || missing+=(libseccomp2)
    command -v setpriv >/dev/null || missing+=(util-linux)
    [[ -x /usr/bin/python3 || -x /usr/local/bin/python3 ]] || missing+=(python3)
    why="the sandbox"
    ;;
test)
    command -v chromium >/dev/null || missing+=(chromium)
    has_postgres || missing+=(postgresql)
    why="some tests"
    ;;
*)
    echo "usage: scripts/install_system.sh base|test" >&2
    exit 2
    ;;
esac
[[ ${#missing[@]} -eq 0 ]] && exit 0

give_up() {
    echo "not installed, though $why would use it: ${missing[*]} ($1)" >&2
    echo "  install it yourself: apt-get install ${missing[*]}" >&2
    exit 0
}
command -v apt-get >/dev/null || give_up "this machine has no apt"
[[ $EUID -eq 0 ]] || give_up "this needs root"

install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }
echo "installing with apt: ${missing[*]}" >&2
install 2>/dev/null || { apt-get update -qq >/dev/null && install; } || give_up "apt-get failed"
