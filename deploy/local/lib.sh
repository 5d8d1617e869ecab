# Functions shared by deploy/local/up, deploy/local/setup and tests/run:
# what a fresh Debian 12 machine needs to build, and the build itself.
# Sourced, not run. The caller has set `set -euo pipefail`.

# What the binaries need; what the tests need besides.
SLUICE_BUILD_PACKAGES=(g++ cmake ninja-build ccache pkg-config
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libabsl-dev libboost1.81-dev libcli11-dev nlohmann-json3-dev libssl-dev
  prometheus-cpp-dev libcurl4-openssl-dev python3 python3-pip ca-certificates)
SLUICE_TEST_PACKAGES=(libgtest-dev libgmock-dev libboost-context1.81-dev
  python3-venv python3-numpy valgrind clang-14
  clang-tidy-14 clang-format-14 libclang-rt-14-dev libfuzzer-14-dev lld
  iproute2 git curl)
# What tests are skipped without: the page's, those of AArch64's kernels, of
# deploy/slurm, of `up --hosts`, and of the bundle for any Linux.
SLUICE_BROWSER_PACKAGES=(chromium-headless-shell fonts-liberation)
SLUICE_AARCH64_PACKAGES=(g++-aarch64-linux-gnu qemu-user)
SLUICE_SLURM_PACKAGES=(slurmctld slurmd slurm-client munge)
SLUICE_SSH_PACKAGES=(openssh-server openssh-client)
SLUICE_BUNDLE_PACKAGES=(busybox-static patchelf)
SLUICE_CARGO_MINIMUM=1.85

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

# as_root COMMAND...: runs it as root, through sudo if need be.
as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "this needs root and there is no sudo: $*"
    return 1
  fi
}

# missing_packages NAME...: those that dpkg does not have installed.
missing_packages() {
  local name
  for name in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) \
          != installed ]]; then
      echo "$name"
    fi
  done
}

