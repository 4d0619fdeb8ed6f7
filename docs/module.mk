# Made from the programs' own tables of options: manual pages in $(B)/man, and docs/configuration.md. From the sources: docs/messages.md.
DOCUMENTED := $(addprefix $(B)/bin/,cachectl cachemaster cacheworker cachefuse cachekeeper)

man: $(DOCUMENTED)
	@tools/manuals $(B)

docs: $(DOCUMENTED)
	@tools/manuals --configuration $(B) >$(B)/configuration.md
	@mv $(B)/configuration.md docs/configuration.md
	@tools/check-messages --write

.PHONY: man docs
