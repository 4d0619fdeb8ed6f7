$(eval $(call library,master,catalog ufs placement admin net proto base,-lrocksdb))
$(eval $(call program,cachemaster,master/main_cachemaster.c,master catalog ufs placement admin net proto base))
