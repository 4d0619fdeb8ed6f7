$(eval $(call library,client,catalog placement locate ufs net proto base,))
