$(eval $(call library,fuse,mount client catalog placement locate ufs net proto admin base,-Wl$(comma)--push-state$(comma)--as-needed$(comma)-lfuse3$(comma)--pop-state))
$(eval $(call program,cachefuse,fuse/daemon/main_cachefuse.c,fuse mount client catalog cluster placement locate ufs net proto admin base))