# version_at_least HAVE WANT
version_at_least() {
  [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}

# A cargo that is new enough, on PATH afterwards. Fails if there is none.
find_cargo() {
  local dir version
  for dir in "" "${CARGO_HOME:-$HOME/.cargo}/bin" /usr/bin; do
    local cargo=${dir:+$dir/}cargo
    command -v "$cargo" >/dev/null || continue
    version=$("$cargo" --version 2>/dev/null | awk '{print $2}') || continue
    if [[ -n $version ]] && version_at_least "$version" \
         "$SLUICE_CARGO_MINIMUM"; then
      [[ -z $dir ]] || export PATH="$dir:$PATH"
      return 0
    fi
  done
  return 1
}

# sluice_missing: says what sluice_setup would install, and which crates cargo
# would fetch, and does neither. Fails if there is any. Runs in the repository
# root.
sluice_missing() {
  local missing=() lacks=
  if command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(missing_packages "${SLUICE_BUILD_PACKAGES[@]}")
  fi
  if [[ ${#missing[@]} -gt 0 ]]; then
    lacks=1
    say "missing: Debian packages: ${missing[*]}"
  fi
  if ! find_cargo; then
    lacks=1
    say "missing: cargo >= $SLUICE_CARGO_MINIMUM (Debian's cargo-web and" \
      "rustc-web, or rustup)"
  elif [[ ! -f build/cargo/release/libsluice_text_bridge.a ]] &&
    ! cargo fetch --offline --locked --quiet \
      --target "$(rustc -vV | sed -n 's/^host: //p')" \
      --manifest-path common/text/bridge/Cargo.toml 2>/dev/null; then
    lacks=1
    say "missing: crates: cargo fetch --locked --manifest-path" \
      "common/text/bridge/Cargo.toml"
  fi
  [[ -z $lacks ]]
}

# install_packages NAME...
install_packages() {
  say "installing Debian packages: $*"
  as_root apt-get update -q >&2 &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
      --no-install-recommends "$@" >&2
}

# install_for_tests NAME...: these, and what tests are skipped without, by one
# call, whose fixed costs are most of a call's. Where that fails, each group has
# its own: what cannot be had keeps nothing else away.
install_for_tests() {
  local optional=("${SLUICE_BROWSER_PACKAGES[@]}" "${SLUICE_AARCH64_PACKAGES[@]}")
  local services= others missing
  # Only where packages start no services, as in images of containers.
  if [[ -x /usr/sbin/policy-rc.d ]]; then
    services=1
    optional+=("${SLUICE_SLURM_PACKAGES[@]}" "${SLUICE_SSH_PACKAGES[@]}"
      "${SLUICE_BUNDLE_PACKAGES[@]}")
  fi
  mapfile -t others < <(missing_packages "${optional[@]}")
  others=("$@" "${others[@]}")
  [[ ${#others[@]} -gt 0 ]] || return 0
  if install_packages "${others[@]}"; then return; fi
  # The call may have installed them, and have failed at another.
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -eq 0 ]] || install_packages "${missing[@]}" || return 1
  install_optional "no Chromium: the test of the gateway's page is skipped" \
    "${SLUICE_BROWSER_PACKAGES[@]}"
  install_optional \
    "no cross compiler or no qemu: NEON's kernels are not tested" \
    "${SLUICE_AARCH64_PACKAGES[@]}"
  [[ -n $services ]] || return 0
  install_optional "no Slurm: the tests of deploy/slurm are skipped" \
    "${SLUICE_SLURM_PACKAGES[@]}"
  install_optional "no sshd: the test of up --hosts is skipped" \
    "${SLUICE_SSH_PACKAGES[@]}"
  # busybox-static takes the place of busybox, which a machine may need.
  install_optional "no busybox-static or no patchelf: the bundle is not tested" \
    "${SLUICE_BUNDLE_PACKAGES[@]}"
}

# install_optional LOSS NAME...: says LOSS where they cannot be installed.
install_optional() {
  local loss=$1 missing
  shift
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -eq 0 ]] || install_packages "${missing[@]}" || say "$loss"
}

# sluice_setup [tests]: installs what is missing, and only that.
sluice_setup() {
  local wanted=("${SLUICE_BUILD_PACKAGES[@]}") missing
  [[ ${1:-} != tests ]] || wanted+=("${SLUICE_TEST_PACKAGES[@]}")
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg here: this is not Debian, so nothing is installed for you"
    say "needed: ${wanted[*]} and cargo >= $SLUICE_CARGO_MINIMUM"
    return 0
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if ! find_cargo; then
    say "no cargo >= $SLUICE_CARGO_MINIMUM found: taking Debian's cargo-web"
    missing+=(cargo-web rustc-web)
  fi
  if [[ ${1:-} == tests ]]; then
    install_for_tests "${missing[@]}" || return 1
  elif [[ ${#missing[@]} -gt 0 ]]; then
    install_packages "${missing[@]}" || return 1
  fi
  find_cargo
}

# The crates that the text bridge needs, built: cargo takes minutes for them. A
# folder of the home folder has them for every checkout.
kept_crates() {
  local key
  key=$({ cargo --version || true; cat common/text/bridge/Cargo.lock
    sed -n '/remap-path-prefix/p' common/text/CMakeLists.txt; } | sha256sum)
  printf '%s' "${XDG_CACHE_HOME:-$HOME/.cache}/sluice/crates/${key:0:16}"
}

# take_crates FOLDER: copies them into a checkout that has built none.
take_crates() {
  [[ -d $1 && ! -e build/cargo ]] || return 0
  rm -rf build/cargo.part
  cp -a --reflink=auto "$1" build/cargo.part && mv build/cargo.part build/cargo
}

# keep_crates FOLDER: copies a checkout's there, without the bridge itself, and
# in place of those of other versions.
keep_crates() {
  local part=$1.$$
  [[ -d build/cargo/release && ! -e $1 ]] || return 0
  rm -rf "${1%/*}" && mkdir -p "${1%/*}" &&
    cp -a --reflink=auto build/cargo "$part" &&
    find "$part" -name '*sluice*' -prune -exec rm -rf {} + &&
    mv -nT "$part" "$1"
}

# sluice_build PRESET [TARGET...]: configures and builds, the sources of a room
# compiled together (a third of the time from nothing; SLUICE_UNITY=OFF in the
# environment: one by one), with every unit test (SLUICE_UNIT_TESTS=OFF,
# SLUICE_TSAN_ALL=OFF: those that CMakeLists.txt names; SLUICE_LEFT_OUT: none
# whose name fits this regular expression); quick if nothing has changed. What
# ccache keeps serves every checkout of this machine: paths in it begin at the
# checkout, and precompiled headers count by their text. Runs in the repository
# root.
sluice_build() {
  local preset=$1 log crates
  shift
  local -x CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  local -x CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
  if [[ $preset == dev || $preset == fuzz || ${CXX:-} == *clang* ]]; then
    if [[ $PWD == *' '* ]]; then
      # ccache would take the path of clang_here for two: it keeps nothing that
      # reads a precompiled header.
      CCACHE_SLOPPINESS=
    else
      local here=$PWD/deploy/local/clang_here others
      others=${CCACHE_PREFIX-$(ccache -k prefix_command 2>/dev/null || true)}
      local -x CCACHE_PREFIX="$here${others:+ $others}"
      local -x CCACHE_EXTRAFILES="$here${CCACHE_EXTRAFILES:+:$CCACHE_EXTRAFILES}"
    fi
  fi
  mkdir -p build
  log=build/configure-$preset.log
  if ! cmake --preset "$preset" -DSLUICE_UNITY="${SLUICE_UNITY:-ON}" \
       -DSLUICE_UNIT_TESTS="${SLUICE_UNIT_TESTS:-ON}" \
       -DSLUICE_TSAN_ALL="${SLUICE_TSAN_ALL:-ON}" \
       -DSLUICE_LEFT_OUT="${SLUICE_LEFT_OUT:-}" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  crates=$(kept_crates)
  take_crates "$crates" || say "crates are built again: $crates is no copy"
  cmake --build --preset "$preset" ${1:+--target "$@"} >&2 || return 1
  keep_crates "$crates" || say "crates are not kept: no copy in $crates"
}
