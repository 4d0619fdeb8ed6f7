# Random reads under faults against a model, over the debug programs: `$(B)/tests/stress-reads --help`.
STRESS_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/stress/*.c))
STRESS_LIBS := tests/debug client tiers catalog cluster placement locate ufs net proto admin base
$(B)/tests/stress-reads: $(STRESS_OBJS) $(foreach l,$(STRESS_LIBS),$(B)/$(l).a)
	@mkdir -p $(@D)
	@echo "LINK  stress-reads"
	@$(CC) $(LDFLAGS) -o $@ $(STRESS_OBJS) -Wl,--start-group $(foreach l,$(STRESS_LIBS),$(B)/$(l).a) -Wl,--end-group \
		$(sort $(foreach l,$(STRESS_LIBS),$($(l)_ldlibs))) $(LDLIBS)
e2e-tools: $(B)/tests/stress-reads
