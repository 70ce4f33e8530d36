# Everything a user or contributor types. `make` alone lists it.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
INSTALL ?= install

target := $(or $(CARGO_TARGET_DIR),target)
bypath := $(target)/release/bypath
library := $(target)/release/libbypath_preload.so

# Where cargo puts libbypath.so and libbypath.a.
c_libraries := $(target)/capi
version := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

root := $(DESTDIR)$(PREFIX)
# Every installed file is listed here, so that `uninstall` removes these and no others.
manifest := $(root)/lib/bypath/manifest
# The same of the C library.
c_manifest := $(root)/lib/bypath/manifest-c

.PHONY: help demo test soak mutants bench check build build-c install install-c uninstall uninstall-c clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo        build, and show the main job in about two minutes'
	@echo 'make test        everything that proves the product (some 35 minutes)'
	@echo 'make soak        the long, random tests'
	@echo 'make mutants     whether the tests notice a library that is broken on purpose (hours)'
	@echo 'make bench       measurements against the kernel, as printed in README.md'
	@echo 'make check       formatting, lints and documentation, warnings are errors; whether all mutants apply'
	@echo 'make build       the command, the preload library and the C library, release'
	@echo 'make install     [PREFIX=/usr/local] [DESTDIR=] after building'
	@echo 'make uninstall   [PREFIX=/usr/local] [DESTDIR=] what was installed there'
	@echo 'make clean       remove what was built'

demo:
	demo/run

test:
	tests/run

soak:
	@echo 'The long, random tests, one stage after the other; `tests/run STAGE` with BYPATH_SOAK=1 runs one of them.'
	@echo '  differential  ten times as many random scripts of socket calls as in `make test`'
	@echo '  roads         more sockets than there are numbers for them'
	@echo '  simulator     100 times as many seeds'
	@echo '  fuzz          a minute for each target of the TCP/IP stack and its services'
	@echo '  trust         hostile ends of rings and of mailboxes, by seed: four kinds of victims, one after the other, ten minutes in all'
	@echo '  processes     100,000 channels that come and go, and 100 times as many ends of channels that lie'
	@echo '  survival      100,000 connections that come and go, and as many in 16,666 processes'
	@echo '  differential_netstack  fifty times as many random scripts on the netstack service, streams and datagrams, as in `make test`'
	@echo '  netstack_programs      20 times as many programs, and services, that are killed under load'
	@echo '  service       a minute of programs that do anything at all to a service'
	@echo '  soak          five minutes of crowds that are switched and killed at random, five of roads back to the kernel'
	BYPATH_SOAK=1 BYPATH_FUZZ_SECONDS=60 BYPATH_SOAK_SECONDS=300 \
		tests/run differential roads simulator fuzz trust processes survival differential_netstack netstack_programs service soak

mutants:
	tests/mutants

bench: build
	$(bypath) bench loopback
	$(bypath) bench apps
	$(bypath) bench raw

check:
	$(CARGO) fmt --all --check
	@if command -v python3 >/dev/null; then tests/mutants --list >/dev/null; else echo 'python3 is missing: tests/mutants.d is not checked'; fi
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package bypath --package bypath-netstack --all-targets --features bypath/tokio -- -D warnings
	$(CARGO) clippy --package bypath --no-default-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --package bypath --package bypath-netstack --features bypath/tokio --no-deps

# Two invocations: features of the command's dependencies must not reach those of the library.
build: build-c
	$(CARGO) build --release --locked -p bypath-cli
	$(CARGO) build --release --locked -p bypath-preload

# Its own profile: a panic must unwind to the boundary, where it becomes an error.
build-c:
	$(CARGO) build --profile capi --locked -p bypath-capi

