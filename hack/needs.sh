#!/usr/bin/env bash
# Checks that this machine has all that targets of the Makefile need, before they build for minutes. As root on Debian it installs
# what is missing; elsewhere, or with --check, it names it and fails.
#
#   hack/needs.sh [--check] TARGET...    build, test, tests, images, pictures, demo, cluster, bare
#
# build is what all need, tests what only tests run: without it they are skipped. bare is the cluster without Docker.
set -euo pipefail
cd "$(dirname "$0")/.."

# Program, or a file of the folders below, then its Debian package, then the targets that need it.
table() {
  cat <<'TABLE'
git           git                          build
nsenter       util-linux                   bare
containerd    containerd                   bare
runc          runc                         bare
nft           nftables                     bare
ip            iproute2                     bare
cni/ptp       containernetworking-plugins  bare
rsync         rsync                        images tests
ssh           openssh-client               images tests
sshd          openssh-server               tests
tshark        tshark                       tests
zstd          zstd                         tests
jq            jq                           tests
rclone        rclone                       tests
wget          wget                         demo tests
curl          curl                         tests
chromium      chromium                     pictures tests
perl          perl                         tests
pidof         sysvinit-utils               tests
python3-venv  python3-venv                 tests
mmdebstrap    mmdebstrap                   tests
authorities   ca-certificates              build
TABLE
}

has() { # PROGRAM
  local file
  case $1 in
  cni/*) for file in /usr/lib/$1 /opt/cni/bin/${1#cni/} /usr/libexec/$1; do [ ! -e "$file" ] || return 0; done; return 1 ;;
  python3-venv) python3 -c 'import ensurepip' 2>/dev/null ;;
  authorities) # of certificates: Go fetches modules over HTTPS, and images carry them
    for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do [ ! -s "$file" ] || return 0; done
    return 1 ;;
  *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
  esac
}

missing() { # TARGET...: the packages, one a line
  local program package targets target
  table | while read -r program package targets; do
    for target in "$@"; do
      case " $targets " in *" $target "*) has "$program" || echo "$package"; break ;; esac
    done
  done
}

# What nobody but the user can mend.
problems=()

# The machine without Docker becomes the nodes, see hack/cluster/bare.
bare() {
  [ "$(id -u)" = 0 ] || problems+=("The cluster needs Docker, or root: start Docker (\`docker info\` must answer), or run this as root.")
  local hierarchy
  for hierarchy in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
    [ -e "/sys/fs/cgroup/$hierarchy/cgroup.procs" ] || {
      problems+=("The cluster without Docker needs the cgroup v1 hierarchy $hierarchy at /sys/fs/cgroup/$hierarchy: install and start Docker, and it runs on kind instead.")
      return
    }
  done
}

check=
[ "${1:-}" != --check ] || { check=1; shift; }
targets=(build)
for target in "$@"; do
  [ "$target" != cluster ] || ! docker info >/dev/null 2>&1 || continue
  case $target in
  cluster | bare) bare; targets+=(bare) ;;
  build | test | tests | images | pictures | demo) targets+=("$target") ;;
  *) echo "hack/needs.sh knows no target $target" >&2; exit 2 ;;
  esac
done
command -v go >/dev/null || problems+=("Go is not in the PATH: install Go $(sed -n 's/^go //p' go.mod) or newer, https://go.dev/dl.")

packages=($(missing "${targets[@]}" | sort -u))
if [ ${#packages[@]} -gt 0 ] && [ ${#problems[@]} = 0 ] && [ -z "$check" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${packages[*]} with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null 2>&1 || {
    apt-get update -qq # most often the machine never fetched the lists
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
  }
  packages=($(missing "${targets[@]}" | sort -u))
fi
if [ ${#packages[@]} -gt 0 ]; then
  problems+=("This machine lacks ${packages[*]} (Debian's names): apt-get install --no-install-recommends ${packages[*]}")
fi
if [ ${#problems[@]} -gt 0 ]; then
  printf '%s\n' "${problems[@]}" >&2
  exit 1
fi

case " ${targets[*]} " in *" test "*)
  packages=($(missing tests | sort -u))
  [ ${#packages[@]} = 0 ] || echo "tests that run these packages are skipped, as they are not installed: ${packages[*]}" ;;
esac
