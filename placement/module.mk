$(eval $(call library,placement,base,))
