$(eval $(call library,catalog,base,-lzstd))
