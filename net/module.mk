$(eval $(call library,net,proto base,-luv -lssl -lcrypto))
