#!/usr/bin/env bash
# Builds kube-apiserver and kube-controller-manager from Debian's source package of Kubernetes, and takes
# Debian's etcd along: a real API for tests, without nodes.
#
#   kubernetes-build.sh FOLDER      the three programs, and then the empty file `ready`, appear in FOLDER
#
# Nothing is installed: compiler and sources are unpacked below a temporary folder (2 GB) that is removed. Takes
# ten minutes of one core and 1.4 GB of memory. Needs Debian 12's package lists, dpkg-dev and the network.
set -Eeuo pipefail

target=$(realpath -m "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/kubernetes-build.XXXXXX")
code=0
trap 'code=$?; [ "$code" -eq 0 ] || tail -n 20 "$work/log" >&2; rm -rf "$work"' EXIT
step() { echo "kubernetes-build.sh: $*" >&2; }

# A package manager's state of our own: the machine's stays as it is, and source packages can be asked for.
mkdir -p "$target" "$work"/{lists/partial,archives/partial,tools,path/src/k8s.io}
mirror=$(apt-cache policy | sed -n 's,^ *[0-9]* \(https\?://[^ ]*\) bookworm/main .*,\1,p' | head -n 1)
[ -n "$mirror" ] || { echo "kubernetes-build.sh: apt knows no bookworm/main" >&2; exit 1; }
for kind in deb deb-src; do
  echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main"
done >"$work/sources"
cat >"$work/apt.conf" <<END
Dir::Etc::SourceList "$work/sources";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$work/lists";
Dir::Cache "$work";
APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt.conf
cd "$work"
step "fetching sources and the compiler"
{
  apt-get update -qq
  apt-get download -qq golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server
  for package in ./*.deb; do dpkg-deb -x "$package" tools; done
  apt-get source -qq --download-only kubernetes
  dpkg-source --no-check -x ./*.dsc path/src/k8s.io/kubernetes
} >>"$work/log" 2>&1

export GOROOT=$work/tools/usr/lib/go-1.19 GOPATH=$work/path GOCACHE=$work/cache GO111MODULE=off CGO_ENABLED=0
export PATH=$GOROOT/bin:$PATH
cd "$GOPATH/src/k8s.io/kubernetes"
# The reflect2 in there reads the memory layout of an older compiler's maps and crashes at the first object.
rm -rf vendor/github.com/modern-go/reflect2
cp -r "$work/tools/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/
rm -f vendor/github.com/modern-go/reflect2/*_test.go
# Clients ask for the version; upstream's build writes it here.
sed -i 's/v0\.0\.0-master+[0-9a-f]*/v1.20.2/' staging/src/k8s.io/{component-base,client-go/pkg}/version/base.go
sed -i 's/^\(\s*gitMajor\) string .*/\1 string = "1"/; s/^\(\s*gitMinor\) string .*/\1 string = "20"/' \
  staging/src/k8s.io/component-base/version/base.go

step "generating the API's description"
go build -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen >>"$work/log" 2>&1
inputs=$(grep -rlE --include='*.go' '^// ?\+k8s:openapi-gen=' pkg staging/src/k8s.io | xargs -n 1 dirname | sort -u |
  grep -vE 'code-generator|sample-|/testdata' |
  sed 's,^staging/src/,k8s.io/kubernetes/vendor/,; s,^pkg,k8s.io/kubernetes/pkg,' | paste -sd ,)
"$work/openapi-gen" --input-dirs "$inputs" --output-package k8s.io/kubernetes/pkg/generated/openapi \
  --output-file-base zz_generated.openapi --go-header-file hack/boilerplate/boilerplate.generatego.txt \
  --report-filename "$work/report" >>"$work/log" 2>&1

for program in kube-apiserver kube-controller-manager; do
  step "building $program"
  nice go build -p 2 -trimpath -ldflags '-s -w' -o "$target/$program" "k8s.io/kubernetes/cmd/$program" >>"$work/log" 2>&1
done
cp "$work/tools/usr/bin/etcd" "$target/etcd"
: >"$target/ready"
step "built in $SECONDS s"
