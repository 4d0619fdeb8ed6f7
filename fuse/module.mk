$(eval $(call library,fuse,client catalog placement locate ufs net proto admin base,))
$(eval $(call program,cachefuse,fuse/main_cachefuse.c,fuse client catalog cluster placement locate ufs net proto admin base))
$(eval $(call program,cachekeeper,fuse/main_cachekeeper.c,fuse client catalog cluster placement locate ufs net proto admin base))
