$(eval $(call library,cluster,placement net proto base,))
