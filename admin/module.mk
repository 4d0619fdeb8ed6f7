$(eval $(call library,admin,net base,-lmicrohttpd -ljansson))
