#!/bin/sh
# What the tests of PostgreSQL need beside the wheels: PostgreSQL 15 and PgBouncer, from Debian. No server is started, and
# no cluster is made: the tests start their own, and a machine is left as it was but for the packages.
set -eu

PATH=$PATH:/usr/sbin:/usr/local/sbin
postgres=
for place in /usr/lib/postgresql/15/bin /opt/homebrew/opt/postgresql@15/bin /usr/local/opt/postgresql@15/bin; do
  if [ -x "$place/initdb" ]; then postgres=$place; fi
done
if [ -z "$postgres" ] && postgres --version 2>/dev/null | grep -q ') 15'; then postgres=found; fi

missing=
[ -n "$postgres" ] || missing=postgresql-15
command -v pgbouncer >/dev/null || missing="$missing pgbouncer"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "The tests of the PostgreSQL store need $missing: install them (apt-get install $missing), and let no server start." >&2
  exit 1
fi

# Services that packages bring are not started while this stands (invoke-rc.d asks it).
policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.conf
undo() {
  if [ -n "${ours:-}" ]; then rm -f "$policy"; fi
  if [ -n "${kept:-}" ]; then mv "$kept" "$clusters"; fi
}
trap undo EXIT
trap 'exit 1' HUP INT TERM
if [ ! -e "$policy" ]; then
  ours=yes
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
apt-get update -qq
case $missing in *postgresql-15*)
  install postgresql-common
  if [ -e "$clusters" ]; then # the package's own setting: with it a server of version 15 would be set up and started
    cp -p "$clusters" "$clusters.kept"
    kept=$clusters.kept
    printf 'create_main_cluster = false\n' >>"$clusters"
  fi
  ;;
esac
# shellcheck disable=SC2086  one word a package
install $missing
case $missing in *pgbouncer*)
  if command -v systemctl >/dev/null; then systemctl disable -q pgbouncer || true; fi # nor at the next start of the machine
  ;;
esac
