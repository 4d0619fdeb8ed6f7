$(eval $(call library,locate,base,))
