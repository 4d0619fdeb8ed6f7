# The fault plane and crash points: a library for tests, and the daemons once more, with it (tests/debug/debug.c).
# Objects with constructors are named where they are wanted: nothing refers to them.
DEBUG_HOOKS := tests/debug/debug.c tests/debug/debug_tier.c tests/debug/debug_ufs.c tests/debug/debug_net.c \
	tests/debug/debug_fuse.c
LIBS += tests/debug
tests/debug_deps := tiers ufs net admin base
DEBUG_OBJS := $(patsubst %.c,$(B)/%.o,$(filter-out $(DEBUG_HOOKS),$(wildcard tests/debug/*.c)))
$(B)/tests/debug.a: $(DEBUG_OBJS)
	@mkdir -p $(@D)
	@rm -f $@
	@$(AR) rcs $@ $^

# $(call debug_program,NAME,FOLDER/main_NAME.c,LIBRARIES,HOOKS besides debug.c,-Wl FLAGS)
define debug_program
DEBUG_PROGRAMS += $(B)/debug/bin/$(1)
$(B)/debug/bin/$(1): $(B)/$(2:.c=.o) $(patsubst %,$(B)/tests/debug/%.o,debug $(4)) \
		$(foreach l,$(3) tests/debug $(DEBUG_LIBS),$(B)/$(l).a)
	@mkdir -p $$(@D)
	@echo "LINK  debug/$(1)"
	@$(CC) $(LDFLAGS) $(5) -o $$@ $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		$$(sort $$(foreach l,$(LIBS),$$($$(l)_ldlibs))) $(LDLIBS)
endef
DEBUG_PROGRAMS :=
DEBUG_LIBS := tiers locate ufs net proto admin base
$(eval $(call debug_program,cacheworker,cacheworker/main_cacheworker.c,cacheworker catalog cluster placement,debug_tier debug_ufs debug_net))
$(eval $(call debug_program,cachefuse,fuse/daemon/main_cachefuse.c,fuse mount client catalog cluster placement,debug_net debug_fuse,-Wl$(comma)--wrap=session_new))
$(eval $(call debug_program,cachekeeper,keeper/main_cachekeeper.c,keeper mount client catalog cluster placement,))
$(eval $(call debug_program,cachecsi,csi/main_cachecsi.c,csi,))
$(eval $(call debug_program,cachemaster,master/main_cachemaster.c,master catalog placement,debug_ufs debug_net))
$(eval $(call debug_program,cachectl,ctl/main_cachectl.c,ctl jobs kube client catalog cluster placement,))

# `make debug`: programs whose faults are switched at run time.
debug: $(DEBUG_PROGRAMS)
e2e-tools: $(DEBUG_PROGRAMS)
.PHONY: debug

# Unit tests that use it.
test_retry_libs := tests/debug $(DEBUG_LIBS)
test_disk_libs := tests/debug $(DEBUG_LIBS)
test_rpc_libs := tests/debug $(DEBUG_LIBS)
