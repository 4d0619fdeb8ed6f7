$(eval $(call library,client,catalog cluster placement locate ufs net proto base,))

# For programs that are not ours (client/granary.h): one object that shows nothing but granary_*.
programs: $(B)/libgranary.a
LIBGRANARY_OBJS := $(B)/client/granary_order.o $(B)/base/hash.o $(B)/base/check.o
$(B)/libgranary.a: $(LIBGRANARY_OBJS)
	@$(LD) -r -o $(B)/libgranary.o $^
	@objcopy -w --keep-global-symbol='granary_*' $(B)/libgranary.o
	@rm -f $@
	@$(AR) rcs $@ $(B)/libgranary.o
