# Granary: `make demo` and `make test` do all their own set-up; `make` alone builds into build/.
#
#	make DEV=1			warnings are errors
#	make SAN=address,undefined	sanitizers (or SAN=thread), in a build directory of their own
#	make CC=clang			another compiler, in a build directory of its own
#	make OPT="-O0 -g" B=build-O0	for a debugger
#	make unit T=base/test_buf	one unit test
#	make RDMA=0			without libibverbs
#
# Each folder has a module.mk that names its libraries and programs; tools/layers.txt says who may include whom.

CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
SAN ?=
RDMA ?=
DEV ?=
B ?= build$(if $(filter-out gcc,$(CC)),-$(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))
comma := ,

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual \
	-Wwrite-strings -Wvla -Wundef -Wformat=2 -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference \
	-Wconversion -Wno-sign-conversion -fno-common -fno-strict-aliasing
# What a sanitizer reports needs no more of the debugger's information than lines; its many programs are linked by gold.
OPT := $(if $(SAN),-O1 -g1 -fno-omit-frame-pointer -fsanitize=$(SAN),-O2 -g -fno-omit-frame-pointer)
# What makes a bug harder to exploit; tools/check-hardening finds programs that lack it. A sanitizer finds the bug instead, and does
# not know the fortified functions, which need optimization. docs/decisions/hardening.md has the costs.
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
FORTIFY := $(if $(filter -O1 -O2 -O3 -Os,$(OPT)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
BRANCHES := $(if $(filter x86_64 i686,$(ARCH)),-fcf-protection=full,$(if $(filter aarch64,$(ARCH)),-mbranch-protection=standard))
HARDEN := $(if $(SAN),,$(FORTIFY) -fstack-protector-strong -fstack-clash-protection $(BRANCHES) -fPIE)
HARDEN_LINK := $(if $(HARDEN),-pie -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now$(comma)-z$(comma)noexecstack)
SOURCE_FLAGS := -std=gnu17 -D_GNU_SOURCE -I. -I$(B)/gen $(WARN)
CFLAGS += $(SOURCE_FLAGS) $(OPT) $(HARDEN) $(if $(DEV),-Werror) -pthread
LDFLAGS += -pthread $(HARDEN_LINK) $(if $(SAN),-fsanitize=$(SAN) -fuse-ld=gold)
LDLIBS += -lm
# RocksDB, with what it needs of C++, becomes part of master and worker where the archives are installed: the shared ones were half of what
# the dynamic linker did at a start. docs/decisions/libraries.md has the figures, and the price. Tests are linked with the shared ones.
ARCHIVES := librocksdb.a libsnappy.a libbz2.a liblz4.a libstdc++.a
ARCHIVES_HERE := $(filter /%,$(foreach a,$(ARCHIVES),$(shell $(CC) -print-file-name=$(a))))
ROCKSDB := $(if $(or $(SAN),$(filter-out $(words $(ARCHIVES)),$(words $(ARCHIVES_HERE)))),-lrocksdb,-static-libgcc -Wl$(comma)--gc-sections \
	-l:librocksdb.a -l:libsnappy.a -l:libbz2.a -l:liblz4.a -l:libstdc++.a -lz -lzstd)

.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

all: programs

# $(call library,FOLDER,LIBRARIES IT USES,-l FLAGS): FOLDER/*.c, and those of its sub-folders, become $(B)/FOLDER.a.
# main_*.c of a folder are programs: $(call program,NAME,FOLDER/main_NAME.c,LIBRARIES).
LIBS :=
PROGRAMS :=
define library
LIBS += $(1)
$(1)_deps := $(2)
$(1)_ldlibs := $(3)
$(1)_srcs := $(filter-out $($(1)_skip),$(foreach s,$(wildcard $(1)/*.c $(1)/*/*.c),$(if $(filter main_%,$(notdir $(s))),,$(s)))) $($(1)_gen)
$(1)_objs := $$(patsubst %.c,$(B)/%.o,$$(patsubst $(B)/gen/%,gen/%,$$($(1)_srcs)))
$(B)/$(1).a: $$($(1)_objs)
	@mkdir -p $$(@D)
	@rm -f $$@
	@$(AR) rcs $$@ $$^
endef
define program
PROGRAMS += $(B)/bin/$(1)
$(B)/bin/$(1): $(B)/$(2:.c=.o) $(foreach l,$(3),$(B)/$(l).a)
	@mkdir -p $$(@D)
	@echo "LINK  $(1)"
	@$(CC) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) -Wl,--start-group $(foreach l,$(3),$(B)/$(l).a) -Wl,--end-group \
		$$(patsubst -lrocksdb,$$(ROCKSDB),$$(sort $(foreach l,$(3),$$($(l)_ldlibs)))) $(LDLIBS)
endef

# The tests' last: they need to know all libraries.
include $(sort $(filter-out tests/module.mk,$(wildcard */module.mk))) $(sort $(wildcard tests/*/module.mk)) tests/module.mk

programs: $(PROGRAMS)
PROGRAMS_ALL = $(PROGRAMS)

# Objects that were compiled with other flags are compiled again.
$(shell mkdir -p $(B); echo '$(OPT) $(HARDEN)' | cmp -s - $(B)/flags || echo '$(OPT) $(HARDEN)' >$(B)/flags)

# Checked once, before anything is compiled, so that all that is missing is named together with the command that installs it.
LIBRARY_HEADERS := curl/curl.h expat.h fuse3/fuse_opt.h jansson.h microhttpd.h nghttp2/nghttp2.h openssl/ssl.h protobuf-c/protobuf-c.h rocksdb/c.h uv.h xxhash.h \
	yaml.h zstd.h $(if $(filter 0,$(RDMA)),,infiniband/verbs.h)
$(B)/libraries: deploy/packages.txt
	@mkdir -p $(@D)
	@missing=$$(for program in $(firstword $(CC)) protoc-c; do command -v $$program >/dev/null || echo $$program; done; \
		for header in $(LIBRARY_HEADERS); do echo "#include <$$header>" | $(CC) -E -x c - >/dev/null 2>&1 || echo $$header; done); \
	[ -z "$$missing" ] || { echo "not found:" $$missing"; install the packages for the build with: deploy/install-packages build" >&2; exit 1; }
	@touch $@

$(B)/%.o: %.c $(B)/flags | $(B)/libraries
	@mkdir -p $(@D)
	@echo "CC    $<"
	@$(CC) $(CFLAGS) $($(subst /,_,$(basename $<))_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/gen/%.o: $(B)/gen/%.c $(B)/flags | $(B)/libraries
	@mkdir -p $(@D)
	@echo "CC    $<"
	@$(CC) -std=gnu17 -I. -I$(B)/gen $(OPT) $(HARDEN) -w -MMD -MP -c -o $@ $<

-include $(shell find $(B) -name '*.d' 2>/dev/null)

# The whole path on a generated data set, or on a bucket of one's own: make demo URL=s3://bucket/prefix
demo:
	@deploy/install-packages build test
	@$(MAKE) -s --no-print-directory -j$(shell nproc) programs $(B)/tests/s3d
	@examples/demo $(B) $(URL)

# Three workers and two mounts, each on a host of its own, and one worker killed.
demo-cluster:
	@deploy/install-packages build test
	@$(MAKE) -s --no-print-directory -j$(shell nproc) programs $(B)/tests/s3d
	@examples/demo-cluster $(B)

bench:
	@deploy/install-packages build test bench
	@$(MAKE) -s --no-print-directory -j$(shell nproc) programs $(B)/tests/s3d
	@bench/run $(B)

lint:
	@deploy/install-packages build test lint
	@$(MAKE) -s --no-print-directory -j$(shell nproc) generated programs
	@tools/lint $(B)

# Sources that are made, for tools that read the code without building it.
generated: $(foreach l,$(LIBS),$($(l)_gen))

# The flags without which they cannot be read, and the warnings.
source-flags:
	@echo '$(SOURCE_FLAGS)'

clean:
	rm -rf build build-*

.PHONY: all programs demo demo-cluster bench lint generated source-flags clean
