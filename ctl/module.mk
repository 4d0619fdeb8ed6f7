$(eval $(call library,ctl,jobs kube client ufs admin base,))
$(eval $(call program,cachectl,ctl/main_cachectl.c,ctl jobs kube client catalog cluster placement locate ufs net proto admin base))
