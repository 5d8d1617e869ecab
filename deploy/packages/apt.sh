# Functions shared by make and sysroot: packages of Debian, of any architecture.
# Sourced, not run; the caller has sourced deploy/local/lib.sh, too.

# say_offers PACKAGE...: of each NAME=VERSION, whether apt has another version.
say_offers() {
  local wanted has
  for wanted in "$@"; do
    has=$(apt-cache show --no-all-versions "${wanted%%=*}" 2>/dev/null |
      sed -n 's/^Version: //p')
    [[ $wanted != *=* || -z $has || $has == "${wanted#*=}" ]] ||
      say "apt has ${wanted%%=*} $has, not ${wanted#*=}"
  done
}

# unpack_debs FROM INTO [TAR OPTION...]: all .deb files of a folder; INTO/packages
# gets "LIBRARY NAME VERSION" for each library in them.
unpack_debs() {
  local from=$1 into=$2 deb name version
  shift 2
  for deb in "$from"/*.deb; do
    name=$(dpkg-deb -f "$deb" Package)
    version=$(dpkg-deb -f "$deb" Version)
    dpkg-deb --fsys-tarfile "$deb" | tar -C "$into" -xv --no-same-owner "$@" |
      sed -n "s|.*/\\([^/]*\\.so[.0-9]*\\)\$|\\1 $name $version|p"
  done >"$into/packages"
}

# fetch_debs ARCH DIR all|named PACKAGE...: puts .deb files into DIR: those that
# are named (NAME, NAME=VERSION), or all that they depend on, too. apt knows nothing of this machine's
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
    { cat "$state/log" >&2; say_offers "$@"; return 3; }
  mv "$state"/archives/*.deb "$target"
)
