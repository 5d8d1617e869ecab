# Functions shared by make and sysroot: packages of Debian, of any architecture.
# Sourced, not run; the caller has sourced deploy/local/lib.sh, too.

# fetch_debs ARCH DIR all|named PACKAGE...: puts .deb files into DIR: those that
# are named, or all that they depend on, too. apt knows nothing of this machine's
# packages, so that none counts as installed.
fetch_debs() (
  arch=$1 target=$2 which=$3
  shift 3
  state=$(mktemp -d)
  trap 'rm -rf "$state"' EXIT
  mkdir -p "$target" "$state"/lists/partial "$state"/archives/partial
  touch "$state/status"
  cat >"$state/apt.conf" <<END
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
END
  export APT_CONFIG=$state/apt.conf
  get=(install -y --download-only)
  [[ $which == all ]] || get=(download)
  cd "$state/archives"
  apt-get update -q >"$state/log" 2>&1 &&
    apt-get "${get[@]}" -q "$@" >>"$state/log" 2>&1 ||
    { cat "$state/log" >&2; return 3; }
  mv "$state"/archives/*.deb "$target"
)
