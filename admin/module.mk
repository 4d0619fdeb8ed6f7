$(eval $(call library,admin,base,-lmicrohttpd -ljansson))
