$(eval $(call library,fuse,client catalog placement locate ufs net proto admin base,-Wl$(comma)--push-state$(comma)--as-needed$(comma)-lfuse3$(comma)--pop-state))
$(eval $(call program,cachefuse,fuse/main_cachefuse.c,fuse client catalog cluster placement locate ufs net proto admin base))
$(eval $(call program,cachekeeper,fuse/main_cachekeeper.c,fuse client catalog cluster placement locate ufs net proto admin base))
