#!/usr/bin/env bash
# build.sh DEST: kube-apiserver, kube-controller-manager and kube-scheduler 1.20.2, and etcd, into the folder DEST.
#
# They are made of Debian 12's packages alone: the source package of Kubernetes, which Debian compiles into
# clients only, and Debian's Go. Nothing is installed, and root is not needed; $WORK is a scratch folder of 2 GB.
# indexed.patch adds Indexed Jobs, which Kubernetes has since 1.21 and this version drops without a word.
set -euo pipefail
dest=$1 here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dest" "$WORK"
dest=$(cd "$dest" && pwd)
cd "$WORK"

# An apt of its own: the machine's lists and its configuration are not touched.
mkdir -p apt/lists/partial apt/cache/archives/partial
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' | sort | uniq -c | sort -rn | awk 'NR==1{print $2}')}
signed="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
printf '%s\n' "deb $signed $mirror bookworm main" "deb-src $signed $mirror bookworm main" >apt/sources.list
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$WORK/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$WORK/apt/lists" -o "Dir::Cache=$WORK/apt/cache" -o APT::Sandbox::User=root
  -o Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" source --download-only kubernetes
"${apt[@]}" download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server

mkdir -p gopath/src/k8s.io root
for package in *.deb; do dpkg-deb -x "$package" root; done
tar xzf kubernetes_*.orig.tar.gz -C gopath/src/k8s.io --exclude='*/CHANGELOG*' --exclude='*/test/e2e*'
mv gopath/src/k8s.io/kubernetes-* gopath/src/k8s.io/kubernetes
cd gopath/src/k8s.io/kubernetes
# Its reflect2 crashes at start with Go 1.18 and newer; Debian's own is newer.
rm -rf vendor/github.com/modern-go/reflect2
cp -rL "$WORK/root/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/reflect2
patch -p1 -s <"$here/indexed.patch"

export GOROOT=$WORK/root/usr/lib/go-1.19 GOPATH=$WORK/gopath GO111MODULE=off GOPROXY=off GOFLAGS='' CGO_ENABLED=0
export GOCACHE=$WORK/gocache HOME=$WORK GOTOOLCHAIN=local PATH=$WORK/root/usr/lib/go-1.19/bin:$PATH
# The one generated file that the source package lacks.
go build -o "$WORK/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
staged=staging/src/k8s.io/{api,apimachinery,apiextensions-apiserver,apiserver,component-base,client-go}
staged+=" staging/src/k8s.io/{cloud-provider,controller-manager,kube-aggregator,kube-controller-manager}"
staged+=" staging/src/k8s.io/{kube-proxy,kube-scheduler,kubelet,metrics}"
packages=$(eval "grep -rl --include=*.go '+k8s:openapi-gen=' pkg $staged" | grep -v /testdata/ | xargs -n1 dirname |
  sort -u | sed -e 's#^staging/src/#k8s.io/kubernetes/vendor/#' -e 's#^pkg/#k8s.io/kubernetes/pkg/#' | paste -sd,)
"$WORK/openapi-gen" -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt \
  -p k8s.io/kubernetes/pkg/generated/openapi -i "$packages" -r "$WORK/violations"

flags="-s -w"
for place in component-base client-go/pkg; do
  name=k8s.io/kubernetes/vendor/k8s.io/$place/version
  flags+=" -X $name.gitVersion=v1.20.2 -X $name.gitMajor=1 -X $name.gitMinor=20 -X $name.gitTreeState=clean"
done
# Without the clouds' own code, of which nothing is used here: 4 minutes in place of 6.
go build -tags providerless -trimpath -ldflags "$flags" -o "$dest/" \
  ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler
cp "$WORK/root/usr/bin/etcd" "$dest/"
chmod 755 "$dest"/*
