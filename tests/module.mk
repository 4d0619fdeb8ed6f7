# Unit tests: tests/unit/FOLDER/test_NOUN.c is one program, linked with FOLDER's library and what that uses. The other .c
# files of tests/unit/FOLDER are its fixtures: an archive, of which a program takes the members that it uses.

UNIT_SRCS := $(sort $(wildcard tests/unit/*/test_*.c))
UNIT_BINS := $(UNIT_SRCS:tests/unit/%.c=$(B)/unit/%)
# FOLDER and everything below it.
closure = $(sort $(1) $(foreach l,$($(1)_deps),$(call closure,$(l))))

# The tests' clock, and what a sanitizer needs to see. It defines poll(2), which fortified programs have inline.
UNIT_CLOCK := $(B)/tests/clock/test_clock.o
tests_clock_test_clock_CFLAGS := -fno-sanitize=all -U_FORTIFY_SOURCE
UNIT_SAN := $(if $(findstring thread,$(SAN)),$(B)/tests/sanitize/tsan_close.o)

# $(call fixture,FOLDER): its archive is $(B)/tests/unit/FOLDER.a.
FIXTURE_SRCS := $(filter-out $(UNIT_SRCS),$(wildcard tests/unit/*/*.c))
FIXTURE_FOLDERS := $(sort $(foreach s,$(FIXTURE_SRCS),$(notdir $(patsubst %/,%,$(dir $(s))))))
define fixture
$(B)/tests/unit/$(1).a: $(patsubst %.c,$(B)/%.o,$(filter tests/unit/$(1)/%,$(FIXTURE_SRCS)))
	@mkdir -p $$(@D)
	@rm -f $$@
	@$(AR) rcs $$@ $$^
endef
$(foreach f,$(FIXTURE_FOLDERS),$(eval $(call fixture,$(f))))

# $(call unit_libs,FOLDER,test_NOUN)
test_way_libs := tests/unit/ufs
test_range_libs := tests/unit/ufs
$(foreach t,kube kube_watch kube_event,$(eval test_$(t)_libs := tests/unit/ufs))
$(foreach t,fetch table source_wire remote_admin admin_rights rights admit admin end_listing,$(eval test_$(t)_libs := tests/unit/net))
$(foreach t,gone sources tree_image tree_live,$(eval test_$(t)_libs := tests/unit/catalog))
# Functions of a library that a program replaces by __wrap_NAME().
test_sum_wraps := md5_of_all
# A mount of the tests has both ends: daemon and keeper.
unit_fuse_libs := $(call closure,keeper)
unit_keeper_libs := tests/unit/fuse $(call closure,fuse)
unit_libs = $(if $(filter $(1),$(FIXTURE_FOLDERS)),tests/unit/$(1)) $(sort $(call closure,$(1)) $(unit_$(1)_libs)) $($(2)_libs)
define unit_test
$(B)/unit/$(1)/$(2): $(B)/tests/unit/$(1)/$(2).o $(UNIT_CLOCK) $(UNIT_SAN) $(foreach l,$(call unit_libs,$(1),$(2)),$(B)/$(l).a)
	@mkdir -p $$(@D)
	@$(CC) $(LDFLAGS) $(foreach w,$($(2)_wraps),-Wl,--wrap=$(w)) -o $$@ $$< $(UNIT_CLOCK) $(UNIT_SAN) -Wl,--start-group \
		$(foreach l,$(call unit_libs,$(1),$(2)),$(B)/$(l).a) -Wl,--end-group \
		$$(sort $(foreach l,$(call unit_libs,$(1),$(2)),$$($(l)_ldlibs))) -lcmocka $(LDLIBS)
endef
$(foreach s,$(UNIT_SRCS),$(eval $(call unit_test,$(notdir $(patsubst %/,%,$(dir $(s)))),$(basename $(notdir $(s))))))

