# Shared by ./trireme and ./test: what the build needs, and building quietly. Sourced, with the root as working folder.

# Debian and Ubuntu packages. (oneDNN's CMake file asks for OpenCL's headers, though nothing here uses them.)
build_packages=(g++ cmake ninja-build pkg-config ccache libdnnl-dev ocl-icd-opencl-dev libhwy-dev libfmt-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libpcre2-dev libutf8proc-dev liburing-dev
  libopenmpi-dev openmpi-bin coinor-libcbc-dev libgtest-dev)
check_packages=(git clang-format-14 clang-tidy-14)
fuzz_packages=(clang-14 libclang-rt-14-dev)
# What the slow tests compare with, of Python: packages with the names of their modules. Nothing else needs them.
python_packages=(gguf numpy safetensors tokenizers torch transformers xllamacpp)
python_folder=${TRIREME_PYTHON:-build/python}

# Paths inside the tree count relative to it, so that another checkout of the same sources finds them compiled.
# The last is what it asks for where headers are precompiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

say() { echo "trireme: $*" >&2; }
die() {
  say "$*"
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Prints the packages of "$@" that are not installed.
missing_packages() {
  local package
  local -A installed=()
  while read -r status package; do
    [[ $status == ii* ]] && installed[${package%%:*}]=1
  done < <(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null)
  for package in "$@"; do
    [[ -n ${installed[$package]:-} ]] || echo "$package"
  done
}

# ensure_packages YES PACKAGE…: installs what is missing, after showing the command and, on a terminal, asking.
ensure_packages() {
  local yes=$1
  shift
  [[ -n ${TRIREME_NO_INSTALL:-} ]] && return
  if ! have dpkg-query || ! have apt-get; then
    ensure_tools
    return
  fi
  local -a missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0

  local -a as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  local -a install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends
    "${missing[@]}")
  say "these packages are missing; to install them:"
  echo "  ${install[*]}" >&2
  if ((EUID != 0)) && ! have sudo; then die "run that as root, then try again"; fi
  if [[ $yes != yes && -t 0 && -t 2 ]]; then
    local answer
    read -r -p "install now? [Y/n] " answer
    [[ -z $answer || $answer == [yY]* ]] || die "not installed; nothing was built"
  fi
  say "installing"
  # A fresh machine has no package lists, an old one has stale ones; elsewhere the first try is enough.
  "${install[@]}" >/dev/null 2>&1 && return
  "${as_root[@]}" apt-get update >&2 || say "apt-get update failed; trying with the lists there are"
  "${install[@]}" >&2 || die "could not install the packages"
}

# ensure_python YES PACKAGE…: the same for packages of Python, in a virtual environment of this checkout.
ensure_python() {
  local yes=$1
  shift
  [[ -n ${TRIREME_NO_INSTALL:-} ]] && return
  local found='import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in sys.argv[1:]))'
  if [[ -x $python_folder/bin/python3 ]] && "$python_folder/bin/python3" -c "$found" "$@"; then return; fi
  say "these packages of Python are missing; to install them, for these tests alone:"
  echo "  python3 -m venv $python_folder && $python_folder/bin/pip install $*" >&2
  if [[ $yes != yes && -t 0 && -t 2 ]]; then
    local answer
    read -r -p "install now? [Y/n] " answer
    [[ -z $answer || $answer == [yY]* ]] || die "not installed; TRIREME_NO_INSTALL=1 tests without them"
  fi
  say "installing"
  { python3 -m venv "$python_folder" && "$python_folder/bin/pip" install --quiet "$@"; } >&2 ||
    die "could not install the packages of Python; TRIREME_NO_INSTALL=1 tests without them"
}

# Elsewhere than on Debian and Ubuntu nothing is installed; CMake names the libraries that it does not find.
ensure_tools() {
  local -a missing=()
  local tool
  for tool in c++ cmake ninja pkg-config; do
    have "$tool" || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) ||
    die "missing: ${missing[*]} (this is no Debian or Ubuntu, so nothing was installed; libraries needed: oneDNN," \
      "Highway, fmt, toml++, CLI11, nlohmann-json, xxHash, PCRE2, utf8proc, liburing, GoogleTest; MPI if wanted)"
}

# Compilers at once: one per core, but no more than memory allows at about 2 GiB each.
build_jobs() {
  local jobs available
  jobs=$(nproc 2>/dev/null || echo 2)
  available=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo 2>/dev/null || echo "$jobs")
  ((available < 1)) && available=1
  echo $((jobs < available ? jobs : available))
}

# A step of a build takes about so many seconds of one core (a first build on two Xeon cores: 430 s in 108 steps). The long
# ones come last, so the build's own pace counts where it says more than this.
seconds_per_step=4

