# Generated into the build directory, as those of proto/.
csi_protos := csi pluginregistration
csi_gen := $(csi_protos:%=$(B)/gen/csi/%.pb-c.c)
csi_gen_headers := $(csi_gen:.c=.h)

$(B)/gen/csi/%.pb-c.c $(B)/gen/csi/%.pb-c.h &: csi/%.proto | $(B)/libraries
	@mkdir -p $(@D)
	@echo "GEN   $<"
	@protoc-c --c_out=$(B)/gen $<
$(patsubst %.c,$(B)/%.o,$(wildcard csi/*.c tests/*/csi/*.c tests/fuzz/*.c)) $(csi_gen:.c=.o): | $(csi_gen_headers)

$(eval $(call library,csi,admin base,-lnghttp2 -lprotobuf-c))
$(eval $(call program,cachecsi,csi/main_cachecsi.c,csi admin net proto base))
