# The dashboard's files lie in the program.
DASHBOARD_FILES := $(sort $(wildcard master/dashboard/*.*))
master_gen := $(B)/gen/master/dashboard_pages.c

$(master_gen): $(DASHBOARD_FILES) tools/embed
	@mkdir -p $(@D)
	@echo "GEN   master/dashboard"
	@tools/embed dashboard_pages $(DASHBOARD_FILES) >$@

$(eval $(call library,master,catalog ufs cluster placement admin net proto base,-lrocksdb))
$(eval $(call program,cachemaster,master/main_cachemaster.c,master catalog ufs cluster placement admin net proto base))