# Preloaded into them by tests/run-jitter; it comes before a sanitizer, and has none.
$(B)/tests/jitter.so: tests/sanitize/jitter.c
	@mkdir -p $(@D)
	@echo "LINK  jitter.so"
	@$(CC) -std=gnu17 -D_GNU_SOURCE -O2 -g -fPIC -ftls-model=initial-exec $(WARN) $(if $(DEV),-Werror) -shared -o $@ $<

# Allocations that fail: tests/alloc/test_FOLDER.c is linked with FOLDER and what that uses, the daemons once more, so that
# each allocation of our own can be made to fail (tests/alloc/alloc_fail.h). Those of the fixtures cannot.
ALLOC_WRAP := malloc calloc realloc reallocarray aligned_alloc strdup strndup asprintf vasprintf __asprintf_chk __vasprintf_chk realpath \
	XML_ParserCreate protobuf_c_message_unpack
ALLOC_BINS := $(patsubst tests/alloc/%.c,$(B)/unit/alloc/%,$(wildcard tests/alloc/test_*.c))
ALLOC_DAEMONS := $(addprefix $(B)/tests/alloc/bin/,cachemaster cacheworker cachefuse cachekeeper cachectl)
$(B)/tests/alloc/fixture_%.a: $(B)/tests/unit/%.a
	@mkdir -p $(@D)
	@objcopy $(foreach f,$(ALLOC_WRAP),--redefine-sym $(f)=__real_$(f)) $< $@
# $(call alloc_program,PROGRAM,OBJECTS,FOLDER,-l FLAGS)
define alloc_program
$(1): $(2) $(B)/tests/alloc/alloc_fail.o $(if $(5),$(UNIT_CLOCK)) $(UNIT_SAN) $(foreach l,$(call closure,$(3)),$(B)/$(l).a) \
		$(foreach f,$(filter $(3),$(5)),$(B)/tests/alloc/fixture_$(f).a)
	@mkdir -p $$(@D)
	@$(CC) $(LDFLAGS) $(ALLOC_WRAP:%=-Wl,--wrap=%) -o $$@ $$(filter %.o,$$^) -Wl,--start-group \
		$$(filter %.a,$$^) -Wl,--end-group $$(sort $(foreach l,$(LIBS),$$($(l)_ldlibs))) $(4) $(LDLIBS)
endef
$(foreach b,$(ALLOC_BINS),$(eval $(call alloc_program,$(b),$(B)/tests/alloc/$(notdir $(b)).o $(UNIT_CLOCK),$(patsubst test_%,%,$(notdir $(b))),-lcmocka,$(FIXTURE_FOLDERS))))
$(eval $(call alloc_program,$(B)/tests/alloc/bin/cachemaster,$(B)/master/main_cachemaster.o,master))
$(eval $(call alloc_program,$(B)/tests/alloc/bin/cacheworker,$(B)/cacheworker/main_cacheworker.o,cacheworker))
$(eval $(call alloc_program,$(B)/tests/alloc/bin/cachefuse,$(B)/fuse/daemon/main_cachefuse.o,fuse))
$(eval $(call alloc_program,$(B)/tests/alloc/bin/cachekeeper,$(B)/keeper/main_cachekeeper.o,keeper))
$(eval $(call alloc_program,$(B)/tests/alloc/bin/cachectl,$(B)/ctl/main_cachectl.o,ctl))
$(B)/unit/alloc/test_ufs: | $(B)/tests/s3d
UNIT_BINS += $(ALLOC_BINS)

unit-build: $(UNIT_BINS)
jitter-build: $(UNIT_BINS) $(B)/tests/jitter.so

# The tests' own S3 server.
S3D_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/tools/s3d*.c))
$(B)/tests/s3d: $(S3D_OBJS) $(B)/base.a
	@mkdir -p $(@D)
	@echo "LINK  s3d"
	@$(CC) $(LDFLAGS) -o $@ $^ $(base_ldlibs) $(LDLIBS)

