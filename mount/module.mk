$(eval $(call library,mount,client catalog placement locate ufs net proto admin base,))
