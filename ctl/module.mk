$(eval $(call library,ctl,jobs client ufs admin base,))
$(eval $(call program,cachectl,ctl/main_cachectl.c,ctl jobs client catalog cluster placement locate ufs net proto admin base))
