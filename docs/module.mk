# Made from the programs' own tables of options: manual pages in $(B)/man, docs/configuration.md, docs/commands.md and docs/jobs.md. From the sources: docs/messages.md.
DOCUMENTED := $(addprefix $(B)/bin/,cachectl cachemaster cacheworker cachefuse cachekeeper cachecsi)

man: $(DOCUMENTED)
	@tools/manuals $(B)

docs: $(DOCUMENTED)
	@tools/manuals --configuration $(B) >$(B)/configuration.md
	@tools/command-table $(B) >$(B)/commands.md
	@tools/job-tables $(B) >$(B)/jobs.md
	@mv $(B)/configuration.md $(B)/commands.md $(B)/jobs.md docs/
	@tools/check-messages --write

.PHONY: man docs
