net_skip := $(if $(filter 0,$(RDMA)),net/lane_device.c net/lane_verbs.c)
$(eval $(call library,net,proto base,-luv -lssl -lcrypto))