# Speaks to daemons as no daemon of ours does.
$(B)/tests/wire-probe: $(B)/tests/tools/wire_probe.o $(B)/tests/tools/wire_fuzz.o $(B)/net.a $(B)/proto.a $(B)/base.a
	@mkdir -p $(@D)
	@echo "LINK  wire-probe"
	@$(CC) $(LDFLAGS) -o $@ $^ $(sort $(net_ldlibs) $(proto_ldlibs) $(base_ldlibs)) $(LDLIBS)

# Reads as an application with asynchronous I/O.
$(B)/tests/async-read: $(B)/tests/tools/async_read.o
	@mkdir -p $(@D)
	@echo "LINK  async-read"
	@$(CC) $(LDFLAGS) -o $@ $^ -luring $(LDLIBS)

# Announces an order as a program in C does, with the library for such programs alone.
$(B)/tests/announce: $(B)/tests/tools/announce.o $(B)/libgranary.a
	@mkdir -p $(@D)
	@echo "LINK  announce"
	@$(CC) $(LDFLAGS) -o $@ $^ -lcrypto -lxxhash $(LDLIBS)

# Reads synthetic objects and compares every byte.
$(B)/tests/soak-reader: $(B)/tests/soak/reader.o $(B)/tests/tools/s3d_noise.o $(B)/base.a
	@mkdir -p $(@D)
	@echo "LINK  soak-reader"
	@$(CC) $(LDFLAGS) -o $@ $^ $(base_ldlibs) $(LDLIBS)

# An API server of Kubernetes.
$(B)/tests/fake-kube: $(B)/tests/tools/fake_kube_server.o $(B)/tests/unit/kube.a $(B)/tests/unit/ufs.a $(B)/base.a
	@mkdir -p $(@D)
	@echo "LINK  fake-kube"
	@$(CC) $(LDFLAGS) -o $@ $^ $(base_ldlibs) -ljansson $(LDLIBS)

