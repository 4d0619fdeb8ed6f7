$(eval $(call library,tiers,locate base,-lrocksdb))
