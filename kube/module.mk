$(eval $(call library,kube,admin ufs base,-ljansson))
