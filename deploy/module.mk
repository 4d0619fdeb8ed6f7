# Installing, and packages: make install [DESTDIR=DIR] [PREFIX=/usr/local]; make deb [DEB_VERSION=1.2.3] into $(B)/deb.
DESTDIR ?=
PREFIX ?= /usr/local
UNITDIR ?= $(if $(filter /usr,$(PREFIX)),/lib/systemd/system,$(PREFIX)/lib/systemd/system)
INSTALLED := cachectl cachemaster cacheworker cachefuse cachekeeper cachecsi

install: install-programs install-service install-manuals install-library
	@[ -n "$(DESTDIR)" ] || echo "for the service: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"

install-programs: $(INSTALLED:%=$(B)/bin/%)
	@install -d $(DESTDIR)$(PREFIX)/bin
	@install -m 0755 $^ $(DESTDIR)$(PREFIX)/bin

# A configuration that is there already is its administrator's.
install-service:
	@install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(PREFIX)/lib/sysusers.d $(DESTDIR)$(PREFIX)/lib/tmpfiles.d $(DESTDIR)/etc/granary
	@for unit in deploy/systemd/*.service; do \
		sed 's|/usr/bin/cache|$(PREFIX)/bin/cache|' $$unit >$(DESTDIR)$(UNITDIR)/$${unit##*/} && \
		chmod 0644 $(DESTDIR)$(UNITDIR)/$${unit##*/} || exit 1; done
	@install -m 0644 deploy/sysusers.d/granary.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d
	@install -m 0644 deploy/tmpfiles.d/granary.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
	@[ -e $(DESTDIR)/etc/granary/granary.yaml ] || install -m 0644 deploy/granary.yaml $(DESTDIR)/etc/granary

COMPLETIONS := bash:bash-completion/completions/cachectl zsh:zsh/vendor-completions/_cachectl fish:fish/vendor_completions.d/cachectl.fish

install-manuals: man
	@install -d $(DESTDIR)$(PREFIX)/share/doc/granary/images
	@install -m 0644 docs/*.md README.md $(DESTDIR)$(PREFIX)/share/doc/granary
	@install -m 0644 docs/images/*.png docs/images/*.svg $(DESTDIR)$(PREFIX)/share/doc/granary/images
	@install -d $(DESTDIR)$(PREFIX)/share/granary
	@$(B)/bin/cachectl job schema -o json >$(B)/job.schema.json
	@install -m 0644 $(B)/job.schema.json $(DESTDIR)$(PREFIX)/share/granary
	@for page in $(B)/man/*.[1-8]; do \
		section=$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}; \
		install -d $$section && gzip -9nc $$page >$$section/$${page##*/}.gz || exit 1; done
	@for completion in $(COMPLETIONS); do \
		file=$(DESTDIR)$(PREFIX)/share/$${completion#*:}; \
		install -d $${file%/*} && $(B)/bin/cachectl completion $${completion%%:*} >$$file || exit 1; done

install-library: $(B)/libgranary.a
	@install -d $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	@install -m 0644 $(B)/libgranary.a $(DESTDIR)$(PREFIX)/lib
	@install -m 0644 client/granary.h $(DESTDIR)$(PREFIX)/include

deb:
	@deploy/install-packages build deb
	@$(MAKE) -s --no-print-directory -j$(shell nproc) programs man
	@MAKE="$(MAKE)" deploy/deb/build $(B) $(B)/deb $(DEB_VERSION)

.PHONY: install install-programs install-service install-manuals install-library deb