install: build install-c
	$(INSTALL) -d '$(root)/bin' '$(root)/lib/bypath' '$(root)/share/man/man1' '$(root)/share/doc/bypath' \
		'$(root)/share/bash-completion/completions' '$(root)/share/zsh/site-functions' \
		'$(root)/share/fish/vendor_completions.d' '$(root)/lib/systemd/system'
	sed -e 's|@PREFIX@|$(PREFIX)|' packaging/systemd/bypath-netstack@.service.in \
		>'$(root)/lib/systemd/system/bypath-netstack@.service'
	$(INSTALL) -m 755 '$(bypath)' '$(root)/bin/bypath'
	$(INSTALL) -m 755 '$(library)' '$(root)/lib/bypath/libbypath_preload.so'
	$(INSTALL) -m 644 LICENSE-MIT LICENSE-APACHE '$(root)/share/doc/bypath/'
	'$(bypath)' completions bash >'$(root)/share/bash-completion/completions/bypath'
	'$(bypath)' completions zsh >'$(root)/share/zsh/site-functions/_bypath'
	'$(bypath)' completions fish >'$(root)/share/fish/vendor_completions.d/bypath.fish'
	rm -rf '$(target)/man' && mkdir -p '$(target)/man' && '$(bypath)' man '$(target)/man'
	$(INSTALL) -m 644 '$(target)'/man/*.1 '$(root)/share/man/man1/'
	cd '$(target)/man' && printf 'share/man/man1/%s\n' *.1 >manifest
	printf '%s\n' bin/bypath lib/bypath/libbypath_preload.so lib/bypath/manifest \
		share/doc/bypath/LICENSE-MIT share/doc/bypath/LICENSE-APACHE \
		share/bash-completion/completions/bypath share/zsh/site-functions/_bypath \
		share/fish/vendor_completions.d/bypath.fish lib/systemd/system/bypath-netstack@.service | cat - '$(target)/man/manifest' >'$(manifest)'
	@echo 'Installed in $(root). Try: $(PREFIX)/bin/bypath run --help'

# C and C++ only.
install-c: build-c
	$(INSTALL) -d '$(root)/include' '$(root)/lib/bypath' '$(root)/lib/pkgconfig' '$(root)/lib/cmake/Bypath'
	$(INSTALL) -m 644 crates/capi/include/bypath.h crates/capi/include/bypath.hpp '$(root)/include/'
	$(INSTALL) -m 755 '$(c_libraries)/libbypath.so' '$(root)/lib/libbypath.so.$(version)'
	ln -sf 'libbypath.so.$(version)' '$(root)/lib/libbypath.so.0'
	ln -sf libbypath.so.0 '$(root)/lib/libbypath.so'
	$(INSTALL) -m 644 '$(c_libraries)/libbypath.a' '$(root)/lib/libbypath.a'
	for file in bypath.pc bypath-static.pc; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(version)|' "crates/capi/$$file.in" >"$(root)/lib/pkgconfig/$$file" || exit 1; \
	done
	for file in BypathConfig.cmake BypathConfigVersion.cmake; do \
		sed -e 's|@VERSION@|$(version)|' "crates/capi/cmake/$$file.in" >"$(root)/lib/cmake/Bypath/$$file" || exit 1; \
	done
	printf '%s\n' include/bypath.h include/bypath.hpp lib/libbypath.so lib/libbypath.so.0 'lib/libbypath.so.$(version)' \
		lib/libbypath.a lib/pkgconfig/bypath.pc lib/pkgconfig/bypath-static.pc lib/cmake/Bypath/BypathConfig.cmake \
		lib/cmake/Bypath/BypathConfigVersion.cmake lib/bypath/manifest-c >'$(c_manifest)'

uninstall-c:
	@test -f '$(c_manifest)' || { echo 'nothing to remove: $(c_manifest) is missing (PREFIX, DESTDIR as for install?)' >&2; exit 1; }
	@files=$$(cat '$(c_manifest)') && for file in $$files; do rm -f "$(root)/$$file"; done
	@rmdir '$(root)/lib/cmake/Bypath'
	@rmdir '$(root)/lib/bypath' 2>/dev/null || true

uninstall:
	@test -f '$(manifest)' || { echo 'nothing to remove: $(manifest) is missing (PREFIX, DESTDIR as for install?)' >&2; exit 1; }
	@# The list is read before anything goes: it is in it.
	@files=$$(cat '$(manifest)') && for file in $$files; do rm -f "$(root)/$$file"; done
	@rmdir '$(root)/share/doc/bypath'
	@test ! -f '$(c_manifest)' || $(MAKE) --no-print-directory uninstall-c
	@rmdir '$(root)/lib/bypath' 2>/dev/null || true
	@echo 'Removed from $(root).'

clean:
	$(CARGO) clean