# left DONE TOTAL ELAPSED JOBS: seconds until a build ends
left() {
  local expected=$(($2 * seconds_per_step / $4 - $3)) pace=$(($3 * ($2 - $1) / ($1 > 0 ? $1 : 1)))
  if (($1 < 20)); then pace=0; fi
  echo $((expected > pace ? expected : pace))
}

# "about 4 min left", of $1 seconds.
time_left() {
  local seconds=$1
  if ((seconds < 90)); then echo "about $seconds s left"; else echo "about $(((seconds + 30) / 60)) min left"; fi
}

# Reads a build's output, keeps it in the file $1 and, once the build has taken two seconds, shows how far it is and how
# long the rest will take on $2 cores.
show_progress() {
  local log=$1 jobs=$2 line last=0 started=$SECONDS done total elapsed text
  : >"$log"
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    elapsed=$((SECONDS - started))
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] && ((elapsed >= 2)) || continue
    done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    text="building $done of $total, $(time_left "$(left "$done" "$total" "$elapsed" "$jobs")")"
    if [[ -t 2 ]]; then
      printf '\r\033[Ktrireme: %s' "$text" >&2
    elif ((last == 0 || SECONDS - last >= 30)); then
      say "$text"
      last=$SECONDS
    fi
  done
  if [[ -t 2 ]] && ((SECONDS - started >= 2)); then printf '\r\033[K' >&2; fi
}

# The preset that ./trireme builds: cuda where there is a GPU, nvcc and cuBLASLt's header, for the GPUs that are there;
# TRIREME_CUDA=off, or anything missing: release. `configure_options` is what CMake is given in addition.
configure_options=()
choose_preset() {
  preset=release
  configure_options=()
  if [[ ${TRIREME_CUDA:-} == off ]] || ! have nvidia-smi; then return; fi
  local capabilities
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -un | paste -sd ';') || return 0
  if [[ ! $capabilities =~ ^[0-9]+(\;[0-9]+)*$ ]]; then return; fi
  local nvcc=${CUDACXX:-}
  [[ -n $nvcc ]] || nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  if [[ ! -x $nvcc ]]; then
    [[ -d build/release ]] || say "there is a GPU, and no nvcc: building for the CPU alone (docs/cuda.md)"
    return
  fi
  local version
  version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
  local major=${version% *} minor=${version#* }
  if ((major < 12 || (major == 12 && minor < 8))); then
    [[ -d build/release ]] || say "there is a GPU, and nvcc $major.$minor is older than 12.8: building for the CPU alone"
    return
  fi
  preset=cuda
  configure_options=("-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=$capabilities")
  [[ -d build/cuda ]] || say "building with CUDA for this machine's GPUs; TRIREME_CUDA=off ./trireme builds without"
}

# configure PRESET OPTION…
configure() {
  local folder=build/$1
  say "configuring ($1)"
  if ! cmake --preset "$1" "${configure_options[@]}" "${@:2}" >"$folder/configure.log" 2>&1; then
    rm -f "$folder/CMakeCache.txt"
    grep -A12 -m3 -E 'CMake Error|Could not find|not found' "$folder/configure.log" >&2 || cat "$folder/configure.log" >&2
    die "could not configure; all of it: $folder/configure.log"
  fi
}

# build PRESET TARGET…: configures where needed and builds what is stale. One build at a time per preset.
# unity=ON: in a new folder sources are compiled many at once, which is sooner done (docs/performance.md); where the first
# build fails so, one by one. A folder that is there stays as it was configured.
build() {
  local preset=$1
  shift
  local folder=build/$preset
  mkdir -p "$folder"
  exec {lock}>"$folder/.lock"
  flock "$lock"
  [[ -f $folder/build.ninja ]] || configure "$preset" ${unity:+"-DTRIREME_UNITY=$unity"}
  local jobs
  jobs=$(build_jobs)
  until ninja -C "$folder" -j "$jobs" "$@" 2>&1 {lock}>&- | show_progress "$folder/build.log" "$jobs"; do
    if [[ ! -e $folder/src/trireme/trireme ]] && grep -qs '^TRIREME_UNITY:BOOL=ON' "$folder/CMakeCache.txt"; then
      say "could not compile sources together; compiling them one by one"
      cp "$folder/build.log" "$folder/build_together.log"
      configure "$preset" -DTRIREME_UNITY=OFF
      continue
    fi
    grep -E -A40 -m1 '^FAILED' "$folder/build.log" >&2 || tail -n 40 "$folder/build.log" >&2
    die "could not build; all of it: $folder/build.log"
  done
  exec {lock}>&-
}
