# What there is to run. Each target first gets what it needs (scripts/need), and says what and why.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

.PHONY: help demo test test-packet lint desk instructions instructions-accept bench bench-quick flame docs build release release-verify release-twice clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: ## give a small web service a public name on this machine, and call it (CI=1: end by itself)
	@scripts/need rust cc curl python3
	@CI=$(CI) scripts/demo

test: ## run every test, and count the instructions of the hot paths
	@scripts/need rust cc clang curl openssl python3 ssh venv wrk
	@scripts/need nft || echo "test: nft is not there; the tests in spoiled networks say that they are skipped"
	@scripts/need faketime || echo "test: faketime is not there; the tests that turn the clock say that they are skipped"
	@scripts/need postgres sshd nginx dnsmasq dig tinyproxy chromium certutil prometheus || echo "test: not all services are there; the tests of sockets that need them say so"
	@scripts/need knotd kdig nsd named unbound ldns || echo "test: not all name servers are there; the tests with them say that they are skipped"
	@scripts/need iproute ethtool bird stayrtr || echo "test: BIRD or stayrtr is not there; the tests of announcements say that they are skipped"
	@scripts/need conntrack tcpdump || echo "test: conntrack or tcpdump is not there; the tests of the packet path that need them say so"
	@scripts/need node npm || echo "test: node or npm is not there; the tests of pages cannot run"
	@scripts/need strace || echo "test: strace is not there; the tests of system calls say that they are skipped"
	@scripts/need tmux || echo "test: tmux is not there; the tests of the live screen say that they are skipped"
	@scripts/need dropbear plink || echo "test: not all ssh clients are there; the tests that call them say that they are skipped"
	@scripts/need etcd || echo "test: etcd is not there; the tests with a Kubernetes API server say that they are skipped"
	@scripts/need nspawn debootstrap cloud-init || echo "test: systemd-nspawn or debootstrap is not there; the tests with whole machines say that they are skipped"
	@scripts/need gpg strip dpkg-dev apt-ftparchive xz buildah umoci runc podman man lintian || echo "test: not all tools of releases are there; their tests say so"
	@scripts/need go || echo "test: go is not there; the tests of the Terraform provider say that they are skipped"
	@for tool in h2spec python aioquic openapi-python-client ssh-clients go-ssh-client dex miniflux nats-server pebble \
	    kube-apiserver kube-controller-manager kubectl kwok helm helm-unittest kubeconform \
	    tfplugindocs cargo-cyclonedx; do \
	  scripts/tools $$tool >/dev/null || echo "test: $$tool is not there; the tests that call it say that they are skipped"; \
	done
	@scripts/machine root >/dev/null || echo "test: there are no whole machines here; the tests with them say that they are skipped"
	@failed=0; for part in scripts/test scripts/suites "$(MAKE) instructions"; do $$part || failed=1; done; exit $$failed

test-packet: ## compare the programs of the packet path with their model over a million frames (asks for root)
	@scripts/need rust cc clang nft
	@PACKET_FRAMES=1000000 cargo test -p sallyport-packet --test it agree

instructions: ## count the instructions of the hot paths (valgrind), and fail where they grew by more than 5 %
	@scripts/need rust cc
	@scripts/need valgrind || echo "instructions: valgrind is not there"
	@cargo xtask instructions

instructions-accept: ## write these counts into bench/instructions/counts.json
	@scripts/need rust cc valgrind
	@cargo xtask instructions --accept

lint: ## formatting, clippy, rustdoc, licences, the rule of the folders, the pages
	@scripts/need rust cc clang node npm
	@scripts/lint

bench: ## compare with other tunnels, side by side on this machine (asks for root; hours; ROWS=tcp: one set)
	@scripts/need rust cc go python3 curl openssl iproute nginx haproxy ssh wrk h2load
	@scripts/need sshd || echo "bench: sshd is not there; its cells are not available"
	@scripts/need dnsperf knotd nsd gdnsd || echo "bench: not all name servers are there; their cells are not available"
	@scripts/need clang ethtool nft || echo "bench: the packet path cannot be built; its cells are not available"
	@python3 bench/run.py $(if $(ROWS),--rows $(ROWS))

bench-quick: ## the same with the main rows and one short round (asks for root; under five minutes, the builds aside)
	@scripts/need rust cc go python3 curl openssl iproute nginx haproxy ssh wrk h2load
	@scripts/need sshd || echo "bench: sshd is not there; its cells are not available"
	@python3 bench/run.py --quick $(if $(ROWS),--rows $(ROWS))

flame: ## draw where the time of a request goes, by perf (asks for root; ROWS=down_8: other rows)
	@scripts/need rust cc python3 curl openssl iproute nginx wrk h2load perf
	@python3 bench/run.py --flame --quick --only sallyport --rows $(or $(ROWS),keepalive h2_100_streams tcp_keepalive)

desk: ## build the pages of the desk into desk/dist (commit them with their sources)
	@scripts/need node npm
	@desk/build

docs: ## build the book and the API documentation
	@scripts/need rust cc clang
	"$$(scripts/tools mdbook)" build docs
	cargo doc --workspace --no-deps --locked
	@echo "docs: open book/index.html and target/doc/sallyport/index.html"

build: ## build the release binaries: target/release/sallyport, sallyport-lab, sallyport-kube and sallyport-packet
	@scripts/need rust cc clang
	cargo build --release --package sallyport --package sallyport-lab --package sallyport-kube --package sallyport-packet --locked

release: ## write what is published into dist/ (KEY=FILE: the secret OpenPGP key; BINARIES=DIR: built programs)
	@scripts/need rust cc clang go python3 gpg dpkg-dev apt-ftparchive buildah
	@packaging/release $(if $(KEY),--key '$(KEY)') $(if $(BINARIES),--binaries '$(BINARIES)') $(or $(DIST),dist)

release-verify: ## check a release offline (DIST=DIR: another folder than dist; KEY=FILE: the public key; VERSION=1.2.3)
	@scripts/need python3 gpg
	@packaging/verify $(if $(KEY),--key '$(KEY)') $(if $(VERSION),--version '$(VERSION)') $(or $(DIST),dist)

release-twice: ## build the programs twice in different folders, and compare their bytes (hours of a slow machine)
	@scripts/need rust cc clang
	@packaging/twice

clean: ## remove what was built here (tools in ~/.cache/sallyport-tools stay)
	cargo clean
	rm -rf book
