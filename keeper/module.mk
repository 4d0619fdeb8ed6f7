$(eval $(call library,keeper,mount client catalog placement locate ufs net proto admin base,))
$(eval $(call program,cachekeeper,keeper/main_cachekeeper.c,keeper mount client catalog cluster placement locate ufs net proto admin base))
