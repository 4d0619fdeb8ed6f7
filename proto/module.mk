# granary.pb-c.{c,h} are generated into the build directory; whoever may include them waits for that, in order only.
proto_gen := $(B)/gen/proto/granary.pb-c.c
proto_users := proto net cluster tests/*/cluster client cacheworker master fuse ctl tests/*/proto tests/*/net tests/*/client tests/*/cacheworker \
	tests/*/master tests/*/fuse tests/fuzz tests/tools tests/alloc tests/model bench

$(proto_gen) $(proto_gen:.c=.h) &: proto/granary.proto | $(B)/libraries
	@mkdir -p $(B)/gen
	@echo "GEN   $<"
	@protoc-c --c_out=$(B)/gen $<
$(patsubst %.c,$(B)/%.o,$(wildcard $(addsuffix /*.c,$(proto_users)))) $(proto_gen:.c=.o): | $(proto_gen:.c=.h)

$(eval $(call library,proto,base,-lprotobuf-c))
