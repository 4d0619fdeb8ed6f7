$(eval $(call library,ctl,client ufs admin base,))
$(eval $(call program,cachectl,ctl/main_cachectl.c,ctl client catalog cluster placement locate ufs net proto admin base))