# A disk whose power is cut.
RECORDDISK_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/tools/recorddisk/*.c))
$(B)/tests/recorddisk: $(RECORDDISK_OBJS) $(B)/base.a
	@mkdir -p $(@D)
	@echo "LINK  recorddisk"
	@$(CC) $(LDFLAGS) -o $@ $^ $(base_ldlibs) $(LDLIBS)

# Everything that the end-to-end tests run, besides the programs.
E2E_TOOLS := $(addprefix $(B)/tests/,s3d fake-kube async-read announce soak-reader recorddisk wire-probe) $(ALLOC_DAEMONS)
e2e-tools: $(E2E_TOOLS)

# `make unit` runs all, `make unit T="base/test_buf net/test_rpc"` these.
unit: $(if $(T),$(addprefix $(B)/unit/,$(T)),$(UNIT_BINS))
	@tests/run-unit $(B) $(T)

.PHONY: unit unit-build jitter-build

# Fuzzers: tests/fuzz/fuzz_NOUN.c, with the other .c files of tests/fuzz. `make CC=clang SAN=address,fuzzer-no-link fuzz`
# fuzz_NOUN_libs: other libraries than all; master and worker have names in common.
FUZZ_SECONDS ?= 20
FUZZ_BINS := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz_job_libs := $(call closure,jobs)
fuzz_records_libs := $(call closure,master)
fuzz_jwt_libs := $(call closure,master)
fuzz_keeper_libs := $(call closure,keeper)
fuzz_mounter_libs := $(call closure,keeper)
fuzz_grpc_libs := $(call closure,csi)
fuzz_master_rights_libs := tests/unit/master $(call closure,master)
fuzz_worker_rights_libs := tests/unit/cacheworker $(call closure,cacheworker)
$(B)/tests/fuzz.a: $(patsubst %.c,$(B)/%.o,$(filter-out tests/fuzz/fuzz_%.c,$(wildcard tests/fuzz/*.c)))
	@rm -f $@
	@$(AR) rcs $@ $^
# $(call fuzzer,NAME,LIBRARIES)
define fuzzer
$(B)/fuzz/$(1): $(B)/tests/fuzz/$(1).o $(B)/tests/fuzz/seeds.o $(foreach l,tests/fuzz $(2),$(B)/$(l).a)
	@mkdir -p $$(@D)
	@echo "LINK  $(1)"
	@$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $$@ $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		$$(sort $$(foreach l,$(2),$$($$(l)_ldlibs))) $(if $(filter tests/%,$(2)),-lcmocka) $(LDLIBS)
endef
$(foreach b,$(notdir $(FUZZ_BINS)),$(eval $(call fuzzer,$(b),$(or $($(b)_libs),$(LIBS)))))

fuzz: $(FUZZ_BINS)
	@tests/run-fuzz $(B) $(FUZZ_SECONDS)

# Packages, build, unit and end-to-end tests, from nothing.
test:
	@MAKE="$(MAKE)" tests/run-all $(B)

# Those of training jobs alone.
JOB_TESTS := $(addprefix $(B)/unit/,$(patsubst tests/unit/%.c,%,$(wildcard tests/unit/jobs/test_*.c tests/unit/kube/test_*.c)) alloc/test_jobs ctl/test_job_yaml)
test-jobs: programs e2e-tools $(JOB_TESTS)
	@tests/run-jobs $(B)

# `make e2e T=10-mount-read` runs one.
e2e: programs e2e-tools
	@tests/run-e2e $(B) $(T)

# The CSI plugin alone: `make test` runs these, too.
test-csi: programs e2e-tools $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/csi/test_*.c)) $(B)/unit/master/test_jwt
	@tests/run-csi $(B)

# Pods of a real Kubernetes, where its programs are (docs/testing.md); `make test-k8s T=volumes` runs one.
test-k8s: programs e2e-tools
	@tests/run-k8s $(B) $(T)

# What takes too long for every change; `make soak T=no-memory` runs one.
soak:
	@deploy/install-packages build test soak lint
	@$(MAKE) -s --no-print-directory programs e2e-tools
	@MAKE="$(MAKE)" tests/run-soak $(B) $(T)

# Pictures of dashboard and top, of real daemons, for docs/images.
screenshots:
	@deploy/install-packages build test screenshots
	@$(MAKE) -s --no-print-directory programs e2e-tools
	@GRANARY_SCREENSHOTS=$(CURDIR)/docs/images tests/run-e2e --soak $(B) screenshots

# The demo as a picture of a terminal, for README.md.
recording:
	@deploy/install-packages build test
	@$(MAKE) -s --no-print-directory -j$(shell nproc) programs $(B)/tests/s3d
	@tools/record docs/images/demo.svg "make demo" examples/demo $(B)

# The mount on Debian's kernels, in guests. `make test-kernels K=6.1` takes one.
test-kernels: programs
	@deploy/install-packages kernels || echo "SKIP test-kernels: see the line above"
	@tests/kernels/run $(B) $(K)

# Lanes on a real device, soft RoCE in a guest. `make test-rdma T=test_cuts` runs one test.
RDMA_LANE := $(if $(filter 0,$(RDMA)),,$(B)/tests/rdma-lane)
$(B)/tests/rdma-lane: $(B)/tests/rdma/lane.o $(B)/tests/unit/net.a $(B)/net.a $(B)/proto.a $(B)/base.a
	@mkdir -p $(@D)
	@echo "LINK  rdma-lane"
	@$(CC) $(LDFLAGS) -Wl,--wrap=ibv_modify_qp,--wrap=ibv_query_device -o $@ $< $(B)/tests/unit/net.a -Wl,--start-group $(B)/net.a $(B)/proto.a $(B)/base.a -Wl,--end-group \
		$(sort $(net_ldlibs) $(proto_ldlibs) $(base_ldlibs)) -libverbs -lcmocka $(LDLIBS)
test-rdma: $(RDMA_LANE)
	@deploy/install-packages kernels || echo "SKIP test-rdma: see the line above"
	@tests/rdma/run $(B) $(T)

.PHONY: fuzz test test-csi test-k8s test-jobs e2e e2e-tools soak screenshots recording test-kernels test-rdma
